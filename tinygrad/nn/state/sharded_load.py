"""Shard a value that is computed from a file, so that each device reads its own shard.

Input: a lazy value computed from one tensor in a file, or one host array, by elementwise and
movement ops, such as dequantisation, and the target layout. Output: the same value, computed from
shards of that tensor. Invariant: no device reads the whole tensor, unless the layout is replicated.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import cast

from tinygrad.nn.state.shard_io import read_shards
from tinygrad.schedule.storage_views import contiguous_range
from tinygrad.sharding import Placement, Sharding
from tinygrad.storage.host.arrays import is_on_host
from tinygrad.storage.host.shards import shards_of_array
from tinygrad.tensor import Tensor
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import reshard_for_bitcast

# ops that compute each element from the elements at the same index of their sources
_FOLLOWED = GroupOp.Elementwise | GroupOp.Movement | {Ops.CONTIGUOUS, Ops.DETACH}


def compute_sharded(value: Tensor, layout: Sharding) -> Tensor | None:
    """`value` on the devices of `layout`, in that layout if possible.

    None if it is not computed from one such tensor, or no sharding of that tensor shards `value`.
    """
    stored = _stored_below(value.uop)
    if stored is None:
        return None
    for option in _layouts(layout, stored):
        empty = UOp.new_buffer(option, cast(tuple[int, ...], stored.shape), stored.dtype)
        node = _made_of(value.uop, stored, empty)
        if node is not None and (node.layout.split_axes or not layout.split_axes):
            return Tensor(node.substitute({empty: _parts(_source(stored), option)}))
    return None


def _parts(source: UOp, layout: Sharding) -> UOp:
    if not is_file(source.device):
        return shards_of_array(source, layout)
    found = read_shards(Tensor(source), layout)
    assert found is not None, "it is a run of a file"
    return found.uop


def _source(node: UOp) -> UOp:
    """The source of a value that was copied to a device."""
    return node.src[0] if node.op is Ops.COPY else node


def _is_stored(node: UOp) -> bool:
    """Whether a node is a host array, a range of a file, or a copy of one."""
    below = _source(node)
    return is_on_host(below) or (is_file(below.device) and contiguous_range(below) is not None)


def _stored_below(value: UOp) -> UOp | None:
    """The one tensor in a file, or on the host, that a value is computed from."""
    below = value.toposort(gate=lambda x: x.op in _FOLLOWED and not _is_stored(x))
    placed = [x for x in below if x.device is not None]
    stored = [x for x in placed if _is_stored(x)]
    others = [x for x in placed if x.op not in _FOLLOWED and x not in stored]
    return stored[0] if len(stored) == 1 and not others else None


def _layouts(layout: Sharding, stored: UOp) -> Iterator[Sharding]:
    """Candidate shardings of the tensor in the file: that of the value first, if it has the same
    axes.
    """
    splittable = [axis for axis, size in enumerate(stored.shape) if size != 1]
    options: list[list[Placement]] = [
        [None] if placement is None else [*splittable] for placement in layout.axes
    ]
    for axes in dict.fromkeys([layout.axes, *product(*options)]):
        candidate = layout.with_axes(axes)
        if all(axis in splittable for axis in candidate.split_axes):
            yield candidate


def _made_of(value: UOp, stored: UOp, instead: UOp) -> UOp | None:
    """`value` with `stored` replaced by another node; None if its layout does not propagate."""
    done = {stored: instead}
    for node in value.toposort(gate=lambda x: x is not stored):
        if node in done:
            continue
        src = tuple(done[x] for x in node.src)
        new = node.with_sources(src)
        layouts = {x.device for x in src if x.device is not None}
        if layouts and (len(layouts) > 1 or new.device is None or not _keeps_blocks(new)):
            return None
        done[node] = new
    return done[value]


def _keeps_blocks(node: UOp) -> bool:
    """Whether a bitcast to another element size keeps the layout."""
    return node.op is not Ops.BITCAST or reshard_for_bitcast(node.src[0], node.dtype) is node.src[0]
