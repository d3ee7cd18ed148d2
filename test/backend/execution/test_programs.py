"""Programs of kernels in the disk cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Device, Tensor
from tinygrad.execution import programs
from tinygrad.execution.realize import get_runner
from tinygrad.execution.schedule import create_schedule
from tinygrad.renderer import Renderer, find_renderer
from tinygrad.settings import Context
from tinygrad.uop.ops import UOp
from tinygrad.uop.passes import observe_passes


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path) -> Iterator[None]:
    # verified passes run each time
    with Context(CACHEDIR=str(tmp_path), CACHELEVEL=programs.KEEPS_PROGRAMS, SPEC=0):
        yield


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """The kernels whose code is generated."""
    kernels: list[UOp] = []
    original = programs.generate_program

    def generate(ast: UOp, renderer: Renderer, device: str) -> object:
        kernels.append(ast)
        return original(ast, renderer, device)

    monkeypatch.setattr(programs, "generate_program", generate)
    return kernels


def kernel(size: int = 37) -> UOp:
    x, y = (Tensor(np.ones((size, size), np.float32)).realize() for _ in range(2))
    (item,) = create_schedule([((x @ y).relu() + x).uop]).items
    return item.ast  # type: ignore[union-attr]


def program(ast: UOp) -> object:
    device = Device.DEFAULT
    return programs.kernel_program(ast, find_renderer(Device[device].target), device)


def test_the_code_of_a_kernel_is_generated_once_for_all_processes(generated: list[UOp]) -> None:
    ast = kernel()
    assert program(ast) == program(ast)
    assert len(generated) == 1


def test_other_settings_and_sources_have_programs_of_their_own(
    generated: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    ast = kernel()
    with Context(NOOPT=1):
        plain = program(ast)
    assert program(ast) != plain
    monkeypatch.setattr(programs, "source_version", lambda: "another version")
    program(ast)
    assert len(generated) == 3


def test_passes_that_are_observed_run_each_time(generated: list[UOp]) -> None:
    ast = kernel()
    program(ast)
    with observe_passes(lambda _: None):
        program(ast)
    with Context(SPEC=1):
        program(ast)
    assert len(generated) == 3


def test_a_kept_program_computes_the_same(generated: list[UOp]) -> None:
    x = np.random.default_rng(0).standard_normal((11, 64)).astype(np.float32)

    def run() -> np.ndarray:
        with Context(SCHEDULE_CACHE=0):
            return Tensor(x).softmax().numpy()

    first = run()
    count = len(generated)
    get_runner.__globals__["_runners"].clear()
    np.testing.assert_array_equal(run(), first)
    assert count
    assert len(generated) == count


def test_targets_and_kernels_have_equal_keys_in_all_processes() -> None:
    code = (
        "from test.backend.execution.test_programs import kernel\n"
        "from tinygrad import Device\n"
        "print(Device['CPU'].target.key, kernel(21).key.hex())"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**programs.os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(keys) == 1
    assert keys != {""}
