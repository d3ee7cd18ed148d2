"""The chat page in a real browser: Debian's Chromium, driven by playwright; skipped without it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from test.llm.bad_requests import MARKUP_ATTACKS
from test.llm.fake_model import FakeModel, always_replies, tokenizer
from test.llm.serving import Site, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_MS = 120_000

LONG = always_replies("word " * 20_000)


def about(tokens: list[int]) -> list[int]:
    """A reply with the number of user messages in the prompt."""
    count = tokenizer().decode(tokens).count("<|im_start|>user")
    return tokenizer().encode(f"Message {count}: <b>né</b>\n```\ncode\n```\ndone")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        # a sandbox needs rights that containers do not have
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Any, site: Site, **options: Any) -> Iterator[Any]:
    """Opens the page; fails on script errors and on requests to other hosts."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    wrong: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site.url)
    yield page
    context.close()
    assert not [text for text in wrong if "Failed to load resource" not in text]
    assert all(url.startswith((site.url, "data:")) for url in asked)


def send(page: Any, text: str) -> None:
    page.locator("#input").fill(text)
    page.locator("#input").press("Enter")


def idle(page: Any) -> None:
    """Waits until the reply has ended."""
    page.wait_for_selector("#log[aria-busy=false]")


def replies(page: Any) -> list[str]:
    return page.locator(".assistant > .text").all_inner_texts()


def test_a_conversation_continues(browser: Any) -> None:
    with served(FakeModel(about)) as site, opened(browser, site) as page:
        page.wait_for_function("document.title === 'fake'")
        send(page, "Hello")
        idle(page)
        # output of a model is shown as text, never as markup
        assert "Message 1: <b>né</b>" in replies(page)[0]
        assert page.locator(".assistant b").count() == 0
        assert page.locator(".assistant pre code").inner_text().strip() == "code"
        assert re.fullmatch(r"\d+ tokens, [\d.]+/s", page.locator(".note").first.inner_text())
        send(page, "And then?")
        idle(page)
        assert replies(page)[1].startswith("Message 2")
        assert page.evaluate("document.activeElement.id") == "input"
        page.get_by_role("button", name="New chat").click()
        assert page.locator(".message").count() == 0
        send(page, "Hello")
        idle(page)
        assert replies(page)[0].startswith("Message 1")


def test_keys(browser: Any) -> None:
    model = FakeModel(LONG, max_context=200_000, step_s=0.002)
    with served(model, max_running=1) as site, opened(browser, site) as page:
        field = page.locator("#input")
        field.fill("one")
        field.press("Shift+Enter")
        field.type("two")
        assert field.input_value() == "one\ntwo"
        assert page.locator(".message").count() == 0
        field.press("Enter")
        page.get_by_text("word word").wait_for()
        page.keyboard.press("Escape")
        idle(page)
        assert page.locator(".actions .note").inner_text() == "stopped"
        site.wait_until_idle()
        # every control can be reached without a mouse
        reached = set()
        for _ in range(8):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.trim()"))
        assert {"New chat", "Settings", "Copy"} <= reached


def test_a_reply_streams_until_it_is_stopped(browser: Any) -> None:
    model = FakeModel(LONG, max_context=200_000, step_s=0.002)
    with served(model, max_running=1) as site, opened(browser, site) as page:
        send(page, "Hello")
        page.get_by_text("word word").wait_for()
        assert site.engine.load == (1, 0)
        page.get_by_role("button", name="Stop").click()
        idle(page)
        site.wait_until_idle()
        length = len(replies(page)[0])
        assert 8 < length < 100_000
        assert page.get_by_role("button", name="Send").is_visible()
        # a running reply is also stopped by a new chat
        send(page, "Again")
        page.wait_for_selector("#log[aria-busy=true] .message:nth-child(4)")
        page.get_by_role("button", name="New chat").click()
        site.wait_until_idle()


def test_settings_are_sent(browser: Any) -> None:
    def script(tokens: list[int]) -> list[int]:
        text = tokenizer().decode(tokens)
        return tokenizer().encode("brief" if "system\nBe brief" in text else "long")

    with served(FakeModel(script)) as site, opened(browser, site) as page:
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("System prompt").fill("Be brief")
        page.get_by_label("Maximum tokens").fill("3")
        page.get_by_role("button", name="Done").click()
        send(page, "Hello")
        idle(page)
        assert replies(page) == ["bri"]
        assert page.locator(".actions .note").inner_text() == "reached the maximum length"
        page.reload()
        page.get_by_role("button", name="Settings").click()
        assert page.get_by_label("System prompt").input_value() == "Be brief"


def test_reasoning_is_folded(browser: Any) -> None:
    model = FakeModel(always_replies("<think>\nhm\n</think>\n\nYes"))
    with served(model) as site, opened(browser, site) as page:
        send(page, "Hello")
        idle(page)
        assert replies(page) == ["Yes"]
        assert not page.get_by_text("hm", exact=True).is_visible()
        page.get_by_text("Reasoning").click()
        assert page.get_by_text("hm", exact=True).is_visible()


def test_an_error_is_shown_and_the_message_kept(browser: Any) -> None:
    model = FakeModel()
    with served(model) as site, opened(browser, site) as page:
        model.fails = RuntimeError("out of memory")
        send(page, "Hello")
        page.get_by_text("the model failed: out of memory").wait_for()
        assert page.locator("#input").input_value() == "Hello"
        page.locator("#input").press("Enter")
        idle(page)
        page.wait_for_selector(".assistant .actions")
        assert replies(page)[0].startswith("sum")
        assert page.locator(".error").count() == 0


def test_an_api_key_is_required(browser: Any) -> None:
    with served(FakeModel(), api_key="secret") as site, opened(browser, site) as page:
        page.get_by_label("API key").fill("secret")
        page.get_by_role("button", name="Done").click()
        page.wait_for_function("document.title === 'fake'")
        send(page, "Hello")
        idle(page)
        assert replies(page)[0].startswith("sum")


LUMINANCE = """place => {
  const color = getComputedStyle(document.querySelector(place[0]))[place[1]];
  const parts = color.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255);
  const linear = parts.map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_in_light_and_dark(browser: Any, scheme: str) -> None:
    options = {"viewport": {"width": 320, "height": 480}, "color_scheme": scheme}
    with served(FakeModel(about)) as site, opened(browser, site, **options) as page:
        send(page, "x" * 200)
        idle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 320
        assert page.locator("#send").bounding_box()["x"] < 320
        # WCAG 2 requires a contrast of 4.5 between text and background
        for selector, behind in (("body", "body"), (".note", "body"), (".user .text",) * 2):
            lights = [
                page.evaluate(LUMINANCE, [selector, "color"]),
                page.evaluate(LUMINANCE, [behind, "backgroundColor"]),
            ]
            assert (max(lights) + 0.05) / (min(lights) + 0.05) >= 4.5
            assert (lights[0] > lights[1]) == (scheme == "dark")


def test_replies_run_no_scripts_and_load_nothing(browser: Any) -> None:
    # `opened` fails on requests to other hosts, and on violations of the page's security policy
    text = "\n\n".join([*MARKUP_ATTACKS, "[safe](https://x.y/)", "# end"])
    model = FakeModel(always_replies(text), max_context=20_000)
    with served(model) as site, opened(browser, site) as page:
        send(page, text)
        idle(page)
        page.get_by_role("button", name="Copy").wait_for()
        assert page.locator(".assistant h1").last.inner_text() == "end"
        assert page.evaluate("window.hacked") is None
        unsafe = "script, img, svg, iframe, style, [onerror], [onclick], [onmouseover]"
        assert page.locator(f".message :is({unsafe})").count() == 0
        links = page.locator(".message a").evaluate_all("all => all.map(one => one.protocol)")
        assert set(links) == {"https:"}


MARKDOWN = (
    "# Title\n\nsome **bold** text and `code`\n\n1. one\n2. two\n\n[site](https://x.y/)\n\nend"
)


def test_a_reload_keeps_the_conversation(browser: Any) -> None:
    def script(tokens: list[int]) -> list[int]:
        count = tokenizer().decode(tokens).count("<|im_start|>user")
        return tokenizer().encode(f"<think>\nhm\n</think>\n\nreply {count}\n\n{MARKDOWN}")

    with served(FakeModel(script)) as site, opened(browser, site) as page:
        send(page, "Hello *you*")
        idle(page)
        assert page.locator(".user .text").inner_text() == "Hello *you*"
        assert page.locator(".assistant strong").inner_text() == "bold"
        assert page.locator(".assistant li").all_inner_texts() == ["one", "two"]
        before = page.locator("#log").inner_html()
        page.reload()
        assert page.locator("#log").inner_html() == before
        send(page, "And then?")
        idle(page)
        assert replies(page)[1].startswith("reply 2")
        page.get_by_role("button", name="New chat").click()
        page.reload()
        assert page.locator(".message").count() == 0
        # what another page of this host may have stored is no conversation
        for stored in ("{", "5", '[{"role": "system", "content": "x"}]', '[{"role": "user"}]'):
            page.evaluate("text => sessionStorage.setItem('conversation', text)", stored)
            page.reload()
            assert page.locator(".message").count() == 0


def test_a_reload_keeps_the_message_being_written(browser: Any) -> None:
    model = FakeModel()
    with served(model) as site, opened(browser, site) as page:
        field = page.locator("#input")
        line = field.bounding_box()["height"]
        field.type("one")
        field.press("Shift+Enter")
        field.type("two")
        page.reload()
        assert field.input_value() == "one\ntwo"
        assert field.bounding_box()["height"] > line
        field.press("Enter")
        idle(page)
        page.reload()
        assert field.input_value() == ""
        # what was written while another message failed is not lost, nor is that message
        model.fails = RuntimeError("out of memory")
        page.route("**/v1/chat/completions", lambda route: (field.type("next"), route.continue_()))
        send(page, "first")
        page.get_by_text("the model failed: out of memory").wait_for()
        assert field.input_value() == "first\nnext"
        page.reload()
        assert field.input_value() == "first\nnext"


def test_a_reload_while_a_reply_streams_keeps_what_there_is(browser: Any) -> None:
    model = FakeModel(LONG, max_context=200_000, step_s=0.002)
    with served(model, max_running=1) as site, opened(browser, site) as page:
        send(page, "Hello")
        page.get_by_text("word word").wait_for()
        page.reload()
        site.wait_until_idle()
        assert replies(page)[0].startswith("word word")
        # a browser may end the stream before it leaves the page
        assert page.locator(".actions .note").inner_text() in ("stopped", "ended early")


@pytest.mark.parametrize(
    ("stream", "shown", "notes", "error"),
    [
        ([], "(empty reply)", ["(empty reply)", ""], None),
        (["part"], "part", ["ended early"], "The stream ended early"),
        (["part", '{"error": {"message": "no memory"}}'], "part", ["ended early"], "no memory"),
    ],
)
def test_how_a_reply_ends_is_shown(
    browser: Any, stream: list[str], shown: str, notes: list[str], error: str | None
) -> None:
    def event(text: str) -> str:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        return text if text.startswith("{") else json.dumps({"choices": [choice]})

    lines = [*map(event, stream), *([] if stream else ["[DONE]"])]
    body = "".join(f"data: {line}\n\n" for line in lines)
    with served(FakeModel()) as site, opened(browser, site) as page:
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(content_type="text/event-stream", body=body),
        )
        send(page, "Hello")
        idle(page)
        page.wait_for_selector(".assistant .actions")
        for _ in range(2):
            assert replies(page) == [shown]
            assert page.locator(".assistant .note").all_inner_texts() == notes
            if error is not None:
                assert error in page.locator(".error .text").inner_text()
            page.reload()
            error = None


def test_only_the_last_blocks_of_a_reply_are_redrawn(browser: Any) -> None:
    text = "\n\n".join(f"paragraph {number} of a reply" for number in range(20))
    model = FakeModel(always_replies(text), step_s=0.001)
    with served(model) as site, opened(browser, site) as page:
        page.evaluate(
            """() => {
              window.changed = 0;
              const count = all => all.forEach(one => window.changed += one.addedNodes.length);
              new MutationObserver(count).observe(
                document.getElementById("log"), {childList: true, subtree: true});
            }"""
        )
        send(page, "Hello")
        idle(page)
        assert page.locator(".assistant p").count() == 20
        # a paragraph and its text for each token at most, and some for the message itself
        assert page.evaluate("window.changed") <= len(text) + 20
