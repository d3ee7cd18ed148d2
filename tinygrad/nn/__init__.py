"""Layers, optimizers, state dictionaries and data sets.

Input: sizes. Output: callable layers, whose tensors `nn.state.get_parameters` finds. Invariant: a
layer has no device; its tensors are created on the default device, and the owner of the model moves
them (`x.to_(device)`, `x.shard_(devices, axis)`).
"""

from typing import TYPE_CHECKING, Any

from tinygrad.nn import optim
from tinygrad.nn.convolution import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from tinygrad.nn.linear import Embedding, Linear
from tinygrad.nn.normalization import (
    BatchNorm,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)
from tinygrad.nn.recurrent import GRUCell, LSTMCell

if TYPE_CHECKING:
    from tinygrad.nn import datasets, state

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Embedding",
    "GRUCell",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "RMSNorm",
    "datasets",
    "optim",
    "state",
]


def __getattr__(name: str) -> Any:
    # imported on first use: formats of files and downloads need many modules
    if name == "datasets":
        import tinygrad.nn.datasets as module
    elif name == "state":
        import tinygrad.nn.state as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return module
