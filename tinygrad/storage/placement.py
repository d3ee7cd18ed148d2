"""Placement: the device of a new value, and values in memory of their own.

Input: nodes, and devices as users write them. Output: nodes on canonical devices. Invariant: after
`canonical_device`, a device is a canonical name, a `Sharding` of such names, or None.
"""

from __future__ import annotations

from tinygrad.device import Device
from tinygrad.helpers import all_int
from tinygrad.sharding import Sharding, ShardingError, operand_layout
from tinygrad.storage.views import is_constant
from tinygrad.uop import Ops
from tinygrad.uop.broadcast import SymbolicShape
from tinygrad.uop.device_value import DeviceLike, TensorDevice, is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import can_shard, computing_device


def canonical_device(device: DeviceLike) -> TensorDevice | None:
    """A name, a `Sharding`, or a sequence of names (replicated over them) in canonical form.

    None stays None. Raises TypeError for anything else.
    """
    if device is None:
        return device
    if isinstance(device, Sharding):
        return canonical_layout(device)
    if isinstance(device, (tuple, list)):
        if len(device) == 1:
            return Device.canonicalize(device[0])
        return canonical_layout(Sharding(tuple(device)))
    if not isinstance(device, str):
        raise TypeError(
            f"device must be a name, a sequence of names or a Sharding, not {device!r} "
            f"of type {type(device).__name__}"
        )
    return Device.canonicalize(device)


def canonical_layout(layout: Sharding) -> Sharding:
    """The layout with the canonical name of every device."""
    names = tuple(Device.canonicalize(name) for name in layout.devices)
    files = [name for name in names if is_file(name)]
    if files:
        raise ShardingError(
            f"a tensor is not sharded over files, as {', '.join(files)}; write its shards one by "
            "one, as in tensor.shards[0].to('disk:/path'), or save it with nn.state.safe_save"
        )
    return layout if names == layout.devices else Sharding(names, layout.axes, layout.mesh_shape)


def placed(node: UOp, device: DeviceLike) -> UOp:
    """A new value on `device`; with None, a value of constants stays on no device.

    A layout that shards an axis that the shape lacks, or has with size 1, becomes replicated.
    """
    device = canonical_device(device)
    if device is None:
        return node
    return node.copy_to_device(fitting_layout(device, node.shape))


def fitting_layout(device: TensorDevice, shape: SymbolicShape) -> TensorDevice:
    """`device`, replicated if it is a layout that shards an axis that `shape` cannot shard."""
    if isinstance(device, Sharding) and not can_shard(device, shape):
        return device.replicated()
    return device


def without_unit_axes(device: TensorDevice, shape: SymbolicShape) -> TensorDevice:
    """`device`, or if it is a layout: replicated along axes of size 1, and for a scalar everywhere.

    Other axes that `shape` lacks stay, and are an error when the layout is used.
    """
    if not isinstance(device, Sharding):
        return device
    if not shape:
        return device.replicated()
    return (
        operand_layout(device, shape) if len(shape) > max(device.split_axes, default=0) else device
    )


def in_own_memory(node: UOp) -> UOp:
    """`node` written to a new buffer that no equal value shares; contiguous if symbolic."""
    device = computing_device(node.device) or Device.DEFAULT
    sizes = node.shape
    if not all_int(sizes):
        return node.copy_to_device(device).contiguous()
    return UOp.new_buffer(device, sizes, node.dtype).assign(node)


def moved_to(node: UOp, target: TensorDevice) -> UOp:
    """A value on another device. A buffer without content is not copied but created there."""
    if node.op is Ops.BUFFER and not node.is_realized and node.device != target:
        if isinstance(target, Sharding):
            target.check(node.shape)
        return UOp.new_buffer(target, node.arg.shape, node.dtype)
    return node.copy_to_device(target)


def recreated_on(node: UOp, target: TensorDevice) -> UOp | None:
    """A constant that waits to be written to a new buffer, written to one on `target` instead.

    None for any other value.
    """
    if node.op is not Ops.ASSIGN or node.src[0].op is not Ops.BUFFER or node.src[0].is_realized:
        return None
    constant = node.src[1]
    if not is_constant(constant):
        return None
    while constant.op is Ops.COPY:
        constant = constant.src[0]
    return in_own_memory(constant.copy_to_device(target))
