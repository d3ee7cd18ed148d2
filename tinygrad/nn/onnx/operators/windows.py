"""Where the windows of convolution and pooling lie, as a model says it.

ONNX writes padding as all starts, then all ends; tensors take it the last axis first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinygrad.helpers import ceildiv
from tinygrad.nn.onnx.errors import OnnxError

Ints = tuple[int, ...]

# no model has larger ones, and all of them are written down when a graph is built
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
        """The padding as tensors take it: before and after of the last axis, of the one before."""
        pairs = list(zip(self.starts, self.ends))
        return tuple(size for pair in reversed(pairs) for size in pair)

    @property
    def spans(self) -> Ints:
        """How far a window reaches along each axis."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations))

    def with_whole_windows(self) -> Windows:
        """With as much padding at the ends as makes the last window whole, rather than dropped."""
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


def spread(name: str, values: Ints, count: int, default: int) -> Ints:
    """`values`, or the default for each of `count` axes. Raises OnnxError for another number."""
    if not values:
        return (default,) * count
    if len(values) != count:
        raise OnnxError(f"{name} is {values}, and there are {count} spatial axes")
    return values


def find_windows(
    sizes: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints, auto_pad: str
) -> Windows:
    """The windows that attributes describe, where an empty one stands for its default."""
    count = len(sizes)
    if not kernel:
        raise OnnxError("attribute kernel_shape is missing")
    kernel = spread("kernel_shape", kernel, count, 1)
    strides = spread("strides", strides, count, 1)
    dilations = spread("dilations", dilations, count, 1)
    if any(x < 1 for x in (*kernel, *strides, *dilations)):
        raise OnnxError(f"{kernel=}, {strides=} and {dilations=} are at least 1")
    both = spread("pads", pads, 2 * count, 0)
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
