"""`ExecutionPlan`: kernels and transfers over storage entries, in the order in which they run.

A plan names no real buffer, so one plan serves every graph of equal structure. Entry number `k <
inputs` is the k-th buffer of the canonical graph; the others are allocated for each run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tinygrad.dtype import DType
from tinygrad.helpers import dedup
from tinygrad.uop.args import CommInfo, KernelInfo
from tinygrad.uop.ops import UOp
from tinygrad.uop.spec import SpecError

DEVICE_NUMBER = "_device_num"
"""The Variable of a kernel on several devices that is the number of the device that runs it."""


@dataclass(frozen=True)
class StorageEntry:
    """Memory for `size` elements of `dtype` on each of `devices`."""

    devices: tuple[str, ...]
    size: int
    dtype: DType


class StorageSlice(NamedTuple):
    """`size` elements of `dtype` from byte `offset` of an entry, on its device number `device`."""

    entry: int
    device: int
    offset: int
    size: int
    dtype: DType


@dataclass(frozen=True)
class KernelItem:
    """Run one kernel on each of `devices`: `arguments[d]` are its arguments on device number d."""

    ast: UOp
    devices: tuple[str, ...]
    arguments: tuple[tuple[StorageSlice, ...], ...]

    @property
    def entries(self) -> set[int]:
        """The numbers of the entries that it uses."""
        return {piece.entry for arguments in self.arguments for piece in arguments}

    @property
    def size(self) -> int:
        """The number of its arguments on all devices."""
        return sum(map(len, self.arguments))


class PlannedMessage(NamedTuple):
    """A point-to-point message: `source` is copied to `destination`, of equal size."""

    destination: StorageSlice
    source: StorageSlice


@dataclass(frozen=True)
class TransferItem:
    """Messages that are sent in one round of a collective."""

    messages: tuple[PlannedMessage, ...]
    info: CommInfo

    @property
    def entries(self) -> set[int]:
        """The numbers of the entries that it uses."""
        return {piece.entry for message in self.messages for piece in message}

    @property
    def size(self) -> int:
        """The number of its messages."""
        return len(self.messages)


Item = KernelItem | TransferItem


@dataclass(frozen=True, eq=False)
class ExecutionPlan:
    """Items in the order in which they run; `outputs[i]` are the slices that hold output number i,
    one a device, or None where the output is a buffer or was assigned to one.

    `written` are the entries that items write, `variables` the Variables that they read. `layouts`
    are the memory layouts of its temporaries, without and with shared memory, where placed already.
    """

    inputs: int
    entries: tuple[StorageEntry, ...]
    items: tuple[Item, ...]
    outputs: tuple[tuple[StorageSlice, ...] | None, ...]
    written: frozenset[int]
    variables: tuple[UOp, ...]
    layouts: dict[bool, Any] = field(default_factory=dict, repr=False)

    @property
    def kernels(self) -> list[UOp]:
        """The tensor forms of its kernels, each once."""
        return dedup(item.ast for item in self.items if isinstance(item, KernelItem))

    @property
    def temporary(self) -> range:
        """The numbers of the entries that the plan allocates."""
        return range(self.inputs, len(self.entries))


@dataclass(frozen=True)
class PlanForm:
    """The form of plans, which the passes that make and change them ensure."""

    name: str = "plan"

    def verify(self, plan: ExecutionPlan) -> None:
        """Raise SpecError unless the arguments of kernels and all outputs lie in their entries."""
        for number, item in enumerate(plan.items):
            if isinstance(item, KernelItem):
                for piece in (piece for arguments in item.arguments for piece in arguments):
                    _verify_slice(plan, piece, f"item {number}")
        for piece in (piece for parts in plan.outputs if parts is not None for piece in parts):
            _verify_slice(plan, piece, "an output")

    def size(self, plan: ExecutionPlan) -> str:
        """The number of items."""
        return f"{len(plan.items)} items"

    def text(self, plan: ExecutionPlan) -> str:
        """One line an item."""
        return "\n".join(f"{number:4d} {_line(item)}" for number, item in enumerate(plan.items))


PLAN = PlanForm()


def _nbytes(piece: StorageSlice) -> int:
    return piece.size * piece.dtype.itemsize


def _verify_slice(plan: ExecutionPlan, piece: StorageSlice, where: str) -> None:
    if piece.entry >= len(plan.entries):
        raise SpecError(f"in the plan, {where} names entry {piece.entry} of {len(plan.entries)}")
    entry = plan.entries[piece.entry]
    end = piece.offset + _nbytes(piece)
    if piece.device >= len(entry.devices) or end > entry.size * entry.dtype.itemsize:
        raise SpecError(f"in the plan, {where} has the slice {piece}, outside of {entry}")


def _line(item: Item) -> str:
    """What an item does and the entries that it touches."""
    if isinstance(item, KernelItem):
        arguments = ", ".join(f"entry {piece.entry}" for piece in item.arguments[0])
        name = item.ast.arg.name if isinstance(item.ast.arg, KernelInfo) else "kernel"
        return f"kernel {name} on {', '.join(item.devices)}: {arguments}"
    ends = {(m.source.entry, m.destination.entry) for m in item.messages}
    moved = ", ".join(f"entry {source} -> entry {target}" for source, target in sorted(ends))
    return f"{item.info.kind} of {len(item.messages)} messages: {moved}"
