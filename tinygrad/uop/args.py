"""The typed arguments of nodes: the parameters of an op besides its sources.

Arguments are frozen and hashable, since they are part of what makes two nodes equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from tinygrad.dtype import AddrSpace
from tinygrad.fast_enum import Enum, auto
from tinygrad.uop import Ops
from tinygrad.uop.device_value import DeviceValue, Spmd
from tinygrad.uop.node import Node
from tinygrad.uop.user_line import UserLine


class AxisType(Enum):
    """The kind of a loop of a kernel."""

    GLOBAL = auto()  # the grid: independent work items, run in parallel
    LOCAL = auto()  # the threads of a work group of a GPU
    LOOP = auto()  # a sequential loop over independent iterations
    REDUCE = auto()  # a sequential loop over a reduction axis
    TILE = auto()  # a loop of a register tile
    VECTOR = auto()  # the lanes of a vector
    ROLE = auto()  # some of the threads of a work group, which others do not join

    # kinds of tinygrad 0.12, as custom kernels name them: here the optimizer chooses
    THREAD = GLOBAL
    WARP = LOCAL
    UPCAST = TILE
    UNROLL = REDUCE
    GROUP_REDUCE = REDUCE

    def __lt__(self, other: AxisType) -> bool:
        return int(self.value) < int(other.value)


class BufferArg(NamedTuple):
    """An array in memory: a unique number `slot`, the global `shape`, and where it is."""

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
    """Array number `slot` of a kernel: an argument, scratch memory or registers, as `addrspace`
    says.
    """

    slot: int
    shape: tuple[int | Node, ...]
    addrspace: AddrSpace = AddrSpace.GLOBAL

    def __str__(self) -> str:
        return f"{self.slot} {self.shape}"


class ReduceArg(NamedTuple):
    """A reduction by `op`. The reduced `axes` keep size 1."""

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
    """The argument of a kernel's SINK: its readable name, and how its loops are optimized."""

    name: str = "kernel"
    applied: tuple[Any, ...] = ()
    """The optimizations that were applied, for DEBUG=3."""
    opts_to_apply: tuple[()] | None = None
    """None lets heuristics choose the loops; () keeps the loops as they are written."""
    mapping: Any = None
    """The mapping of the loops to threads; None lets heuristics choose it."""

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(map(str, self.applied))}" if self.applied else self.name


@dataclass(frozen=True)
class CustomKernelArg:
    """A custom kernel: its graph, the numbers of the sources that it writes, and the number of the
    one among these that is the value of the node, `output`.
    """

    kernel: Any
    written: tuple[int, ...]
    output: int


class Message(NamedTuple):
    """A point-to-point message of several pieces: from `source_slot` on, on device number `source`,
    to `target_slot` on, on device number `target`.
    """

    target: int
    target_slot: int
    source: int
    source_slot: int
    pieces: int = 1


@dataclass(frozen=True)
class CommInfo:
    """The description of a communication for traces and errors."""

    kind: str
    """The name of the collective."""
    source: str
    """The layout before."""
    destination: str
    """The layout after."""
    line: UserLine | int
    """The user's line that caused it; in a plan, its number in `Canonical.lines`."""
    algorithm: str = ""
    """The algorithm of an all-reduce."""
    time: int = 0
    """The number of the repetition by rematerialization, from 0."""


class Reduction(NamedTuple):
    """An all-reduce by a library, such as NCCL: the name of the op that combines partial values,
    and the numbers of the devices of each group.
    """

    op: str
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TransferArg:
    """A TRANSFER: messages that send equal pieces of its source, numbered in memory order.

    Pieces of the result that no message writes are unspecified.
    """

    device: str | Spmd
    shape: tuple[int, ...]
    """The shape of the result on each device, `(pieces, *piece)`."""
    messages: tuple[Message, ...]
    """The messages that a local device sends or receives, see `LocalDevices`."""
    info: CommInfo
    reduction: Reduction | None = None
    """If given, each device has one message, to itself, whose content a library reduces."""

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


@dataclass(frozen=True)
class PieceArg:
    """The argument of a PIECE, an array of `shape`: what device number `member` sends to each other
    device. The device itself reads row number `kept` of its value.

    Another device has it in the row of that number of what it received, or in the row before if its
    own number is lower, as no device receives a row from itself.
    """

    member: int
    kept: int
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"from device {self.member}"

    def row(self, device: int) -> int:
        """The row in which a device has it, of the received array or of its own value."""
        return self.kept if device == self.member else self.member - (device < self.member)
