"""Normalization over the batch, channels, groups of channels, or the last axes.

Statistics are those of `stash_type`, by default float32, and the result has the dtype of the input.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.layers.windows import LARGEST, Ints
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor


def along_channels(x: Tensor, like: Tensor) -> Tensor:
    """(channels,) so that it broadcasts against (batch, channels, *spatial)."""
    return x.reshape((1, -1, *(1,) * (like.ndim - 2)))


def statistics(x: Tensor, axes: Ints, epsilon: float) -> tuple[Tensor, Tensor]:
    """The mean over axes, which are kept, and one over the (biased) standard deviation."""
    mean = x.mean(axes, keepdim=True)
    variance = (x - mean).square().mean(axes, keepdim=True)
    return mean, (variance + epsilon).rsqrt()


@operator("BatchNormalization")
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor | tuple[Tensor, ...]:
    """By the given statistics; in training, by those of the batch, which update the given ones."""
    if not training_mode:
        invstd = (var + epsilon).rsqrt()
        return x.batchnorm(scale, b, mean, invstd).cast(x.dtype)
    axes = (0, *range(2, x.ndim))
    own_mean, own_var = x.mean(axes), x.var(axes, correction=0)
    result = x.batchnorm(scale, b, own_mean, (own_var + epsilon).rsqrt())
    moved = (
        old * momentum + new * (1 - momentum) for old, new in ((mean, own_mean), (var, own_var))
    )
    return (result.cast(x.dtype), *moved)


@operator("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    mean, invstd = statistics(x, tuple(range(2, x.ndim)), epsilon)
    return (x - mean) * invstd * along_channels(scale, x) + along_channels(b, x)


@operator("GroupNormalization")
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """`scale` and `bias` are one a channel, or, before opset 21, one a group."""
    channels = int(x.shape[1])
    if num_groups < 1 or channels % num_groups:
        raise OnnxError(f"num_groups={num_groups} does not divide the {channels} channels")
    grouped = x.cast(stash_dtype(x, stash_type)).reshape((x.shape[0], num_groups, -1))
    mean, invstd = statistics(grouped, (2,), epsilon)
    normal = ((grouped - mean) * invstd).reshape(x.shape).cast(x.dtype)
    if int(scale.shape[0]) != channels:
        scale, bias = (v.repeat_interleave(channels // num_groups) for v in (scale, bias))
    return normal * along_channels(scale, x) + along_channels(bias, x)


def stash_dtype(x: Tensor, code: int) -> DType:
    """The dtype in which statistics of `x` are computed."""
    return least_upper_dtype(x.dtype, dtype_of(code, "stash_type"))


def last_axes(x: Tensor, axis: int) -> Ints:
    """The axes from `axis` on. Raises OnnxError for an axis out of range."""
    if not -x.ndim <= axis < x.ndim:
        raise OnnxError(f"axis {axis} is out of range for an input of shape {x.shape}")
    return tuple(range(axis % x.ndim, x.ndim))


@operator("LayerNormalization")
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, the means, and one over the standard deviations."""
    wide = x.cast(stash_dtype(x, stash_type))
    mean, invstd = statistics(wide, last_axes(x, axis), epsilon)
    result = ((wide - mean) * invstd).cast(x.dtype) * scale
    return (result if b is None else result + b), mean, invstd


def root_mean_square_normalized(
    x: Tensor, scale: Tensor, axis: int, epsilon: float, stash_type: int
) -> tuple[Tensor, Tensor]:
    """The result, and one over the root mean square (arXiv:1910.07467)."""
    wide = x.cast(stash_dtype(x, stash_type))
    inverse = (wide.square().mean(last_axes(x, axis), keepdim=True) + epsilon).rsqrt()
    return ((wide * inverse).cast(x.dtype) * scale).cast(scale.dtype), inverse


@operator("RMSNormalization")
def rms_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return root_mean_square_normalized(x, scale, axis, epsilon, stash_type)[0]


@operator("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    return root_mean_square_normalized(x, scale, axis, epsilon, stash_type)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Tensor, *, axes: Ints = (0, 2, 3)) -> Tensor:
    mean, invstd = statistics(x, axes, 0.0)
    return (x - mean) * invstd


@operator("LpNormalization")
def norm_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Over its 1-norm or 2-norm along an axis; where that is 0, 0."""
    if p not in (1, 2):
        raise OnnxError(f"p is {p}, not 1 or 2")
    size = x.abs().sum(axis, keepdim=True) if p == 1 else x.square().sum(axis, keepdim=True).sqrt()
    return size.eq(0).where(0, x / size)


@operator("LRN")
def local_response_normalization(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """Over a power of the mean square of `size` channels around each."""
    if not 0 < size <= LARGEST:
        raise OnnxError(f"size is {size}, not 1 to {LARGEST}")
    flat = x.cast(least_upper_dtype(x.dtype, dtypes.float32)).square().flatten(2)
    around = ((size - 1) // 2, size // 2)
    mean = flat.transpose(1, 2).avg_pool2d((size,), 1, 1, around)
    divisor = (mean * alpha + bias).pow(beta).transpose(1, 2).reshape(x.shape)
    return (x / divisor).cast(x.dtype)
