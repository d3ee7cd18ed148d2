"""Whole programs on emulated GPUs: they print the values that the CPU computes."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.llm.tiny_models import write_model
from test.llm.vocabularies import BYTES_AS_TOKENS
from test.test_examples import EXAMPLES, MNIST, SHARDING, plain_digits
from tinygrad import Device, Tensor
from tinygrad.nn import datasets
from tinygrad.settings import cached_getenv

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("emulated_driver")]
ROOT = EXAMPLES.parent
# the losses of both devices differ by the order in which they add
RTOL = 1e-3
PROMPT = ("--raw", "--prompt", "Hello", "--temperature", "0", "--max-tokens", "6")


def on_both(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> tuple[Any, Any]:
    """What a program returns with emulated GPUs and the CPU as the default device."""
    found = []
    for device in ("CUDA", "CPU"):
        monkeypatch.setattr(Device, "_default", device)
        Tensor.manual_seed(1)
        found.append(run())
    return found[0], found[1]


@pytest.fixture
def small_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples take two steps of few images of synthetic digits."""
    monkeypatch.setattr(datasets, "mnist", lambda: plain_digits(count=32 + 32))
    monkeypatch.syspath_prepend(EXAMPLES)
    for name, value in {"BS": "16", "STEPS": "2"}.items():
        monkeypatch.setenv(name, value)
    cached_getenv.cache_clear()


@pytest.mark.usefixtures("small_examples")
@pytest.mark.parametrize("name", MNIST)
def test_mnist_has_the_loss_and_the_accuracy_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def run() -> tuple[list[float], set[str]]:
        end = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return [end["loss"].item(), end["get_test_acc"]().item()], devices_of(end["loss"])

    (gpu, on), (cpu, _) = on_both(monkeypatch, run)
    assert all(device.startswith("CUDA") for device in on)
    np.testing.assert_allclose(gpu, cpu, rtol=RTOL)


def devices_of(x: Tensor) -> set[str]:
    """The names of the devices of a tensor."""
    return {x.device} if isinstance(x.device, str) else set(x.device)


@pytest.mark.usefixtures("small_examples")
@pytest.mark.parametrize("name", [name for name, _ in SHARDING])
def test_an_example_of_sharding_has_the_losses_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def run() -> list[float]:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        output = capsys.readouterr().out
        rows = re.findall(r"^ +\d+ +(\d+\.\d+) +(\d+\.\d+)$", output, re.MULTILINE)
        return [float(loss) for row in rows for loss in row]

    gpu, cpu = on_both(monkeypatch, run)
    assert len(cpu) == 4
    np.testing.assert_allclose(gpu, cpu, rtol=RTOL)


@pytest.mark.parametrize("shards", ["1", "3"])
def test_a_language_model_replies_as_on_the_cpu(tmp_path: Path, shards: str) -> None:
    path = write_model(tmp_path / "model.gguf", "llama", tokenizer=BYTES_AS_TOKENS)
    program = ["-m", "tinygrad.apps.llm", "-m", str(path), *PROMPT, "--shard", shards]
    replies = [
        output_of(*start, *program, "--device", device)
        for start, device in (((), "CPU"), (("-m", "test.emulator"), "CUDA"))
    ]
    assert replies[0]
    assert replies[0] == replies[1]


def test_a_program_runs_with_its_arguments_on_the_devices_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys, tinygrad\nd = tinygrad.Device\nprint(sys.argv, d.count('CUDA'))")
    shown = output_of("-m", "test.emulator", "--devices", "3", str(script), "--mode", "x")
    assert shown == f"{[str(script), '--mode', 'x']} 3\n"


def output_of(*arguments: str) -> str:
    """What a Python program prints. It must not fail."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SHARDED_STEP = """
import numpy as np
from tinygrad import CommTrace, Device, Tensor, TinyJit

names = tuple(f"CUDA:{number}" for number in range(4))
w = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8)).shard(names, 0).realize()
step = TinyJit(lambda x: (x @ w).relu().sum(0).realize())
with Device.topology(names) as topology, CommTrace() as trace:
    for number in range(4):
        values = np.arange(32, dtype=np.float32).reshape(4, 8) - number
        found = step(Tensor(values).shard(names, 1).realize()).numpy()
        assert np.array_equal(found, np.maximum(values @ w.numpy(), 0).sum(0))
algorithms = {record.algorithm for record in trace.records if record.kind == "all_reduce"}
print({Device[name].gpu.ordinal for name in names}, topology.nccl, algorithms)
"""


@pytest.mark.parametrize("mode", ["forwards", "backwards"])
def test_several_logical_devices_of_one_gpu_run_a_sharded_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    monkeypatch.setenv("DEVICES_PER_GPU", "4")
    program = tmp_path / "step.py"
    program.write_text(SHARDED_STEP)
    found = output_of("-m", "test.emulator", "--devices", "1", "--mode", mode, str(program))
    assert found == "{0} False {'peer'}\n"
