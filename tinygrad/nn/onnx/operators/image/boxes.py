"""Boxes of detectors: suppression of overlapping ones, and features inside of regions.

How many boxes remain, and how many samples a region has if no ratio is given, depends on values, so
these are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array, as_array
from tinygrad.tensor import Tensor

HALF_PIXEL = "half_pixel"
OUTPUT_HALF_PIXEL = "output_half_pixel"


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    """Rows (batch, class, box) of the boxes that overlap none of a higher score by more than
    `iou_threshold`. Boxes are (batch, n, 4), scores (batch, classes, n).
    """
    limit = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.item())
    overlap = 0.0 if iou_threshold is None else float(iou_threshold.item())
    lowest = -math.inf if score_threshold is None else float(score_threshold.item())
    corners = corners_of(boxes.astype(np.float64), bool(center_point_box))
    found = []
    for batch, classes in enumerate(scores):
        for number, own in enumerate(classes):
            kept = selected(corners[batch], own, overlap, lowest)[:limit]
            found += [(batch, number, box) for box in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def corners_of(boxes: Array, has_center: bool) -> Array:
    """Boxes as minimum and maximum corners, from any two opposite corners or center and size."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if has_center:
        return np.concatenate([first - second / 2, first + second / 2], -1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def selected(corners: Array, scores: Array, overlap: float, lowest: float) -> list[int]:
    """The numbers of the boxes to keep, of the highest score first."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > lowest]
    kept = []
    while order.size:
        best, order = order[0], order[1:]
        kept.append(int(best))
        order = order[intersection_over_union(corners[best], corners[order]) <= overlap]
    return kept


def intersection_over_union(box: Array, others: Array) -> Array:
    """The share of the union that a box (4,) has in common with each of `others` (n, 4)."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides, 0).prod(-1)
    union = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(-1) - common
    share: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return share


@dataclass(frozen=True)
class Samples:
    """Positions along one axis of an image, (regions, bins * slots): the two pixels around each,
    and their weights. `is_used` tells which slots of a bin are samples, `count` how many are.
    """

    low: Tensor
    high: Tensor
    low_weight: Tensor
    high_weight: Tensor
    is_used: Tensor
    count: Tensor
    bins: int
    slots: int


def samples_along(start: Tensor, extent: Tensor, bins: int, ratio: int, size: int) -> Samples:
    """The samples of regions from `start` (regions, 1) along an axis of `size` pixels."""
    step = extent / bins
    count = step.ceil() if ratio == 0 else step.full_like(ratio)
    slots = max(1, int(as_array(count, "rois").max(initial=1))) if ratio == 0 else ratio
    slot = Tensor.arange(slots).float().reshape(1, 1, slots)
    place = Tensor.arange(bins).float().reshape(1, bins, 1) + (slot + 0.5) / count.unsqueeze(-1)
    position = (start.unsqueeze(-1) + place * step.unsqueeze(-1)).reshape(-1, bins * slots)
    is_inside = (position >= -1) & (position <= size)
    position = position.clip(0, size - 1)
    low = position.floor()
    high_weight = position - low
    return Samples(
        low=low.int(),
        high=(low + 1).minimum(size - 1).int(),
        low_weight=is_inside.where(1 - high_weight, 0),
        high_weight=is_inside.where(high_weight, 0),
        is_used=(slot < count.unsqueeze(-1)).expand(-1, bins, slots),
        count=count,
        bins=bins,
        slots=slots,
    )


@operator("RoiAlign")
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = HALF_PIXEL,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Features (regions, channels, output_height, output_width), interpolated at samples inside of
    each region (x1, y1, x2, y2) of its image of x (batch, channels, height, width).
    """
    if coordinate_transformation_mode not in (HALF_PIXEL, OUTPUT_HALF_PIXEL):
        raise OnnxError(f"coordinate_transformation_mode={coordinate_transformation_mode!r}")
    if mode not in ("avg", "max"):
        raise OnnxError(f"mode={mode!r} is neither avg nor max")
    is_exact = coordinate_transformation_mode == HALF_PIXEL
    corners = rois.float() * spatial_scale - (0.5 if is_exact else 0.0)
    extents = corners[:, 2:] - corners[:, :2]
    extents = extents if is_exact else extents.maximum(1)
    height, width = int(x.shape[2]), int(x.shape[3])
    rows = samples_along(corners[:, 1:2], extents[:, 1:], output_height, sampling_ratio, height)
    columns = samples_along(corners[:, :1], extents[:, :1], output_width, sampling_ratio, width)
    found = weighted_corners(x, batch_indices, rows, columns)
    sizes = (rows.bins, rows.slots, columns.bins, columns.slots, x.shape[1])
    is_used = rows.is_used.unsqueeze(-1).unsqueeze(-1) & columns.is_used.unsqueeze(1).unsqueeze(1)
    is_used = is_used.unsqueeze(-1)
    if mode == "max":
        # as the specification has it, of the weighted pixels
        largest = found.max(0).reshape(-1, *sizes)
        result = is_used.where(largest, -math.inf).max((2, 4))
    else:
        total = is_used.where(found.sum(0).reshape(-1, *sizes), 0).sum((2, 4))
        result = total / (rows.count * columns.count).reshape(-1, 1, 1, 1)
    return result.permute(0, 3, 1, 2).cast(x.dtype)


def weighted_corners(x: Tensor, batch_indices: Tensor, rows: Samples, columns: Samples) -> Tensor:
    """The four pixels around each sample, times their weights: (4, regions, rows, columns,
    channels).
    """
    images, batch = x.permute(0, 2, 3, 1), batch_indices.reshape(-1, 1, 1)
    parts = []
    for row, row_weight in ((rows.low, rows.low_weight), (rows.high, rows.high_weight)):
        for column, weight in (
            (columns.low, columns.low_weight),
            (columns.high, columns.high_weight),
        ):
            pixels = images[batch, row.unsqueeze(2), column.unsqueeze(1)]
            weights = row_weight.unsqueeze(2) * weight.unsqueeze(1)
            parts.append(pixels * weights.unsqueeze(-1))
    return Tensor.stack(*parts)
