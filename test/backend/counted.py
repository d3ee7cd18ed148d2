"""Realized random tensors, and how many kernels a result takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad import GlobalCounters, Tensor

Array = np.ndarray[Any, Any]


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(array(*shape, seed=seed)).realize()


def kernels(*results: Tensor) -> int:
    """How many kernels it takes to realize the results."""
    GlobalCounters.reset()
    Tensor.realize(*results)
    return GlobalCounters.kernel_count
