"""The windows of convolution and pooling, from attributes.

ONNX lists padding as all starts, then all ends; `Tensor.pad` takes it with the last axis first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinygrad.helpers import ceildiv
from tinygrad.nn.onnx.errors import OnnxError

Ints = tuple[int, ...]

# no model has larger ones, and all of them are listed when a graph is built
LARGEST = 1 << 20


@dataclass(frozen=True)
class Windows:
    """One entry for each spatial axis; `starts` and `ends` are the padding."""

    sizes: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    starts: Ints
    ends: Ints

    @property
    def padding(self) -> Ints:
        """The padding for `Tensor.pad`: (before, after) of each axis, the last axis first."""
        pairs = list(zip(self.starts, self.ends))
        return tuple(size for pair in reversed(pairs) for size in pair)

    @property
    def spans(self) -> Ints:
        """The extent of a window along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations))

    @property
    def counts(self) -> Ints:
        """How many windows fit along each padded axis."""
        axes = zip(self.sizes, self.starts, self.ends, self.spans, self.strides)
        return tuple((n + a + b - span) // s + 1 for n, a, b, span, s in axes)

    def with_whole_windows(self) -> Windows:
        """The windows with end padding that completes the last window (ceil mode)."""
        rest = [
            size + start + end - span
            for size, start, end, span in zip(self.sizes, self.starts, self.ends, self.spans)
        ]
        counts = [
            ceildiv(r, s) - (ceildiv(r, s) * s >= size + start)
            for r, s, size, start in zip(rest, self.strides, self.sizes, self.starts)
        ]
        ends = [
            end + max(0, n * s - r) for end, n, s, r in zip(self.ends, counts, self.strides, rest)
        ]
        return replace(self, ends=tuple(ends))


def per_axis(name: str, values: Ints, count: int, default: int) -> Ints:
    """`values`, or the default for each of `count` axes. Raises OnnxError for another number."""
    if not values:
        return (default,) * count
    if len(values) != count:
        raise OnnxError(f"{name} is {values}, and there are {count} spatial axes")
    return values


def find_windows(
    sizes: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str
) -> Windows:
    """The windows of a node's attributes; an empty attribute is its default."""
    count = len(sizes)
    if not kernel:
        raise OnnxError("attribute kernel_shape is missing")
    kernel = per_axis("kernel_shape", kernel, count, 1)
    strides = per_axis("strides", strides, count, 1)
    dilations = per_axis("dilations", dilations, count, 1)
    if any(x < 1 for x in (*kernel, *strides, *dilations)):
        raise OnnxError(f"{kernel=}, {strides=} and {dilations=} are at least 1")
    both = per_axis("pads", pads, 2 * count, 0)
    if any(abs(x) > LARGEST for x in (*kernel, *strides, *dilations, *both)):
        raise OnnxError(f"{kernel=}, {strides=}, {dilations=} and {pads=} are up to {LARGEST}")
    windows = Windows(sizes, kernel, strides, dilations, both[:count], both[count:])
    if auto_pad in ("", "NOTSET"):
        return windows
    none = (0,) * count
    if auto_pad == "VALID":
        return replace(windows, starts=none, ends=none)
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise OnnxError(f"auto_pad is {auto_pad!r}, not NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    totals = [
        max(0, (ceildiv(size, s) - 1) * s + span - size)
        for size, s, span in zip(sizes, strides, windows.spans)
    ]
    small = tuple(total // 2 for total in totals)
    large = tuple(total - total // 2 for total in totals)
    upper = auto_pad == "SAME_UPPER"
    return replace(windows, starts=small if upper else large, ends=large if upper else small)
