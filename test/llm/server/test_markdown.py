"""Markdown of replies to elements, in a JavaScript engine with a stand-in for the DOM.

What a browser makes of the elements is tested in `test_page`, where there is a browser.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.llm.bad_requests import MARKUP_ATTACKS
from tinygrad.apps.language.server.page import page_file

quickjs = pytest.importorskip("quickjs")

FUNCTIONS = """
function rendered(text) {
  const place = document.createElement("div");
  new MarkdownView(place).update(text);
  return htmlOf(place);
}
// the text as it grows: what is shown at the end, and how many elements of blocks were made
function streamed(parts) {
  const place = document.createElement("div");
  const view = new MarkdownView(place);
  const seen = new Set();
  let text = "";
  for (const part of JSON.parse(parts)) {
    view.update(text += part);
    place.childNodes.forEach(node => seen.add(node));
  }
  return JSON.stringify([htmlOf(place), seen.size]);
}
"""
TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "blockquote", "ul", "ol", "li", "pre", "code"),
    *("table", "tr", "th", "td", "a", "strong", "em", "del"),
}


@pytest.fixture(scope="module")
def engine() -> Any:
    stand_in = (Path(__file__).parent / "stand_in_dom.js").read_text()
    context = quickjs.Context()
    context.eval(stand_in + page_file("markdown.js") + FUNCTIONS)
    context.set_time_limit(10)
    return context


def render(engine: Any, text: str) -> str:
    found: str = engine.get("rendered")(text)
    return found


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a *b* **c _d_** ~~e~~", "<p>a <em>b</em> <strong>c <em>d</em></strong> <del>e</del></p>"),
        ("snake_case_name 2*3*4 ** *", "<p>snake_case_name 2<em>3</em>4 ** *</p>"),
        ("`a<b` ``c`d`` `open", "<p><code>a&#60;b</code> <code>c`d</code> `open</p>"),
        (r"\*no\* \\", r"<p>*no* \</p>"),
        ("# A #\ntext\n## B", "<h1>A</h1><p>text</p><h2>B</h2>"),
        ("#tag\n\n---", "<p>#tag</p><hr></hr>"),
        ("```py\n*a*\n\n# b\n```\nend", "<pre><code>*a*\n\n# b</code></pre><p>end</p>"),
        ("~~~\nopen", "<pre><code>open</code></pre>"),
        ("- a\n- b\n  - c\n\n3. d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"),
        ("2. a\n\n   more\n3. b", '<ol start="2"><li>a<p>more</p></li><li>b</li></ol>'),
        ("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"),
        (
            "a|b\n-|-\n1|*2*|3",
            "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td><em>2</em></td></tr></table>",
        ),
        ("a | b\nno table", "<p>a | b\nno table</p>"),
    ],
)
def test_markdown_becomes_elements(engine: Any, text: str, html: str) -> None:
    assert render(engine, text) == html


def test_links_lead_to_web_sites_only(engine: Any) -> None:
    safe = 'rel="noopener noreferrer" target="_blank"'
    for text in ("[*a*](http://x.y/z_(q)_1)", '[*a*](<http://x.y/z_(q)_1> "b")'):
        assert render(engine, text) == f'<p><a href="http://x.y/z_(q)_1" {safe}><em>a</em></a></p>'
    shown = render(engine, "![alt](https://x.y/a.png), see https://x.y/q?a=b_c_d.")
    assert shown == (
        f'<p><a href="https://x.y/a.png" {safe}>alt</a>, see '
        f'<a href="https://x.y/q?a=b_c_d" {safe}>https://x.y/q?a=b_c_d</a>.</p>'
    )
    for url in (
        "javascript:alert(1)",
        " javascript:a",
        "java\tscript:a",
        "data:text/html,a",
        "/v1",
    ):
        assert "<a" not in render(engine, f"[a]({url}) <{url}>")


class Checker(HTMLParser):
    """Collects what is not allowed, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        url = fields.pop("href", None) or "https://"
        start = fields.pop("start", None) or "1"
        link = {"rel": "noopener noreferrer", "target": "_blank"} if tag == "a" else {}
        is_safe = url.lower().startswith(("http://", "https://", "mailto:")) and start.isdecimal()
        if tag not in TAGS or not is_safe or fields != link:
            self.wrong.append(str(self.get_starttag_text()))

    def handle_data(self, data: str) -> None:
        self.text += data


def check(engine: Any, text: str) -> Checker:
    checker = Checker()
    checker.feed(render(engine, text))
    checker.close()
    assert not checker.wrong
    return checker


@pytest.mark.parametrize("attack", MARKUP_ATTACKS)
def test_no_reply_makes_markup(engine: Any, attack: str) -> None:
    table = f"|{attack}|b|\n|-|-|\n|{attack}|"
    for text in (attack, f"- {attack}", f"> **{attack}**", table, f"# {attack}"):
        check(engine, text)


MARKS = ["*", "**", "_", "`", "```", "~~", "# ", "- ", "1. ", "> ", "|", "\n", "\n\n", "  ", "\\"]
MARKS += [
    "|-|-|",
    "---",
    "[",
    "](",
    ")",
    "!",
    "<",
    ">",
    "http://a.b",
    "javascript:",
    "a",
    "b c",
    "é",
]
PARTS = st.sampled_from([*MARKS, *MARKUP_ATTACKS[:4]])


@settings(deadline=None)
@given(st.lists(PARTS, max_size=25))
def test_any_text_is_safe_and_grows_to_what_it_is(engine: Any, parts: list[str]) -> None:
    text = "".join(parts)
    shown = check(engine, text).text
    # letters are never lost, except of links, the languages of code, and cells without a column
    if not any(mark in text for mark in ("](", "```", "|")):
        assert [x for x in shown if x in "cé"] == [x for x in text if x in "cé"]
    streamed, _ = json.loads(engine.get("streamed")(json.dumps(parts)))
    assert streamed == render(engine, text)


def test_only_blocks_that_change_are_made_again(engine: Any) -> None:
    blocks = 40
    words = [f"word{number} " for _ in range(blocks) for number in range(9)] + ["end"]
    words[8::9] = ["\n\n"] * blocks
    html, made = json.loads(engine.get("streamed")(json.dumps(words)))
    assert html.count("<p>") == blocks + 1
    # a paragraph is made again for each of its words, and never for those of others
    assert made <= len(words)


LONG = ["[", "*a ", "``a` ", "http://", "> ", "- ", "_a", "a|", "# ", "![", "<", "**", "`", "~~~ "]


@pytest.mark.sample(4)
@pytest.mark.parametrize("part", LONG)
def test_no_text_takes_long(engine: Any, part: str) -> None:
    for text in (part * 20_000, (part + "\n") * 5_000):
        # the engine stops after 10 s, and is much slower than that of a browser
        render(engine, text)
