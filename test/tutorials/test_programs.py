"""Programs of tutorials: the numbers they print are those of torch, on one device and on two, with
and without TinyJit.

Rounding differs between kernels by some units of the last place (1e-7). A step of training starts
from the differences of the one before, so a number may differ by more the later it is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tinygrad import Context

PROGRAMS = [
    import_module(f"test.tutorials.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem not in ("__init__", "common") and not path.stem.startswith("test_")
]
ONE, TWO = ("CPU",), ("CPU", "CPU:1")
FLOAT32_RTOL = 2e-5

# programs whose first `STEPS` numbers are losses of a model that sees the same data again
FITTED = ["char_lstm", "cnn", "ctc", "gpt"]
# the quick suite runs programs of several kinds of state
QUICK = ["diffusion"]


def name_of(program: ModuleType) -> str:
    return program.__name__.rpartition(".")[2]


def cases(quick: Sequence[str] = ()) -> list[Any]:
    """The programs as parameters, slow unless they are in `quick`."""
    return [
        pytest.param(program, marks=[] if name in quick else pytest.mark.slow, id=name)
        for program in PROGRAMS
        for name in [name_of(program)]
    ]


def assert_numbers_agree(
    program: ModuleType, found: Sequence[float], expected: Sequence[float]
) -> None:
    assert len(found) == len(expected)
    rtol = getattr(program, "RTOL", FLOAT32_RTOL)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        tolerance = rtol * (number + 1)
        np.testing.assert_allclose(one, other, tolerance, tolerance / 10, err_msg=f"at {number}")


@pytest.mark.slow
@pytest.mark.parametrize("program", cases(QUICK))
def test_captured_steps_on_two_devices_print_the_numbers_of_one_device(program):
    expected = program.train(ONE, jit=False)
    assert np.isfinite(expected).all()
    if name_of(program) in FITTED:
        assert expected[program.STEPS - 1] < expected[0]
    assert_numbers_agree(program, program.train(TWO, jit=True), expected)


@pytest.mark.parametrize("program", cases())
def test_steps_print_the_numbers_of_torch(program):
    pytest.importorskip("torch", reason="the reference is torch")
    assert_numbers_agree(program, program.train(ONE, jit=False), program.train_torch())


@pytest.mark.parametrize("program", cases())
def test_steps_on_two_devices_print_the_numbers_of_torch(program):
    pytest.importorskip("torch", reason="the reference is torch")
    assert_numbers_agree(program, program.train(TWO, jit=False), program.train_torch())


@pytest.mark.parametrize("devices", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("program", cases())
def test_captured_steps_print_the_numbers_of_torch(program, devices):
    pytest.importorskip("torch", reason="the reference is torch")
    assert_numbers_agree(program, program.train(devices, jit=True), program.train_torch())


@pytest.mark.parametrize("program", cases())
def test_replays_do_what_the_function_does(program):
    with Context(JIT_VERIFY=1):
        assert np.isfinite(program.train(TWO, jit=True)).all()
