"""The memory of a tensor as hardware that copies boxes of it sees it.

The limits are those of `cuTensorMapEncodeTiled` in NVIDIA's driver API, for elements in swizzled
rows of 128 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.renderer.matrix_instruction import SWIZZLE_BYTES

MAX_RANK = 5
MAX_SIZE = 1 << 32
MAX_STRIDE_BYTES = 1 << 40
MAX_BOX = 256
"""Elements of a box along one dimension."""
ALIGNMENT = 16
"""Bytes of which addresses and strides are multiples."""


@dataclass(frozen=True)
class TensorMap:
    """Dimensions, the contiguous one first. Elements of a box past their ends are copied as 0."""

    itemsize: int
    offset: int
    """Bytes from the start of the argument."""
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes, of all dimensions but the first."""
    box: tuple[int, ...]
    """The elements of a copy along each dimension."""
    rounds_to_tf32: bool = False
    """Whether elements, which are float32, are rounded as they are copied."""

    @property
    def can_be_encoded(self) -> bool:
        """Whether the hardware can copy its boxes, whose first side lies in swizzled rows."""
        inner = (self.itemsize, *self.strides)
        return (
            2 <= len(self.sizes) <= MAX_RANK
            and all(0 < size <= MAX_SIZE for size in self.sizes)
            and all(0 < size <= MAX_BOX for size in self.box)
            and self.box[0] * self.itemsize <= SWIZZLE_BYTES
            and all(x % ALIGNMENT == 0 for x in (self.offset, *self.strides))
            and all(x < MAX_STRIDE_BYTES for x in self.strides)
            # a step of a dimension is some steps of the one inside of it, no fewer than that has
            and all(y % x == 0 for x, y in zip(inner, self.strides, strict=False))
            and all(
                size * x <= y for size, x, y in zip(self.sizes, inner, self.strides, strict=False)
            )
        )
