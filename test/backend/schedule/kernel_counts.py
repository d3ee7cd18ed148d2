"""Helpers: realized random tensors, and the number of kernels of a result."""

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
    """The number of kernels that realizing the results takes."""
    GlobalCounters.reset()
    Tensor.realize(*results)
    return GlobalCounters.kernel_count
