"""Checks of where values live: the devices, layouts and shards of single nodes.

A check takes a node, whose sources are checked already, and returns None or an error message: the
end of a sentence that starts with the op.
"""

from __future__ import annotations

from tinygrad.sharding import Partial, Sharding, ShardingError
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import Spmd, device_names, is_file
from tinygrad.uop.node import Node
from tinygrad.uop.reshard.files import FILE_VIEWS
from tinygrad.uop.shards import check_shards
from tinygrad.uop.sint import same_shape

# the ops that may read partial values
PARTIAL_OPS = frozenset(
    {*GroupOp.Elementwise, *GroupOp.Movement, Ops.ALLREDUCE, Ops.REDUCE_AXIS, Ops.CUSTOM_KERNEL}
    | {Ops.SINK}
)


def named_or_sharded(node: Node) -> str | None:
    """The device is a name, a `Sharding` or None."""
    device = node.device
    if device is None or isinstance(device, str | Sharding):
        return None
    return f"is on {device!r}; in the tensor graph a device is a name, a Sharding or None"


def named_or_spmd(node: Node) -> str | None:
    """The device is a name, an `Spmd` or None."""
    device = node.device
    if device is None or isinstance(device, str | Spmd):
        return None
    return f"is on {device!r}; in the per-device graph a device is a name, an Spmd or None"


def one_device(node: Node) -> str | None:
    """All sources with a device have the same one: only COPY and ALLREDUCE move data."""
    devices = {x.device for x in node.src} - {None}
    if len(devices) < 2:
        return None
    return f"has sources on {' and '.join(sorted(map(str, devices)))}; a COPY is missing"


def no_partial_source(node: Node) -> str | None:
    """Only `PARTIAL_OPS`, and a COPY that slices them, read partial values."""
    if node.op in PARTIAL_OPS or (node.op is Ops.COPY and _slices_partial_values(node)):
        return None
    for x in node.src:
        if isinstance(x.device, Sharding) and x.device.is_partial:
            return f"reads unreduced partial values on {x.device}; an ALLREDUCE is missing"
    return None


def not_computed_in_file(node: Node) -> str | None:
    """Values in files are BUFFERs and views of them; no op computes or copies to a file."""
    if not is_file(node.device) or node.op is Ops.BUFFER or node.op in FILE_VIEWS:
        return None
    return f"is in the file {node.device}, where nothing is computed; copy its sources to a device"


def copy_target(node: Node) -> str | None:
    """The target of a COPY or ALLREDUCE is a name or a layout. It is partial only for a COPY that
    slices the partial values of each device.
    """
    target = node.arg
    if not isinstance(target, Sharding):
        return None if isinstance(target, str) else f"goes to {target!r}, which is not a device"
    if not target.is_partial or (node.op is Ops.COPY and _slices_partial_values(node)):
        return None
    return f"leaves unreduced partial values on {target}"


def _slices_partial_values(node: Node) -> bool:
    """Whether a COPY keeps partial values partial over the same mesh dimensions."""
    source, target = node.src[0].device, node.arg
    if not isinstance(source, Sharding) or not isinstance(target, Sharding):
        return False
    if source.mesh_shape != target.mesh_shape:
        return False
    pairs = zip(source.axes, target.axes, strict=True)
    return all(p == q for p, q in pairs if isinstance(p, Partial) or isinstance(q, Partial))


def allreduce_source(node: Node) -> str | None:
    """An ALLREDUCE reads a partial value."""
    layout = node.src[0].device
    if isinstance(layout, Sharding) and layout.is_partial:
        return None
    return f"reads a value on {layout}, which has nothing to reduce"


def placed_constant(node: Node) -> str | None:
    """A COPY of the per-device graph places constants; a TRANSFER moves data."""
    if node.src[0].device is not None:
        return f"copies from {node.src[0].device}, which a TRANSFER does in messages"
    return (
        None if isinstance(node.arg, str | Spmd) else f"goes to {node.arg!r}, which is not a device"
    )


def stacked_shards(node: Node) -> str | None:
    """An MSTACK of the tensor graph has the shards of its layout as sources, each on its device."""
    if not isinstance(node.arg, Sharding):
        return f"has the argument {node.arg!r}, not a Sharding"
    if any(x.device is None for x in node.src):
        return "has a source on no device; place it"
    try:
        check_shards(node.src, node.arg)
    except ShardingError as error:
        return str(error)
    return None


def stacked_blocks(node: Node) -> str | None:
    """An MSTACK of the per-device graph has blocks of one shape as sources, each on its device."""
    if [x.device for x in node.src] != list(node.arg.devices):
        return f"has sources on {[x.device for x in node.src]} and is on {node.arg}"
    if all(same_shape(x.shape, node.shape) for x in node.src):
        return None
    return f"has sources of the shapes {[x.shape for x in node.src]}; pad the last blocks"


def select_index(node: Node) -> str | None:
    """An MSELECT takes one of its source's devices."""
    devices = device_names(node.src[0].device)
    if isinstance(node.arg, int) and 0 <= node.arg < len(devices):
        return None
    return f"takes part {node.arg!r} of a value on {len(devices)} devices"


def peer_devices(node: Node) -> str | None:
    """A PEER names one of its source's devices for each of them."""
    count = len(device_names(node.src[0].device))
    if len(node.arg.devices) == count and all(0 <= x < count for x in node.arg.devices):
        return None
    return f"reads the devices {node.arg.devices} of a value on {count}"


def custom_output(node: Node) -> str | None:
    """A CUSTOM_KERNEL is a source that its kernel writes; all sources are on its devices."""
    arg = node.arg
    if arg.output not in arg.written or arg.written[-1] >= len(node.src):
        return f"is source {arg.output} of {len(node.src)}; its kernel writes {arg.written}"
    if node.dtype is not node.src[arg.output].dtype:
        return f"has the dtype {node.dtype!r} of a source in {node.src[arg.output].dtype!r}"
    arrays = [x for x in node.src if x.op not in {Ops.BIND, Ops.DEFINE_VAR}]
    devices = {device_names(x.device) for x in arrays}
    if len(devices) > 1:
        return f"has sources on {' and '.join(sorted(map(', '.join, devices)))}; a COPY is missing"
    return None
