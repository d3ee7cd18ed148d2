"""What a schedule is: storage entries, and items that read and write parts of them.

A plan names no real buffer, so that one plan serves every graph of the same structure. Entry `k <
inputs` is the k-th buffer of the canonical graph; the others are made anew each time the plan runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tinygrad.dtype import DType
from tinygrad.uop.args import CommInfo, KernelInfo
from tinygrad.uop.ops import UOp
from tinygrad.uop.spec import SpecError


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


@dataclass(frozen=True)
class PlanForm:
    """The form of plans, which the passes that make and change them ensure."""

    name: str = "plan"

    def verify(self, plan: Plan) -> None:
        """Raise SpecError unless the arguments of kernels and all outputs lie in their entries."""
        for number, item in enumerate(plan.items):
            if isinstance(item, KernelItem):
                for part in (part for arguments in item.parts for part in arguments):
                    _verify_part(plan, part, f"item {number}")
        for part in (part for parts in plan.outputs if parts is not None for part in parts):
            _verify_part(plan, part, "an output")

    def size(self, plan: Plan) -> str:
        """The number of items."""
        return f"{len(plan.items)} items"

    def text(self, plan: Plan) -> str:
        """One line an item."""
        return "\n".join(f"{number:4d} {_line(item)}" for number, item in enumerate(plan.items))


PLAN = PlanForm()


def _nbytes(part: Part) -> int:
    return part.size * part.dtype.itemsize


def _verify_part(plan: Plan, part: Part, where: str) -> None:
    if part.entry >= len(plan.entries):
        raise SpecError(f"in the plan, {where} names entry {part.entry} of {len(plan.entries)}")
    entry = plan.entries[part.entry]
    end = part.offset + _nbytes(part)
    if part.device >= len(entry.devices) or end > entry.size * entry.dtype.itemsize:
        raise SpecError(f"in the plan, {where} has the part {part}, outside of {entry}")


def _line(item: Item) -> str:
    """What an item does and the entries that it touches."""
    if isinstance(item, KernelItem):
        arguments = ", ".join(f"entry {part.entry}" for part in item.parts[0])
        name = item.ast.arg.name if isinstance(item.ast.arg, KernelInfo) else "kernel"
        return f"kernel {name} on {', '.join(item.devices)}: {arguments}"
    ends = {(t.source.entry, t.destination.entry) for t in item.transfers}
    moved = ", ".join(f"entry {source} -> entry {target}" for source, target in sorted(ends))
    return f"{item.reason.kind} of {len(item.transfers)} messages: {moved}"
