"""Layers, optimizers, saved states and data sets.

In: sizes. Out: objects whose tensors are found by `nn.state.get_parameters` and whose call maps a
`Tensor` to a `Tensor`. Always true: a layer holds no device; its tensors are created on the default
one and moved by whoever owns the model (`x.to_(device)`, `x.shard_(devices, axis)`).
"""

from tinygrad.nn import datasets, optim, state
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
