"""Tests that fail in every way, for the test of what keeps their results: no suite has them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from test.hardware.intrinsics import Check
from test.hardware.run import run
from tinygrad import Tensor


def test_right() -> None:
    assert (Tensor([1, 2], device="CUDA") + 1).tolist() == [2, 3]


def test_wrong() -> None:
    assert (Tensor([1, 2], device="CUDA") * 3).tolist() == [3, 7]


def test_fault() -> None:
    """An error in a kernel, after which the device cannot be used."""
    run(Check("fault", "((int *)16)[t] = 1;", (), np.zeros(32, np.float32)), "CUDA")


def test_skipped() -> None:
    pytest.skip("for a reason")


def test_hang() -> None:
    time.sleep(1000)


def test_last() -> None:
    assert (Tensor([1, 2], device="CUDA") - 1).tolist() == [0, 1]
