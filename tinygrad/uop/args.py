"""The arguments of nodes: what an op needs to know besides its sources."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

from tinygrad.dtype import AddrSpace
from tinygrad.uop import Ops
from tinygrad.uop.device_value import DeviceValue, Spmd
from tinygrad.uop.node import Node


class AxisType(Enum):
    """What a loop of a kernel becomes."""

    GLOBAL = auto()  # the grid: independent items, run in parallel
    LOCAL = auto()  # the thread group of a GPU
    LOOP = auto()  # a sequential loop over independent items
    REDUCE = auto()  # a sequential loop that carries a value
    TILE = auto()  # a short loop whose values stay in registers
    VECTOR = auto()  # the lanes of a vector

    def __lt__(self, other: AxisType) -> bool:
        return int(self.value) < int(other.value)


@dataclass(frozen=True)
class BufferArg:
    """A stored array: `slot` makes it unique, `shape` is global, `device` where it lives."""

    slot: int
    shape: tuple[int, ...]
    device: DeviceValue


@dataclass(frozen=True)
class ViewArg:
    """A contiguous part of a buffer, read as `shape`: `offset` in bytes from the buffer's start."""

    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ParamArg:
    """Array number `slot` of a kernel, of `shape`: an argument, unless `addrspace` says it is
    scratch memory or registers.
    """

    slot: int
    shape: tuple[int | Node, ...]
    addrspace: AddrSpace = AddrSpace.GLOBAL


@dataclass(frozen=True)
class ReduceArg:
    """Reduce `axes` (kept as size 1) by `op`."""

    op: Ops
    axes: tuple[int, ...]


@dataclass(frozen=True)
class WindowArg:
    """Sliding windows. For each `(axis, kernel, size, stride, dilation)`:

    WINDOW:   `out(o, k) = in(o * stride + k * dilation, k)`, and `axis` gets `size` elements;
    UNWINDOW: `out(y, k) = in((y - k * dilation) / stride, k)` where that is an element, else 0.

    `o` and `y` run along `axis`, `k` along `kernel`. Each is the other's adjoint.
    """

    windows: tuple[tuple[int, int, int, int, int], ...]

    @property
    def axes(self) -> frozenset[int]:
        """The axes that take part."""
        return frozenset(a for w in self.windows for a in w[:2])

    def sizes(self, shape: tuple[int | Node, ...]) -> tuple[int | Node, ...]:
        """`shape` with the sizes of the windowed axes replaced."""
        new = {axis: size for axis, _, size, _, _ in self.windows}
        return tuple(new.get(i, d) for i, d in enumerate(shape))

    def resized(self, shape: tuple[int | Node, ...]) -> WindowArg:
        """The argument of the adjoint, whose windowed axes have the sizes of `shape`."""
        return WindowArg(tuple((a, k, cast(int, shape[a]), s, d) for a, k, _, s, d in self.windows))


@dataclass(frozen=True)
class RangeArg:
    """Loop number `index` of a kernel, and what it becomes."""

    index: int
    kind: AxisType


@dataclass(frozen=True)
class KernelInfo:
    """What a kernel's SINK carries: its readable name, and the options applied to it.

    `opts_to_apply` is None where loops are chosen by heuristics, () where they stay in the order
    that they are written in.
    """

    name: str = "kernel"
    applied: tuple[Any, ...] = ()
    opts_to_apply: tuple[()] | None = None


@dataclass(frozen=True)
class CustomKernelArg:
    """A kernel written by hand: its graph, and the number of the source that is its value here.

    `written` are the numbers of all sources that it writes.
    """

    kernel: Any
    written: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Message:
    """Point to point: `count` pieces of device number `source`, from `source_slot` on, become those
    of device number `target`, from `target_slot` on.
    """

    target: int
    target_slot: int
    source: int
    source_slot: int
    count: int = 1


@dataclass(frozen=True)
class CommInfo:
    """What a movement between devices is, for people.

    `kind` is the field's name for it, `source` and `destination` are the layouts, `line` the line
    of the user's program that asked; in a plan, which serves many graphs, the number of that line
    in `Canonical.lines`. `algorithm` is how, where there is a choice. `time` is not 0 if it is made
    once more.
    """

    kind: str
    source: str
    destination: str
    line: str | int
    algorithm: str = ""
    time: int = 0


@dataclass(frozen=True)
class TransferArg:
    """What a TRANSFER sends: equal pieces of its source, numbered in memory order.

    The result is an array of `shape`, `(pieces, *piece)`, on `device`. Pieces of it that no message
    names are unspecified.
    """

    device: str | Spmd
    shape: tuple[int, ...]
    messages: tuple[Message, ...]
    reason: CommInfo

    def piece_size(self, elements: int) -> int:
        """The elements of one piece, of `elements` in all."""
        return elements // self.shape[0]
