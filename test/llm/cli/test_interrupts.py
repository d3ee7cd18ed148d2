"""Control-C while the program starts: one line and the exit status of an interrupt.

A `sitecustomize` interrupts a process when it opens a file or imports a module.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from test.llm.tiny_models import write_model
from test.llm.vocabularies import BYTES_AS_TOKENS

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240
INTERRUPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
def hook(event, arguments):
    if event == os.environ["EVENT"] and str(arguments[0]).endswith(os.environ["ARGUMENT"]):
        os.environ["EVENT"] = "no more"
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for `PYTHONPATH`, and for a model."""
    pytest.importorskip("llguidance")
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT)
    return tmp_path


def interrupted(
    folder: Path, event: str, argument: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that is interrupted at an audit event with an argument."""
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "EVENT": event, "ARGUMENT": argument},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize(
    "module",
    [
        "tinygrad.dtype",
        pytest.param("tinygrad.tensor", marks=pytest.mark.slow),
        pytest.param("tinygrad.apps.language.cli.main", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_of_imports_is_one_line(folder: Path, module: str) -> None:
    done = interrupted(folder, "import", module, "-m", "tinygrad.apps.llm", "--list")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "interrupted\n")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("event", "argument"),
    [("open", "model.gguf"), pytest.param("import", "llguidance", marks=pytest.mark.slow)],
)
def test_an_interrupt_while_a_model_loads_is_one_line(
    folder: Path, event: str, argument: str
) -> None:
    model = write_model(folder / "model.gguf", "llama", tokenizer=BYTES_AS_TOKENS)
    program = ("-m", "tinygrad.apps.llm", "-m", str(model), "--raw", "--json", "--prompt", "Hi")
    done = interrupted(folder, event, argument, *program)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["import tinygrad.tensor", "import tinygrad, other"])
def test_programs_of_others_show_where_they_were_interrupted(folder: Path, program: str) -> None:
    (folder / "program.py").write_text(program)
    for arguments in (("-c", program), ("-m", "program")):
        done = interrupted(folder, "import", program.rpartition(" ")[2], *arguments)
        assert done.returncode == -signal.SIGINT
        assert "Traceback" in done.stderr and "KeyboardInterrupt" in done.stderr
