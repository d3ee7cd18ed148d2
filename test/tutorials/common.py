"""Initial weights and data that do not depend on a library's random numbers.

Input: the names and shapes of parameters, seeds. Output: numpy arrays, equal here and in torch.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tinygrad import Tensor
from tinygrad.nn.state import get_state_dict

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def initial(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The initial value of a parameter: weights of variance 1 / (inputs of an output), small
    biases, scales near 1.
    """
    drawn = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) > 1:
        drawn = drawn / np.sqrt(np.prod(shape[1:]))
    elif name.endswith("weight"):
        drawn = 1 + 0.1 * drawn
    else:
        drawn = 0.1 * drawn
    return np.asarray(drawn, np.float32)


def initialize(model: Any, devices: tuple[str, ...]) -> Any:
    """Give a model its initial parameters, and replicate it over several devices."""
    for name, parameter in get_state_dict(model).items():
        if not name.endswith(BUFFERS):
            parameter.assign(Tensor(initial(name, parameter.shape)))
        if len(devices) > 1:
            parameter.shard_(devices)
    return model


def initialize_torch(model: Any) -> Any:
    """Give a torch module its initial parameters."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(initial(name, tuple(parameter.shape))))
    return model


def shard(x: np.ndarray, devices: tuple[str, ...], axis: int | None = 0) -> Tensor:
    """A batch on one device, or sharded over several."""
    return Tensor(x) if len(devices) == 1 else Tensor(x).shard(devices, axis)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Integers from 0 to `high` - 1."""
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.int32)
