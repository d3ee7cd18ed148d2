"""`python -m tinygrad.device`: devices found, what to install for others, and their checks."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tinygrad.apps import device_report
from tinygrad.device import Device, DeviceError
from tinygrad.tensor import Tensor
from tinygrad.text import ansistrip

SMALL = ["--size", "32", "--bytes", "4096"]


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = device_report.main([*SMALL, *arguments])
    return code, ansistrip(capsys.readouterr().out).splitlines()


def test_every_kind_is_found_or_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = type(Device)
    open_device = registry.__getitem__

    def fail(self: Any, name: str) -> Any:
        if name.startswith("CUDA"):
            raise DeviceError(f"{name} needs the Python package cuda-bindings: pip install it")
        return open_device(self, name)

    monkeypatch.setattr(registry, "__getitem__", fail)
    monkeypatch.setattr(registry, "count", lambda self, kind: 1)
    monkeypatch.setattr(registry, "known", lambda self: ["CPU", "CUDA", "DISK", "NPY", "NULL"])
    code, lines = report(capsys)
    assert code == 0, "a device that this machine lacks is no error"
    text = "\n".join(lines)
    assert "CUDA     not found: CUDA needs the Python package cuda-bindings: pip" in text
    assert "NPY      holds data" in text and "NULL     computes nothing" in text
    assert [line.split()[:2] for line in lines if " ok " in line] == [
        ["product", "ok"],
        ["reduction", "ok"],
        ["copy", "ok"],
        ["host", "ok"],
    ]
    assert "DISK" not in text
    assert report(capsys, "CUDA")[0] == 1, "one that is asked for by name is"


@pytest.mark.slow
def test_the_command_reports_a_device() -> None:
    command = [sys.executable, "-m", "tinygrad.device", "NPY"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("NPY      holds data, and runs no kernels\ndefault device: ")
    assert done.stderr == ""


def test_a_closed_pipe_ends_the_report() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tinygrad.device", "NPY"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_wrong_value_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "__matmul__", lambda x, y: x + y)
    code, lines = report(capsys, "CPU")
    assert code == 1
    assert [line.split()[1] for line in lines[1:5]] == ["WRONG", "ok", "ok", "ok"]


@pytest.mark.parametrize("error", [DeviceError, ModuleNotFoundError])
def test_a_device_that_stops_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def stop(self: Tensor, other: Tensor) -> Tensor:
        raise error("an illegal address")

    monkeypatch.setattr(Tensor, "__matmul__", stop)
    code, lines = report(capsys, "CPU")
    assert code == 1
    name, state, reason = lines[1].split(maxsplit=2)
    assert (name, state, reason) == ("stopped", "WRONG", f"{error.__name__}: an illegal address")
