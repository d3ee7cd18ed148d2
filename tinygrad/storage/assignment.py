"""Assignment: new content for the memory of a tensor, or a new value in its place.

Input: a tensor, and a value of its shape, dtype and devices. Output: the tensor and all of its
aliases, which refer to a pending write of the whole memory, or to the new value where there is no
memory that can be written in place. Invariant: the aliases of a tensor see what is written to it,
whether it was computed or not, and no other tensor does.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.errors import ArgumentError
from tinygrad.execution.capture import capturing
from tinygrad.helpers import all_int
from tinygrad.schedule.canonical import BindingConflict, canonicalize
from tinygrad.schedule.storage_views import below_reshapes
from tinygrad.storage.aliases import (
    is_leaf,
    owns_memory,
    set_whole,
    updated_whole,
    whole_tensor,
    whole_value,
)
from tinygrad.storage.host.arrays import number_in_memory
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.storage.lock import exclusive
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.realization import compute, own_memory, realize_all, store_constant
from tinygrad.storage.shards import check_writable, with_stored_shard
from tinygrad.storage.views import (
    is_uniform,
    is_whole_memory,
    selected_shard,
    view_base,
    written_target,
)
from tinygrad.uop import Ops
from tinygrad.uop.device_value import TensorDevice, is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import reshard_for_assign
from tinygrad.uop.slice_assign import ViewStep, apply_steps, sink_expand

# the steps to a view of distinct elements, on one device
_WRITTEN_THROUGH = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.SHRINK, Ops.DETACH})


def value_to_write(tensor: TensorBase, x: TensorBase) -> UOp:
    """The value of `x`, to be written to `tensor`; what that needs in memory is stored first."""
    is_stored = written_target(view_base(whole_value(tensor))).is_realized
    if _is_shard(tensor) or (not is_stored and (_is_symbolic(tensor) or is_leaf(tensor))):
        # views may be at several values of a Variable: in memory, all can be computed; values that
        # were computed from a leaf have its gradient
        whole = whole_tensor(tensor)
        if is_uniform(whole.uop):
            store_constant(whole)
        realize_all((whole,))
    if _is_symbolic(tensor):
        try:
            canonicalize(UOp.sink(tensor.uop, x.uop))
        except BindingConflict:
            x = TensorBase._new(in_own_memory(x.uop), x._requires_grad)
            realize_all((x,))
    return x.uop


def assign(tensor: TensorBase, value: UOp, device: TensorDevice) -> None:
    """Write `value`, a `value_to_write`, to `tensor`, which is on `device`.

    Memory is written when the tensor, or an alias of it, is realized; that of a shard at once. A
    tensor without memory, and its aliases, refer to the new value from now on. Raises RuntimeError
    for a view that repeats elements, ShardingError for one of several replicas.
    """
    if tensor._steps:
        _check_distinct(tensor)
        if _is_shard(tensor):
            _assign_shard(tensor, value)
            return
    whole = whole_value(tensor)
    new = updated_whole(tensor, value) if tensor._steps else value
    is_memory = is_whole_memory(whole.src[0] if whole.op is Ops.ASSIGN else whole)
    if is_memory and owns_memory(tensor):
        written = whole.assign(new)
        set_whole(tensor, written)
        # asked for, so that the tensor has its pending write
        if (
            view_base(tensor.uop) is not written
            and value.device is not None
            and not _is_moved(value, whole)
        ):
            # the new elements are known; reading them from the memory would reshard them
            tensor._set_node(value)
        return
    if new.device is None:
        new = new.copy_to_device(device)
    elif whole.device is not None:
        new = reshard_for_assign(new, whole.device)
    set_whole(tensor, new)


@exclusive
def write_now(tensor: TensorBase, steps: Sequence[ViewStep], value: TensorBase) -> bool:
    """Write `value`, through which no gradient flows, at once to the view of a tensor by `steps`.

    It is a tensor, not its node: those who call would keep the node, which may read what is
    overwritten. Returns whether that was possible, as it is for a slice of memory on one device. If
    not, nothing has changed, and `assign` writes the view, or says why it cannot be written.
    """
    path = (*tensor._steps, *steps)
    write = _write_to_slice(tensor, path, value.uop)
    if write is None:
        return False
    try:
        if write:
            compute(write)
    except Exception:
        return False
    return True


def _write_to_slice(tensor: TensorBase, path: Sequence[ViewStep], value: UOp) -> list[UOp] | None:
    """The ASSIGN to a view of memory, alone in a list; none if nothing changes, and None if it
    cannot run at once.
    """
    whole = whole_value(tensor)
    if not whole.is_realized or not isinstance(whole.device, str) or is_file(whole.device):
        return None
    if whole.op is not Ops.BUFFER or any(op not in _WRITTEN_THROUGH for op, _ in path):
        return None
    if value.device is not None and value.device != whole.device:
        return None
    if not owns_memory(tensor):
        return None
    target = apply_steps(whole, path)
    if target is value:
        return []
    if below_reshapes(value) is whole:
        return None  # a kernel would overwrite elements that it reads later
    if not capturing():
        value = number_in_memory(value, whole.device)
    return [target.assign(value)]


def _is_moved(value: UOp, whole: UOp) -> bool:
    """Whether a value is elements of `whole`, or of its memory, in another order or layout."""
    base, memory = view_base(value), view_base(whole)
    while base.op is Ops.COPY:
        base = view_base(base.src[0])
    return base is memory or (memory.op is Ops.ASSIGN and base is view_base(memory.src[0]))


def _assign_shard(tensor: TensorBase, value: UOp) -> None:
    """Write to a shard, or a view of one, at once: its memory is that of its device."""
    tensor._set_node(with_stored_shard(tensor.uop))
    shard = selected_shard(tensor.uop)
    assert shard is not None, "a shard of a value in memory is a view of it"
    check_writable(shard)
    own_memory(tensor)
    tensor._set_node(with_stored_shard(tensor.uop))
    compute([tensor.uop.assign(value)])


def _is_shard(tensor: TensorBase) -> bool:
    """Whether a tensor is a shard, or a view of one."""
    return bool(tensor._steps) and any(op is Ops.MSELECT for op, _ in tensor._steps)


def _is_symbolic(tensor: TensorBase) -> bool:
    """Whether the place of a view depends on a Variable."""
    steps = tensor._steps
    return bool(steps) and any(op is Ops.SHRINK and not all_int(sum(x, ())) for op, x in steps)


def _check_distinct(tensor: TensorBase) -> None:
    """Raises RuntimeError if several elements of a view are one element of memory."""
    if any(op is Ops.EXPAND for op, _ in tensor._steps):
        tensor._steps = sink_expand(tensor._steps, whole_value(tensor).shape)
    for op, arg in tensor._steps:
        if op is Ops.EXPAND:
            raise ArgumentError(
                f"assign: the view was expanded to {arg}, so that several of its elements are one "
                "element of memory; write to a .clone(), or to the tensor before expand"
            )
