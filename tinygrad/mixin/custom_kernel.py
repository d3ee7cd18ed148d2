"""Custom kernels: kernels written in the kernel language, as operations on tensors.

Input: tensors, and a function that writes a kernel over placeholders for them. Output: tensors of
the content of each one's memory after the kernel. Invariant: a kernel writes only to memory that it
was given for writing, and everything that reads older content of that memory runs before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Self, cast

from tinygrad.gradient import CustomRule, with_gradient
from tinygrad.helpers import all_int
from tinygrad.mixin.core import TensorCore
from tinygrad.schedule.kernel.custom_kernel import (
    CustomKernelError,
    bindings,
    lower_custom_kernel,
    written_slots,
)
from tinygrad.sharding import Sharding, ShardingError
from tinygrad.sharding.placement_rule import parse_rule
from tinygrad.storage.aliases import owns_memory, set_whole, updated_whole, whole_value
from tinygrad.storage.lock import exclusive
from tinygrad.storage.placement import in_own_memory
from tinygrad.storage.readers import kernel_outputs
from tinygrad.uop import Ops
from tinygrad.uop.args import CustomKernelArg
from tinygrad.uop.broadcast import format_shape
from tinygrad.uop.device_value import DeviceValue, is_file
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import (
    computing_device,
    layouts_for_custom_kernel,
    reshard_for_custom_kernel,
)

REDUCTIONS = {"sum": "ADD", "prod": "MUL", "max": "MAX"}
KernelFunction = Callable[..., UOp]
GradientFunction = Callable[[UOp, UOp], Sequence[UOp | None]]


class CustomKernelMixin(TensorCore):
    """`custom_kernel`."""

    __slots__ = ()

    @exclusive
    def custom_kernel(
        self,
        *lst: Self,
        fxn: KernelFunction,
        grad_fxn: GradientFunction | None = None,
        rule: str | None = None,
        reduce: str = "sum",
    ) -> list[Self]:
        """Run a kernel that `fxn` writes; returns each tensor with its content after the kernel.

        `fxn` takes a placeholder for each tensor, of its shape and dtype, and returns a `sink()` of
        stores. The kernel writes in place to tensors that are in memory or from `Tensor.empty`,
        as `assign()` does; of other tensors, it writes a copy.

        `fxn` may use bound Variables; `kernel.src` has their values after those of the tensors.

        `grad_fxn(gradient, kernel)` returns, for each tensor in turn, the gradient by its value
        before the kernel, or None. `gradient` is that by output number `kernel.arg.output`, and
        `kernel.src` are the tensors' values. It is called for each output that has a gradient.

        Sharded tensors need a `rule` that names their axes, inputs and then outputs, as in
        `"m k, k n -> m n"`; the tensors are passed outputs first. Axes of one name are sharded
        alike, inputs are resharded for that, and `fxn` gets local shapes. Where an output lacks a
        sharded axis, each device writes partial results over uninitialized memory, and `reduce`
        ("sum", "prod", "max") combines them. An axis in brackets, `[k]`, is never sharded; one that
        an output lacks is sharded only if its size divides.

        Raises CustomKernelError for an invalid kernel, ShardingError for tensors that are on
        different devices, are sharded without a rule, or do not fit the rule.

        >>> from tinygrad import UOp
        >>> def double(result, x):
        ...     i = UOp.range(x.numel(), 0)
        ...     return result[i].store(x[i] * 2).end(i).sink()
        >>> result = Tensor.empty(3, dtype=dtypes.int)
        >>> result.custom_kernel(Tensor([1, 2, 3]), fxn=double)[0].tolist()
        [2, 4, 6]
        """
        tensors = (self, *lst)
        name = getattr(fxn, "__name__", "kernel")
        _check_inputs(name, tensors)
        devices = _devices(name, tensors, rule, reduce)
        shapes = [
            d.local_shape(x.shape) if isinstance(d, Sharding) else x.shape
            for x, d in zip(tensors, devices, strict=True)
        ]
        kernel, variables = _kernel_of(fxn, name, tensors, shapes)
        written = written_slots(kernel)
        if rule is not None:
            _check_outputs(kernel.arg.name, written, rule)
        for i in written:
            _check_written(kernel.arg.name, i, tensors[i])
            _own_written(tensors[i])
        sources = tuple(
            _written_memory(x.uop, device)
            if i in written
            else reshard_for_custom_kernel(x.uop, device)
            for i, (x, device) in enumerate(zip(tensors, devices, strict=True))
        )
        arg = CustomKernelArg(kernel, written, written[0])
        node = UOp(Ops.CUSTOM_KERNEL, sources[written[0]].dtype, (*sources, *variables), arg)
        results = [x._derive(source, *tensors) for x, source in zip(tensors, sources, strict=True)]
        for i, value in zip(written, kernel_outputs(node), strict=True):
            if grad_fxn is not None:
                with_gradient(value.src[-1], _checked(grad_fxn, kernel.arg.name), *sources)
            if is_uninitialized(tensors[i].uop) or tensors[i].uop is sources[i]:
                set_whole(tensors[i], updated_whole(tensors[i], value))
                results[i]._alias(tensors[i])
            else:
                results[i]._set_node(value)
        return results


def _check_inputs(name: str, tensors: tuple[TensorCore, ...]) -> None:
    for i, x in enumerate(tensors):
        if not isinstance(x, TensorCore):
            raise TypeError(f"custom kernel {name}: input {i} is {x!r}, not a tensor")


def _devices(
    name: str, tensors: tuple[TensorCore, ...], rule: str | None, reduce: str
) -> Sequence[DeviceValue]:
    """The device or layout that the kernel needs each tensor in. Raises ShardingError if none."""
    if reduce not in REDUCTIONS:
        raise ShardingError(
            f"custom kernel {name}: reduce={reduce!r} is not one of {', '.join(REDUCTIONS)}"
        )
    # uninitialized tensors are allocated where they are needed, unless all are uninitialized
    devices = [None if is_uninitialized(x.uop) else computing_device(x.uop.device) for x in tensors]
    if all(device is None for device in devices):
        devices = [x.device for x in tensors]
    nodes = [x.uop for x in tensors]
    return layouts_for_custom_kernel(name, nodes, devices, rule, REDUCTIONS[reduce])


def _check_outputs(name: str, written: tuple[int, ...], rule: str) -> None:
    count = len(parse_rule(rule).outputs)
    if written != tuple(range(count)):
        raise ShardingError(
            f"custom kernel {name}: it writes the tensors {written}, but by the rule {rule!r} the "
            f"first {count} are its outputs; name them after the arrow and pass them first"
        )


def _check_written(name: str, number: int, x: TensorCore) -> None:
    if is_file(x.device):
        raise CustomKernelError(
            f"custom kernel {name}: it writes tensor {number}, which is in the file {x.device}; "
            "pass Tensor.empty(...), and assign the result to the tensor in the file"
        )
    if not all_int(x.shape):
        raise CustomKernelError(
            f"custom kernel {name}: it writes tensor {number}, which has the symbolic shape "
            f"{format_shape(x.shape)}; pass the maximum size, and bound the loops or use valid()"
        )


def _kernel_of(
    fxn: KernelFunction,
    name: str,
    tensors: tuple[TensorCore, ...],
    shapes: Sequence[tuple[int, ...]],
) -> tuple[UOp, tuple[UOp, ...]]:
    """The kernel graph that a user's function writes for these tensors, and its bound Variables."""
    placeholders = tuple(
        UOp.placeholder(shape, x.dtype, i)
        for i, (x, shape) in enumerate(zip(tensors, shapes, strict=True))
    )
    try:
        inspect.signature(fxn).bind(*placeholders)
    except TypeError as error:
        raise CustomKernelError(
            f"custom kernel {name}: it is called with {len(placeholders)} tensors, so the function "
            f"must take as many placeholders ({error})"
        ) from None
    sink = fxn(*placeholders)
    if not isinstance(sink, UOp) or sink.op is not Ops.SINK:
        found = sink.op.name if isinstance(sink, UOp) else repr(sink)
        raise CustomKernelError(
            f"custom kernel {name}: the function returned {found}; end it with .sink(), as in "
            "C[i].store(value).end(i).sink()"
        )
    return lower_custom_kernel(sink, name, placeholders), bindings(sink)


def is_row_major_memory(node: UOp) -> bool:
    """Whether a value is all of a buffer, in order, so that it can be written in place."""
    while node.op in {Ops.RESHAPE, Ops.ASSIGN}:
        node = node.src[0]
    return node.op is Ops.BUFFER


def is_uninitialized(node: UOp) -> bool:
    """Whether a value is uninitialized memory."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op is Ops.BUFFER and not node.is_realized


def _own_written(x: TensorCore) -> None:
    """Give a tensor in memory that another one writes a copy, which the kernel writes."""
    if is_row_major_memory(x.uop) and not is_uninitialized(x.uop) and not owns_memory(x):
        set_whole(x, in_own_memory(whole_value(x)))


def _written_memory(node: UOp, device: DeviceValue) -> UOp:
    """Memory on `device` with the content of `node`; uninitialized for partial results."""
    is_partial = isinstance(device, Sharding) and device.is_partial
    if is_partial or (is_uninitialized(node) and node.device != device):
        return UOp.new_buffer(device, cast("tuple[int, ...]", node.shape), node.dtype)
    node = reshard_for_custom_kernel(node, device)
    return node if is_row_major_memory(node) else in_own_memory(node)


def _checked(grad_fxn: GradientFunction, name: str) -> CustomRule:
    """The gradient rule of a CUSTOM_KERNEL: the user's, with its result checked."""

    def rule(gradient: UOp, kernel: UOp, *sources: UOp) -> Sequence[UOp | None]:
        found = grad_fxn(gradient, kernel)
        if not isinstance(found, (tuple, list)) or len(found) != len(sources):
            raise CustomKernelError(
                f"custom kernel {name}: grad_fxn returned {found!r}; it must return a tuple of "
                f"{len(sources)}, a gradient or None for each tensor"
            )
        for i, (part, source) in enumerate(zip(found, sources, strict=True)):
            if part is None:
                continue
            if not isinstance(part, UOp):
                raise CustomKernelError(
                    f"custom kernel {name}: gradient {i} is {part!r}; return the .uop of a tensor"
                )
            if part.shape != source.shape or part.dtype != source.dtype:
                raise CustomKernelError(
                    f"custom kernel {name}: gradient {i} is {part.dtype} of shape {part.shape}, "
                    f"but the tensor is {source.dtype} of shape {source.shape}"
                )
        return found

    return rule
