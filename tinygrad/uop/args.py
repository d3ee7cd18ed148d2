"""The typed arguments of nodes: the parameters of an op besides its sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from tinygrad.dtype import AddrSpace
from tinygrad.fast_enum import Enum, auto
from tinygrad.uop import Ops
from tinygrad.uop.device_value import DeviceValue, Spmd
from tinygrad.uop.node import Node


class AxisType(Enum):
    """The kind of a loop of a kernel."""

    GLOBAL = auto()  # the grid: independent work items, run in parallel
    LOCAL = auto()  # the threads of a work group of a GPU
    LOOP = auto()  # a sequential loop over independent iterations
    REDUCE = auto()  # a sequential loop over a reduction axis
    TILE = auto()  # a loop of a register tile
    VECTOR = auto()  # the lanes of a vector

    def __lt__(self, other: AxisType) -> bool:
        return int(self.value) < int(other.value)


class BufferArg(NamedTuple):
    """An array in memory: a unique number `slot`, its global `shape` and its `device`."""

    slot: int
    shape: tuple[int, ...]
    device: DeviceValue

    def __str__(self) -> str:
        return f"{self.shape} on {self.device}"


@dataclass(frozen=True)
class ViewArg:
    """A contiguous range of a buffer, read as `shape`; `offset` is in bytes from the start."""

    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ParamArg:
    """Array number `slot` of a kernel, of `shape`: an argument, or by `addrspace` scratch memory or
    registers.
    """

    slot: int
    shape: tuple[int | Node, ...]
    addrspace: AddrSpace = AddrSpace.GLOBAL

    def __str__(self) -> str:
        return f"{self.slot} {self.shape}"


@dataclass(frozen=True)
class ReduceArg:
    """A reduction of `axes`, which keep size 1, by `op`."""

    op: Ops
    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.op.name} over axes {', '.join(map(str, self.axes))}"


@dataclass(frozen=True)
class WindowArg:
    """Sliding windows. For each `(axis, kernel, size, stride, dilation)`:

    WINDOW:   `out(o, k) = in(o * stride + k * dilation, k)`, and `axis` has `size` elements;
    UNWINDOW: `out(y, k) = in((y - k * dilation) / stride, k)` where that is an element, else 0.

    `o` and `y` are indices of `axis`, `k` of `kernel`. Each op is the adjoint of the other.
    """

    windows: tuple[tuple[int, int, int, int, int], ...]

    @property
    def axes(self) -> frozenset[int]:
        """The axes that are windowed, and the axes of the kernels."""
        return frozenset(a for w in self.windows for a in w[:2])

    def sizes(self, shape: tuple[int | Node, ...]) -> tuple[int | Node, ...]:
        """`shape` with the sizes of the windowed axes replaced."""
        new = {axis: size for axis, _, size, _, _ in self.windows}
        return tuple(new.get(i, d) for i, d in enumerate(shape))

    def resized(self, shape: tuple[int | Node, ...]) -> WindowArg:
        """The argument of the adjoint op whose result has the windowed sizes of `shape`."""
        return WindowArg(tuple((a, k, cast(int, shape[a]), s, d) for a, k, _, s, d in self.windows))


@dataclass(frozen=True)
class RangeArg:
    """Loop number `index` of a kernel, and its kind."""

    index: int
    kind: AxisType

    def __str__(self) -> str:
        return f"r{self.index} {self.kind.name}"


@dataclass(frozen=True)
class KernelInfo:
    """The argument of a kernel's SINK: its readable name, and the options applied to it.

    `opts_to_apply` is None if heuristics choose the loops, () if the loops keep the order in which
    they are written. `mapping` is the option by which its nest is mapped to threads, None if
    heuristics choose it.
    """

    name: str = "kernel"
    applied: tuple[Any, ...] = ()
    opts_to_apply: tuple[()] | None = None
    mapping: Any = None

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(map(str, self.applied))}" if self.applied else self.name


@dataclass(frozen=True)
class CustomKernelArg:
    """A custom kernel: its graph, the numbers of the sources that it writes, and `output`, the
    number of the written source that is the value of the node.
    """

    kernel: Any
    written: tuple[int, ...]
    output: int


class Message(NamedTuple):
    """Point to point: as many pieces of device number `source`, from `source_slot` on, as `pieces`
    says, become those of device number `target`, from `target_slot` on.
    """

    target: int
    target_slot: int
    source: int
    source_slot: int
    pieces: int = 1


@dataclass(frozen=True)
class CommInfo:
    """The description of a communication for traces and errors.

    `kind` is the name of the collective, `source` and `destination` are the layouts, and `line` is
    the line of the user's program that caused it; in a plan, which serves many graphs, the number
    of that line in `Canonical.lines`. `algorithm` names the algorithm where there is a choice.
    `time` counts repetitions by rematerialization, from 0.
    """

    kind: str
    source: str
    destination: str
    line: str | int
    algorithm: str = ""
    time: int = 0


class Reduction(NamedTuple):
    """An all-reduce by the library of a kind of device: the name of the op that combines partial
    values, and the numbers of the devices of each group.
    """

    op: str
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TransferArg:
    """The messages of a TRANSFER that are local, see `LocalDevices`: they send equal pieces of its
    source, numbered in memory order.

    The result is an array of `shape`, `(pieces, *piece)`, on `device`. Pieces that no message
    writes are unspecified. With a `reduction`, each device has one message, from itself to itself,
    of which the library reduces the content.
    """

    device: str | Spmd
    shape: tuple[int, ...]
    messages: tuple[Message, ...]
    info: CommInfo
    reduction: Reduction | None = None

    def __str__(self) -> str:
        return f"{self.info.kind} of {len(self.messages)} messages, {self.shape} on {self.device}"

    def piece_size(self, elements: int) -> int:
        """The number of elements of one piece, of `elements` in all."""
        return elements // self.shape[0]


@dataclass(frozen=True)
class PeerArg:
    """The argument of a PEER: device number i reads the memory of device number `devices[i]`."""

    devices: tuple[int, ...]
    info: CommInfo
