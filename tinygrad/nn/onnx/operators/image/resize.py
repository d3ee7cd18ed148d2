"""Resize images and signals, one axis at a time.

The source indices and weights of each output element follow from sizes alone: numpy computes them,
and tensors only gather and add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.layers.windows import LARGEST
from tinygrad.nn.onnx.operators.tensor.movement import axis_of
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array, as_tensor
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike

Ints = tuple[int, ...]


@dataclass(frozen=True)
class ResizeRule:
    """How an axis is resized: the attributes of Resize."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float
    antialias: bool
    exclude_outside: bool


@dataclass(frozen=True)
class AxisResize:
    """One axis: `old` elements to `new`, `scale` times as many; `start` to `end` of it is taken."""

    old: int
    new: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@operator("Resize")
def resize(
    x: Tensor,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int = 0,
    axes: Ints = (),
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    device: DeviceLike,
) -> Tensor:
    """New sizes are given, or old ones times `scales`."""
    names = [axis_of(axis, x.ndim) for axis in axes or range(x.ndim)]
    old = [int(x.shape[axis]) for axis in names]
    plans = axis_plans(old, scales, sizes, keep_aspect_ratio_policy)
    if mode not in ("nearest", "linear", "cubic"):
        raise OnnxError(f"mode is {mode!r}, not nearest, linear or cubic")
    if any(not 0 <= plan.new <= LARGEST for plan in plans):
        new = [plan.new for plan in plans]
        raise OnnxError(f"new sizes {new} are out of range; use 0 to {LARGEST}")
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    if crops:
        plans = cropped(plans, roi)
    rule = ResizeRule(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(antialias),
        bool(exclude_outside),
    )
    result = x
    for axis, plan in zip(names, plans):
        if plan.old != plan.new or plan.scale != 1 or crops:
            result = resized(result, axis, plan, rule, device)
        if crops:
            mask = broadcast_along(as_tensor(is_inside(plan, rule), device), axis, x.ndim)
            result = mask.where(result, extrapolation_value)
    return result.cast(x.dtype)


def cropped(plans: list[AxisResize], roi: Array | None) -> list[AxisResize]:
    """The plans with the region of interest: the starts of all axes, and then their ends."""
    if roi is None or roi.size != 2 * len(plans):
        raise OnnxError("tf_crop_and_resize needs roi, a start and an end for each axis")
    bounds = zip(plans, roi[: len(plans)].tolist(), roi[len(plans) :].tolist())
    return [replace(plan, start=start, end=end) for plan, start, end in bounds]


def is_inside(plan: AxisResize, rule: ResizeRule) -> Array:
    """Which new elements come from within the old axis."""
    places = source_coordinates(plan, rule.coordinates)
    return (places >= 0) & (places <= plan.old - 1)


def axis_plans(
    old: list[int], scales: Array | None, sizes: Array | None, policy: str
) -> list[AxisResize]:
    """The new size and scale of each axis."""
    if scales is not None and scales.size:
        by = [float(scale) for scale in scales]
        if len(by) != len(old) or any(scale <= 0 for scale in by):
            raise OnnxError(f"scales {by} are not a positive number for each of the axes {old}")
        return [AxisResize(n, math.floor(n * scale), scale) for n, scale in zip(old, by)]
    if sizes is None or sizes.size != len(old):
        raise OnnxError(f"scales or sizes must be given, one for each of the axes {old}")
    new = [int(size) for size in sizes]
    if policy == "stretch":
        return [AxisResize(n, m, m / max(n, 1)) for n, m in zip(old, new)]
    if policy not in ("not_larger", "not_smaller"):
        raise OnnxError(f"keep_aspect_ratio_policy {policy!r} is unknown")
    pick = min if policy == "not_larger" else max
    scale = pick(m / n for n, m in zip(old, new))
    return [AxisResize(n, math.floor(scale * n + 0.5), scale) for n in old]


def source_coordinates(plan: AxisResize, mode: str) -> Array:
    """The source coordinate of each output element."""
    old, new, scale = plan.old, plan.new, plan.scale
    # the output size before rounding down
    exact = old * scale
    x = np.arange(new, dtype=np.float64)
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and new > 1):
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        offset = old / 2 * (1 - new / exact)
        return offset + (x + 0.5) / scale - 0.5
    if mode == "align_corners":
        return x * ((old - 1) / (exact - 1)) if new > 1 else x * 0
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        if new == 1:
            return x + 0.5 * (plan.start + plan.end) * (old - 1)
        step = (plan.end - plan.start) * (old - 1) / (new - 1)
        return plan.start * (old - 1) + x * step
    if mode == "pytorch_half_pixel":
        return x * 0
    raise OnnxError(f"coordinate_transformation_mode {mode!r} is unknown")


def broadcast_along(vector: Tensor, axis: int, ndim: int) -> Tensor:
    """A vector so that it broadcasts along one of `ndim` axes."""
    return vector.reshape(tuple(-1 if i == axis else 1 for i in range(ndim)))


def resized(x: Tensor, axis: int, plan: AxisResize, rule: ResizeRule, device: DeviceLike) -> Tensor:
    """Resize one axis."""
    places = source_coordinates(plan, rule.coordinates)
    if rule.mode == "nearest":
        found = np.clip(nearest(places, rule.nearest), 0, plan.old - 1)
        return gather_axis(x, axis, found, device)
    positions, weights = taps(places, plan, rule)
    total: Tensor | None = None
    wide = x if x.is_floating_point() else x.float()
    for k in range(positions.shape[1]):
        weight = as_tensor(weights[:, k].astype(np.float32), device).cast(wide.dtype)
        part = gather_axis(wide, axis, positions[:, k], device) * broadcast_along(
            weight, axis, x.ndim
        )
        total = part if total is None else total + part
    assert total is not None, "there is always an element to take"
    return total if x.is_floating_point() else total.round()


def gather_axis(x: Tensor, axis: int, positions: Array, device: DeviceLike) -> Tensor:
    """Gather along an axis; a uniform repetition is a view."""
    old, new = int(x.shape[axis]), len(positions)
    if new % old == 0 and (positions == np.arange(new) // (new // old)).all():
        return x.repeat_interleave(new // old, axis)
    index = as_tensor(positions.astype(np.int32), device)
    return x[(slice(None),) * axis + (index,)]


def nearest(places: Array, mode: str) -> Array:
    """Coordinates rounded to indices."""
    rounded = {
        "round_prefer_floor": np.ceil(places - 0.5),
        "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }
    if mode not in rounded:
        raise OnnxError(f"nearest_mode {mode!r} is not one of {', '.join(rounded)}")
    return rounded[mode].astype(np.int64)


def taps(places: Array, plan: AxisResize, rule: ResizeRule) -> tuple[Array, Array]:
    """The source indices and weights of each output element: (outputs, taps) each."""
    # downsampling widens the filter, against aliasing
    stretch = min(plan.scale, 1.0) if rule.antialias else 1.0
    reach = 1 if rule.mode == "linear" else 2
    start = math.floor(-reach / stretch) + 1
    below = np.floor(places)
    steps = np.arange(start, 2 - start)
    distance = np.abs((steps - (places - below)[:, None]) * stretch)
    if rule.mode == "linear":
        weights = np.clip(1 - distance, 0, 1)
    else:
        weights = cubic(distance, rule.cubic_a)
    positions = below[:, None].astype(np.int64) + steps
    if rule.exclude_outside:
        weights = np.where((positions >= 0) & (positions < plan.old), weights, 0)
    if rule.exclude_outside or rule.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(positions, 0, plan.old - 1), weights


def cubic(distance: Array, a: float) -> Array:
    """Weights of the cubic convolution (Keys, 1981)."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@operator("Upsample")
def upsample(x: Tensor, scales: Array, *, mode: str = "nearest", device: DeviceLike) -> Tensor:
    """The predecessor of Resize."""
    return resize(
        x,
        scales=scales,
        coordinate_transformation_mode="asymmetric",
        mode=mode,
        nearest_mode="floor",
        device=device,
    )
