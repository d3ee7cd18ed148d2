"""What a schedule is: storage entries, and items that read and write parts of them.

A plan names no real buffer, so that one plan serves every graph of the same structure. Entry `k <
inputs` is the k-th buffer of the canonical graph; the others are made anew each time the plan runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tinygrad.dtype import DType
from tinygrad.uop.args import CommInfo
from tinygrad.uop.ops import UOp


@dataclass(frozen=True)
class Entry:
    """Storage: `size` elements of `dtype` on each of `devices`."""

    devices: tuple[str, ...]
    size: int
    dtype: DType


class Part(NamedTuple):
    """`size` elements of `dtype` in device number `device`'s part of an entry, from byte `offset`
    on.
    """

    entry: int
    device: int
    offset: int
    size: int
    dtype: DType


@dataclass(frozen=True)
class KernelItem:
    """Run one kernel on each of `devices`: `parts[d]` are its arguments on device number d."""

    ast: UOp
    devices: tuple[str, ...]
    parts: tuple[tuple[Part, ...], ...]


class Transfer(NamedTuple):
    """One message: `source` is copied to `destination`, of equal size."""

    destination: Part
    source: Part


@dataclass(frozen=True)
class TransferItem:
    """Messages that make up one movement of a value between devices."""

    transfers: tuple[Transfer, ...]
    reason: CommInfo


Item = KernelItem | TransferItem


@dataclass(frozen=True, eq=False)
class Plan:
    """The items in the order they run; `outputs[i]` are the parts that hold the i-th output, or
    None.

    An output is None where it is storage already (a buffer, or what was assigned to one).
    """

    inputs: int
    entries: tuple[Entry, ...]
    items: tuple[Item, ...]
    outputs: tuple[tuple[Part, ...] | None, ...]
    written: frozenset[int]
    variables: tuple[UOp, ...]

    @property
    def temporary(self) -> range:
        """The entries that the plan allocates."""
        return range(self.inputs, len(self.entries))
