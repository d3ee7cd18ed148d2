"""The storage of each materialised value of a plan: an entry, or a slice of one.

Input: the materialised nodes of a per-device graph, sources first. Output: for each node the slices
that hold it. Invariant: a view, a shard or an assignment has the memory of the value that it names.
"""

from __future__ import annotations

from tinygrad.dtype import dtypes
from tinygrad.helpers import prod
from tinygrad.schedule.execution_plan import (
    Slices,
    StorageEntry,
    StorageSlice,
    join_slices,
    slice_on,
)
from tinygrad.schedule.grouping.values import max_elements
from tinygrad.schedule.storage_views import movement_base
from tinygrad.uop import Ops
from tinygrad.uop.device_value import Spmd
from tinygrad.uop.ops import UOp

# an input that nothing reads, as of a graph without elements
_UNUSED = StorageEntry((), 0, dtypes.void)


class StorageMap:
    """The entries of a plan that reads `inputs` buffers; `slices[node]` is the memory of a node.
    Values without a device are on `default_device`.
    """

    def __init__(self, inputs: int, default_device: str) -> None:
        self.default_device = default_device
        self.slices: dict[UOp, Slices] = {}
        self._entries = [_UNUSED] * inputs
        # the memory of values in a stack
        self._reserved: dict[UOp, Slices] = {}

    @property
    def entries(self) -> tuple[StorageEntry, ...]:
        """All entries, those of the inputs first."""
        return tuple(self._entries)

    def devices(self, node: UOp) -> tuple[str, ...]:
        """The devices of a value."""
        device = node.device
        if isinstance(device, Spmd):
            return device.devices
        assert device is None or isinstance(device, str), f"{node.op.name} on {device} is not local"
        return (self.default_device if device is None else device,)

    def new_entry(self, node: UOp) -> Slices:
        """A new entry for a value."""
        devices = self.devices(node)
        size = max_elements(node.shape)
        self._entries.append(StorageEntry(devices, size, node.dtype))
        number = len(self._entries) - 1
        return (StorageSlice(number, 0, 0, size, node.dtype, len(devices)),)

    def reserve(self, stack: UOp) -> None:
        """Make an entry for a STACK, in which its sources will be placed one after the other."""
        (whole,) = self._reserved[stack] = self.new_entry(stack)
        size = whole.size // len(stack.src)
        for number, x in enumerate(stack.src):
            offset = number * size * stack.dtype.itemsize
            self._reserved[x] = (whole._replace(offset=offset, size=size),)

    def add(self, node: UOp) -> None:
        """Place a materialised value, whose sources are placed."""
        self.slices[node] = self._reserved.get(node) or self.place(node)

    def place(self, node: UOp) -> Slices:
        """The memory of a materialised value."""
        op = node.op
        if op is Ops.BUFFER:
            return self.place_buffer(node)
        if op is Ops.BUFFER_VIEW:
            size = max_elements(node.shape)
            offset = node.arg.offset
            source = self.slices[node.src[0]]
            return tuple(
                p._replace(offset=p.offset + offset, size=size, dtype=node.dtype) for p in source
            )
        if op is Ops.MSELECT:
            return (slice_on(self.slices[node.src[0]], node.arg),)
        if op is Ops.PEER:
            source = self.slices[node.src[0]]
            return join_slices([slice_on(source, number) for number in node.arg.devices])
        if op is Ops.PIECE:
            return self._place_piece(node)
        if op is Ops.MSTACK:
            return join_slices([slice_on(self.slices[x], 0) for x in node.src])
        if op in {Ops.ASSIGN, Ops.AFTER}:
            return self.slices[movement_base(node.src[0])]
        if op is Ops.CUSTOM_KERNEL:
            return self.slices[node.src[node.arg.output]]
        return self.new_entry(node)

    def _place_piece(self, node: UOp) -> Slices:
        """The memory of a piece: on its sender that of the value, on others what was received."""
        arg, dtype, size = node.arg, node.dtype, prod(node.arg.shape)
        value, received = (self.slices[x] for x in node.src)
        parts: list[StorageSlice] = []
        for number in range(len(self.devices(node))):
            part = slice_on(value if number == arg.member else received, number)
            offset = part.offset + arg.row(number) * size * dtype.itemsize
            parts.append(part._replace(offset=offset, size=size, dtype=dtype))
        return join_slices(parts)

    def place_buffer(self, node: UOp) -> Slices:
        """The entry of a canonical buffer, or a new one for a buffer that lowering made."""
        if node.arg.slot >= 0:
            return self.new_entry(node)
        number = -1 - node.arg.slot
        devices = self.devices(node)
        size = max_elements(node.arg.shape)
        self._entries[number] = StorageEntry(devices, size, node.dtype)
        return (StorageSlice(number, 0, 0, size, node.dtype, len(devices)),)
