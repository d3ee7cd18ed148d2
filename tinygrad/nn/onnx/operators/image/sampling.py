"""Sampling of images at the coordinates of a grid.

Coordinates range from -1, the start of an axis, to 1, its end, with the last axis first.
"""

from __future__ import annotations

import itertools

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array
from tinygrad.tensor import Tensor

CUBIC_A = -0.75
# an index along an axis, and its weight
Tap = tuple[Tensor, Tensor]
# offsets of the taps around a coordinate, from the element below it
STEPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}


@operator("AffineGrid")
def affine_grid(theta: Tensor, size: Array, *, align_corners: int = 0) -> Tensor:
    """The places (batch, *spatial, axes) that affine maps (batch, axes, axes + 1) move an even
    grid to; `size` is (batch, channels, *spatial).
    """
    spatial = [int(n) for n in size[2:]]
    count = len(spatial)
    columns = []
    for axis, n in reversed(list(enumerate(spatial))):
        step = Tensor.arange(n, dtype=theta.dtype)
        even = step * (2 / max(1, n - 1)) - 1 if align_corners else (step * 2 + 1) / n - 1
        shape = tuple(n if i == axis else 1 for i in range(count))
        columns.append(even.reshape(shape).expand(spatial).flatten())
    ones = Tensor.ones(prod(spatial), dtype=theta.dtype)
    base = columns[0].stack(*columns[1:], ones, dim=1)
    return (base @ theta.transpose(1, 2)).reshape((theta.shape[0], *spatial, count))


@operator("GridSample")
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """(batch, channels, *spatial) read at (batch, *new spatial, axes)."""
    mode = mode.removeprefix("bi")
    if mode not in STEPS or padding_mode not in ("zeros", "border", "reflection"):
        raise OnnxError(f"{mode=} or {padding_mode=} is unknown")
    sizes = [int(n) for n in x.shape[2:]]
    batch, places = int(x.shape[0]), prod(grid.shape[1:-1])
    taps = []
    for i, n in enumerate(sizes):
        place = grid[..., len(sizes) - 1 - i].reshape((batch, places)).float()
        place = (place + 1) / 2 * (n - 1) if align_corners else ((place + 1) * n - 1) / 2
        taps.append(axis_taps(place, n, mode, padding_mode, bool(align_corners)))
    found = interpolated(x, taps).permute(0, 2, 1)
    return found.reshape((*x.shape[:2], *grid.shape[1:-1])).cast(x.dtype)


def interpolated(x: Tensor, taps: list[list[Tap]]) -> Tensor:
    """The weighted sums (batch, places, channels) of x (batch, channels, *spatial) over all
    combinations of the taps (batch, places) of each axis, in float32.
    """
    batch, channels, *sizes = (int(n) for n in x.shape)
    table = x.flatten(2).permute(0, 2, 1).reshape((-1, channels))
    first = Tensor.arange(batch, dtype=dtypes.int32).reshape((batch, 1)) * prod(sizes)
    places = taps[0][0][0].shape[1]
    total = Tensor.zeros(batch, places, channels, dtype=dtypes.float32)
    for chosen in itertools.product(*taps):
        index, weight = first - first, Tensor.ones(batch, places)
        for n, (position, share) in zip(sizes, chosen):
            index, weight = index * n + position, weight * share
        total = total + table[index + first] * weight.unsqueeze(-1)
    return total


def axis_taps(place: Tensor, n: int, mode: str, padding: str, align: bool) -> list[Tap]:
    """The indices of the taps of each coordinate along an axis of `n`, and their weights."""
    below = place.round() if mode == "nearest" else place.floor()
    found = []
    for step in STEPS[mode]:
        position = below + step
        weight = tap_weight((position - place).abs(), mode)
        if padding == "zeros":
            weight = ((position >= 0) & (position < n)).where(weight, 0)
        if padding == "reflection":
            position = reflected(position, n, align)
        found.append((position.clamp(0, n - 1).cast(dtypes.int32), weight))
    return found


def tap_weight(distance: Tensor, mode: str) -> Tensor:
    """The weight of an element at this distance."""
    if mode == "nearest":
        return distance.ones_like()
    if mode == "linear":
        return 1 - distance
    a, d = CUBIC_A, distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return (d <= 1).where(near, far)


def reflected(position: Tensor, n: int, align: bool) -> Tensor:
    """Reflect coordinates at the ends of an axis: at the centres of the last elements if corners
    are aligned, otherwise at their outer edges.
    """
    span = n - 1 if align else n
    if span == 0:
        return position.zeros_like()
    shift = 0 if align else 0.5
    around = (position + shift).abs().mod(2 * span)
    return (around > span).where(2 * span - around, around) - shift
