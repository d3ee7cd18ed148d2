"""Kernels written by hand, as operations on tensors.

In: tensors, and a function that writes a kernel over placeholders for them. Out: tensors that hold
what is in the memory of each of them after the kernel. Always true: a kernel writes to memory that
somebody asked it to write to, and everything that reads an older content of it runs before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

from tinygrad.gradient import CustomRule, with_gradient
from tinygrad.helpers import all_int
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.creation import in_own_memory
from tinygrad.mixin.realization import kernel_outputs, remember_assignment
from tinygrad.schedule.custom import CustomKernelError, lower_custom_kernel, written_slots
from tinygrad.sharding import Sharding, ShardingError
from tinygrad.uop import Ops
from tinygrad.uop.args import CustomKernelArg
from tinygrad.uop.ops import UOp

KernelFunction = Callable[..., UOp]
GradientFunction = Callable[[UOp, UOp], Sequence[UOp | None]]


class CustomKernelMixin(TensorCore):
    """`custom_kernel`."""

    __slots__ = ()

    def custom_kernel(
        self, *lst: Self, fxn: KernelFunction, grad_fxn: GradientFunction | None = None
    ) -> list[Self]:
        """What is in each of some tensors after a kernel that `fxn` writes.

        `fxn` gets a placeholder for each tensor, of its shape and dtype, and returns a `sink()` of
        stores. Tensors that the kernel writes keep the result, as after `assign()`, if they are in
        memory or from `Tensor.empty`; of any other, a copy is written.

        `grad_fxn(gradient, kernel)` gives, for each tensor in turn, the gradient by its value
        before the kernel, or None. `gradient` is by the output that `kernel` stands for, number
        `kernel.arg.output`; `kernel.src` are the tensors' values. It is called for each output that
        a gradient comes from.

        Raises CustomKernelError for a kernel that makes no sense, ShardingError for tensors that do
        not live together or are split.

        >>> def double(result, x):
        ...     i = UOp.range(x.numel(), 0)
        ...     return result[i].store(x[i] * 2).end(i).sink()
        >>> result = Tensor.empty(3, dtype=dtypes.int)
        >>> result.custom_kernel(Tensor([1, 2, 3]), fxn=double)[0].tolist()
        [2, 4, 6]
        """
        tensors = (self, *lst)
        name = getattr(fxn, "__name__", "kernel")
        device = _common_device(name, tensors)
        kernel = _kernel_of(fxn, name, tensors)
        written = written_slots(kernel)
        sources = tuple(
            _written_memory(x, device) if i in written else _on(x.uop, device)
            for i, x in enumerate(tensors)
        )
        node = _output(sources, CustomKernelArg(kernel, written, written[0]))
        values = dict(zip(written, kernel_outputs(node), strict=True))
        results = []
        for i, x in enumerate(tensors):
            value = values.get(i)
            if value is not None:
                if grad_fxn is not None:
                    with_gradient(value.src[1], _checked(grad_fxn, kernel.arg.name), *sources)
                remember_assignment(value)
                if is_whole_memory(x.uop):
                    x.uop = value
            results.append(x._derive(sources[i] if value is None else value, *tensors))
        return results


def _output(sources: tuple[UOp, ...], arg: CustomKernelArg) -> UOp:
    return UOp(Ops.CUSTOM_KERNEL, sources[arg.output].dtype, sources, arg)


def _common_device(name: str, tensors: tuple[TensorCore, ...]) -> Any:
    """The one device or layout of all tensors. Raises ShardingError if there is none."""
    for i, x in enumerate(tensors):
        if not isinstance(x, TensorCore):
            raise TypeError(f"custom kernel {name}: input {i} is {x!r}, not a tensor")
        if not all_int(x.shape):
            raise CustomKernelError(
                f"custom kernel {name}: input {i} has the symbolic shape {x.shape}; pass all of "
                "its memory, and the length as a tensor of one element"
            )
    devices = list(dict.fromkeys(x.uop.device for x in tensors if x.uop.device is not None))
    if len(devices) > 1:
        raise ShardingError(
            f"custom kernel {name}: its tensors live on {' and '.join(map(str, devices))}; bring "
            "them together first with .to() or .shard()"
        )
    device = devices[0] if devices else tensors[0].device
    if isinstance(device, Sharding) and not device.is_replicated:
        raise ShardingError(
            f"custom kernel {name}: its tensors are split, {device}, and nothing says how it works "
            "on parts; pass full copies, x.to(x.device.replicated())"
        )
    return device


def _kernel_of(fxn: KernelFunction, name: str, tensors: tuple[TensorCore, ...]) -> UOp:
    """The kernel graph that a user's function writes for tensors like these."""
    placeholders = tuple(UOp.placeholder(x.shape, x.dtype, i) for i, x in enumerate(tensors))
    try:
        inspect.signature(fxn).bind(*placeholders)
    except TypeError as error:
        raise CustomKernelError(
            f"custom kernel {name}: it is given {len(placeholders)} tensors, so the function has "
            f"to take as many placeholders ({error})"
        ) from None
    sink = fxn(*placeholders)
    if not isinstance(sink, UOp) or sink.op is not Ops.SINK:
        found = sink.op.name if isinstance(sink, UOp) else repr(sink)
        raise CustomKernelError(
            f"custom kernel {name}: the function returned {found}; end it with .sink(), as in "
            "C[i].store(value).end(i).sink()"
        )
    return lower_custom_kernel(sink, name, placeholders)


def is_whole_memory(node: UOp) -> bool:
    """Whether a value is all of a buffer, in order: what is written to it stays there."""
    while node.op in {Ops.RESHAPE, Ops.ASSIGN}:
        node = node.src[0]
    return node.op is Ops.BUFFER


def _written_memory(x: TensorCore, device: Any) -> UOp:
    node = _on(x.uop, device)
    return node if is_whole_memory(node) else in_own_memory(node)


def _on(node: UOp, device: Any) -> UOp:
    return node if node.device is not None else node.copy_to_device(device)


def _checked(grad_fxn: GradientFunction, name: str) -> CustomRule:
    """The rule of a CUSTOM_KERNEL: the user's, whose result has to fit."""

    def rule(gradient: UOp, kernel: UOp, *sources: UOp) -> Sequence[UOp | None]:
        found = grad_fxn(gradient, kernel)
        if not isinstance(found, (tuple, list)) or len(found) != len(sources):
            raise CustomKernelError(
                f"custom kernel {name}: grad_fxn returned {found!r}; it has to return a tuple of "
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
