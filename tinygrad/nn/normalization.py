"""Normalization layers: mean 0 and variance 1 over some axes.

They differ only in the axes: the batch (`BatchNorm`), the last axes (`LayerNorm`, `RMSNorm`), or
the positions of some channels of one sample (`GroupNorm`, `InstanceNorm`). Under data parallelism
the statistics are those of the global batch: a mean over a sharded axis is a global mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.mixin.creation import known_sizes
from tinygrad.mixin.precision import in_float32
from tinygrad.nn.inputs import Axis, check_input
from tinygrad.tensor import Tensor


class BatchNorm:
    """Normalizes each channel over batch and positions: (batch, sz, ...) to the same shape.

    While `Tensor.training`, it uses the statistics of the batch and updates `running_mean` and
    `running_var` (both (sz,)) by `momentum`; otherwise it uses the running ones. Then it multiplies
    by `weight` and adds `bias`, both (sz,), if `affine`. With `track_running_stats=False` it always
    uses the statistics of the batch. https://arxiv.org/abs/1502.03167

    >>> layer = nn.BatchNorm(2)
    >>> with Tensor.train():
    ...     layer(Tensor([[1.0, 10.0], [3.0, 30.0]])).numpy().round(3)
    array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    >>> layer.running_mean.numpy().round(3), layer.num_batches_tracked.item()
    (array([0.2, 2. ], dtype=float32), 1)
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ) -> None:
        self.eps, self.momentum = eps, momentum
        self.track_running_stats = track_running_stats
        self.weight = Tensor.ones(sz) if affine else None
        self.bias = Tensor.zeros(sz) if affine else None
        self.num_batches_tracked = Tensor.zeros(dtype=dtypes.long, requires_grad=False)
        if track_running_stats:
            self.running_mean = Tensor.zeros(sz, requires_grad=False)
            self.running_var = Tensor.ones(sz, requires_grad=False)

    def _channels(self) -> Axis:
        sizes = self.weight if self.weight is not None else getattr(self, "running_mean", None)
        return "channels" if sizes is None else sizes.shape[0]

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the (biased) variance of each channel, each (sz,).

        >>> layer = nn.BatchNorm(1, track_running_stats=False)
        >>> [x.item() for x in layer.calc_stats(Tensor([[1.0], [3.0]]))]
        [2.0, 1.0]
        """
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        axes = tuple(axis for axis in range(x.ndim) if axis != 1)
        mean = x.mean(axis=axes)
        return mean, x._variance_about(mean, axes)

    def __call__(self, x: Tensor) -> Tensor:
        check_input("BatchNorm", x, "batch", self._channels(), ...)
        mean, variance = self.calc_stats(_widened(x))
        operands = [x, self.weight, self.bias]
        if self.track_running_stats and Tensor.training:
            self._track(mean.detach(), variance.detach(), x.numel() // x.shape[1])
        elif self.track_running_stats:
            operands += [mean, variance]
        invstd = (_widened(variance) + self.eps).rsqrt()
        result = x.batchnorm(self.weight, self.bias, mean, invstd)
        return result.cast(least_upper_dtype(*(y.dtype for y in operands if y is not None)))

    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Update the running statistics; `count` values a channel unbias the variance."""
        keep, unbiased = 1 - self.momentum, count / max(count - 1, 1)
        mean = keep * self.running_mean + self.momentum * mean
        self.running_mean.assign(mean.cast(self.running_mean.dtype))
        variance = keep * self.running_var + self.momentum * unbiased * variance
        self.running_var.assign(variance.cast(self.running_var.dtype))
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)


BatchNorm2d = BatchNorm3d = BatchNorm


class GroupNorm:
    """Normalizes each sample over positions and the channels of one group, for `num_groups` groups.

    (batch, num_channels, ...) to the same shape; `weight` and `bias` are (num_channels,) if
    `affine`. Raises ValueError if the groups do not divide the channels, and for an input with
    other channels. https://arxiv.org/abs/1803.08494

    >>> nn.GroupNorm(2, 4)(Tensor([[1.0, 3.0, 10.0, 30.0]])).numpy().round(3)
    array([[-1.,  1., -1.,  1.]], dtype=float32)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        num_groups, num_channels = known_sizes((num_groups, num_channels))
        if num_groups == 0 or num_channels % num_groups:
            raise ArgumentError(
                f"num_groups={num_groups} must divide num_channels={num_channels}; "
                "the channels are normalized in groups of equal size"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Tensor.ones(num_channels) if affine else None
        self.bias = Tensor.zeros(num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        check_input("GroupNorm", x, "batch", self.num_channels, ...)
        return _normalized_channels(x, self.num_groups, self.eps, self.weight, self.bias)


class InstanceNorm:
    """Normalizes each channel of each sample: (batch, num_features, ...) to the same shape.

    `weight` and `bias` are (num_features,) if `affine`. https://arxiv.org/abs/1607.08022

    >>> nn.InstanceNorm(2)(Tensor([[[1.0, 3.0], [10.0, 30.0]]])).numpy().round(3)
    array([[[-1.,  1.],
            [-1.,  1.]]], dtype=float32)
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        self.num_features, self.eps = num_features, eps
        self.weight = Tensor.ones(num_features) if affine else None
        self.bias = Tensor.zeros(num_features) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        check_input("InstanceNorm", x, "batch", self.num_features, ...)
        return _normalized_channels(x, self.num_features, self.eps, self.weight, self.bias)


class LayerNorm:
    """Normalizes over the last axes, whose sizes are `normalized_shape`: (..., *normalized_shape).

    `weight` and `bias` are of `normalized_shape` if `elementwise_affine`. Raises ValueError if the
    input ends in other sizes. https://arxiv.org/abs/1607.06450

    >>> nn.LayerNorm(2)(Tensor([[1.0, 3.0], [10.0, 30.0]])).numpy().round(3)
    array([[-1.,  1.],
           [-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        sizes = normalized_shape if isinstance(normalized_shape, Sequence) else (normalized_shape,)
        self.normalized_shape = known_sizes(tuple(sizes))
        self.axis = tuple(-1 - i for i in range(len(self.normalized_shape)))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
        self.bias = Tensor.zeros(*self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        check_input("LayerNorm", x, ..., *self.normalized_shape)
        return _normalized(x, self.axis, self.eps, self.weight, self.bias)


class LayerNorm2d(LayerNorm):
    """`LayerNorm` over the channels of images: (batch, channels, height, width).

    >>> nn.LayerNorm2d(2)(Tensor([1.0, 3.0]).reshape(1, 2, 1, 1)).flatten().numpy().round(3)
    array([-1.,  1.], dtype=float32)
    """

    def __call__(self, x: Tensor) -> Tensor:
        check_input("LayerNorm2d", x, "batch", *self.normalized_shape, "height", "width")
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
    """Divides by the root mean square over the last axis, of size `dim`: (..., dim).

    Computed in float32; then multiplied by `weight`, (dim,), if `elementwise_affine`.
    https://arxiv.org/abs/1910.07467

    >>> nn.RMSNorm(2)(Tensor([1.0, 7.0])).numpy().round(3)
    array([0.2, 1.4], dtype=float32)
    """

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.eps = eps
        self.weight = Tensor.ones(dim) if elementwise_affine else None

    def _norm(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

    def __call__(self, x: Tensor) -> Tensor:
        check_input("RMSNorm", x, ..., "dim" if self.weight is None else self.weight.shape[0])
        normalized = self._norm(x.float()).cast(x.dtype)
        return normalized if self.weight is None else normalized * self.weight


def _widened(x: Tensor) -> Tensor:
    """Narrow floats as float32."""
    return x.cast(least_upper_dtype(x.dtype, dtypes.float32))


@in_float32
def _normalized(
    x: Tensor, axis: tuple[int, ...], eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """`layernorm` over `axis`, then `* weight + bias` where given."""
    x = x.layernorm(axis=axis, eps=eps)
    return x if weight is None or bias is None else x * weight + bias


@in_float32
def _normalized_channels(
    x: Tensor, groups: int, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """`layernorm` of each of `groups` groups of channels, then a scale and a bias of each channel.

    Axes after the channels keep their places, so that sharded ones stay where they are.
    """
    shape = (-1, *(1,) * (x.ndim - 2))
    grouped = x.reshape((x.shape[0], groups, -1, *x.shape[2:]))
    x = grouped.layernorm(tuple(range(2, grouped.ndim)), eps).reshape(x.shape)
    if weight is None or bias is None:
        return x
    return x * weight.reshape(shape) + bias.reshape(shape)
