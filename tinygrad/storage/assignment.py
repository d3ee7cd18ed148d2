"""Assignment: new content for the memory of a tensor, or a new value in its place.

Input: a tensor, and a value of its shape, dtype and devices. Output: the tensor, which refers to a
pending write, or to the value where it has no memory that can be written in place. Invariant: views
of the tensor see the new content, and no other tensor does.
"""

from __future__ import annotations

from tinygrad.sharding import Sharding
from tinygrad.storage.copy_on_write import copy_on_write, mark_shared
from tinygrad.storage.live_tensors import TensorBase, live_tensors
from tinygrad.storage.pending_writes import note_write
from tinygrad.storage.realization import realize_all, realize_readers
from tinygrad.storage.shards import check_writable, with_stored_shard
from tinygrad.storage.views import (
    is_in_memory,
    repeats_elements,
    selected_shard,
    slices_sharded_axis,
    unmoved_base,
    view_base,
)
from tinygrad.uop import Ops
from tinygrad.uop.device_value import TensorDevice
from tinygrad.uop.ops import UOp
from tinygrad.uop.slice_assign import update_slice


def assign(tensor: TensorBase, value: UOp, device: TensorDevice) -> None:
    """Write `value` into the memory of `tensor`, which is on `device`, when that is realized.

    A tensor without memory of its own refers to `value` from now on. A slice of a sharded axis does
    so too, and the memory that it was resharded from is written at once. So is that of a shard.
    """
    tensor.uop = with_stored_shard(tensor.uop)
    target = tensor.uop.src[0] if tensor.uop.op is Ops.ASSIGN else tensor.uop
    if is_in_memory(target) and not repeats_elements(target) and not slices_sharded_axis(target):
        shard = selected_shard(target)
        if shard is not None:
            check_writable(shard)
            realize_readers({view_base(shard)})
        copy_on_write(tensor)
        tensor.uop = tensor.uop.assign(value)
        note_write(tensor.uop)
        if shard is not None:
            realize_all((tensor,))
        return
    tensor.uop = value if value.device is not None else value.copy_to_device(device)
    mark_shared(tensor.uop)
    memory = resharded_from(tensor, target)
    if memory is not None:
        whole = tensor._new(memory, False)
        whole.origin = tensor.origin
        new = update_slice(target, memory, value)
        if new is not memory:
            assign(whole, new, device)
            realize_all((whole,))


def resharded_from(tensor: TensorBase, view: UOp) -> UOp | None:
    """The buffer that `view`, a slice of a sharded axis, was resharded from, if `tensor` is a view
    of a tensor in that buffer.
    """
    node = unmoved_base(view)
    if node.op is not Ops.BUFFER or not isinstance(node.device, Sharding):
        return None
    if not isinstance(view.device, Sharding):
        return None  # a shard of a slice
    held = (x for x in live_tensors if x.origin == tensor.origin and x is not tensor)
    return node if any(view_base(x.uop) is node for x in held) else None
