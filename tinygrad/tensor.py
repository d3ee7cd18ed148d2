"""`Tensor`: a lazy multi-dimensional array, on one device or sharded over several.

Input: numbers, arrays, and operations on tensors; each operation is a method of a family in
`mixin/`. Output: a graph that `realize`, `numpy` and `item` compute. Invariant: the value of a
tensor does not depend on its device or layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any, ClassVar, Self, cast

from tinygrad.device import Device
from tinygrad.dtype import DType, DTypeLike, dtypes, to_dtype
from tinygrad.dtype import to_numpy_dtype as _to_np_dtype
from tinygrad.fetch import fetch
from tinygrad.mixin.core import check_tensors
from tinygrad.mixin.custom_kernel import CustomKernelMixin
from tinygrad.mixin.elementwise.casting import CastMixin
from tinygrad.mixin.hashing import HashMixin
from tinygrad.mixin.inplace import InplaceMixin
from tinygrad.mixin.linalg.decompositions import LinalgMixin
from tinygrad.mixin.memory.interchange import InterchangeMixin
from tinygrad.mixin.movement.rearrange import RearrangeMixin
from tinygrad.mixin.nn.attention import AttentionMixin
from tinygrad.mixin.nn.conv import ConvMixin
from tinygrad.mixin.nn.interpolation import InterpolationMixin
from tinygrad.mixin.nn.losses import LossMixin
from tinygrad.mixin.nn.normalization import NormalizationMixin
from tinygrad.mixin.nn.pool import PoolMixin
from tinygrad.mixin.sharding.shards import ShardsMixin
from tinygrad.mixin.sharding.visualization import VisualizationMixin
from tinygrad.sharding import Sharding
from tinygrad.sharding.drawing import where
from tinygrad.storage.files import place_or_create_file
from tinygrad.storage.gradients.backward import gradients
from tinygrad.storage.gradients.grad_mode import Derived, enter_no_grad, exit_no_grad
from tinygrad.storage.gradients.partial_gradients import (
    keep_partial_gradients,
    keeps_partial_gradients,
)
from tinygrad.storage.host.arrays import data_node, foreign_node
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.pickling import Membership, RestoredMembers, membership
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.device_value import DeviceLike
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import computing_device

# `cast` and `_to_np_dtype` are names that programs for tinygrad 0.12 import from here
__all__ = ["Tensor", "_to_np_dtype", "cast"]


class Tensor(
    AttentionMixin,
    ConvMixin,
    PoolMixin,
    LossMixin,
    NormalizationMixin,
    RearrangeMixin,
    InterpolationMixin,
    LinalgMixin,
    HashMixin,
    CustomKernelMixin,
    InterchangeMixin,
    InplaceMixin,
    CastMixin,
    VisualizationMixin,
    ShardsMixin,
):
    """A multi-dimensional array: `Tensor(data, device, dtype, requires_grad)`.

    `data` is a number, a (nested) list of numbers, bytes, a numpy array, the path of a file (its
    bytes), None (no elements), or a tensor, whose memory is shared. A number is on no device until
    it is combined with a tensor; other data is copied to `device`, by default `Device.DEFAULT`.
    Raises TypeError and ValueError for data that is not an array of numbers.

    >>> Tensor([[1, 2], [3, 4]], dtype=dtypes.float).numpy()
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """

    __slots__ = ()

    training: ClassVar[bool] = False
    """Whether layers that behave differently in training (dropout, batch norm) do so."""

    def __init__(
        self,
        data: Any,
        device: DeviceLike = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        wanted = None if dtype is None else to_dtype(dtype)
        if isinstance(data, Tensor):
            node = data.uop if wanted is None else data.uop.cast(wanted)
        else:
            node = data_node(data, wanted)
        if node.device == "NPY" and device is None:
            device = Device.DEFAULT
        self.uop = place_or_create_file(type(self), node, device)
        self.grad = None
        self._requires_grad = None
        live_tensors.add(self)
        if isinstance(data, Tensor) and self.uop is data.uop:
            self._alias(data)
        self.requires_grad = requires_grad

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies have memory of their own, on the same devices; on the default device
        if this tensor is in a file. A tensor and its views that are pickled or copied together
        share it; a view alone is its own elements.
        """
        device = computing_device(self.uop.device)
        values, view = self.numpy(), membership(self)
        cell = None if view is None else self._cell
        state = (values, self.dtype, device, self.requires_grad)
        return _restored, (type(self), *state, cell, view)

    def __repr__(self) -> str:
        return f"<Tensor {self.dtype} {where(self.device, self.shape)}: {self.uop.op.name}>"

    @classmethod
    def from_uop(cls, y: UOp, **kwargs: Any) -> Self:
        """A tensor of a graph node, such as a bound Variable.

        >>> Tensor.from_uop(Variable("n", 1, 9).bind(3)).item()
        3
        """
        return cls(y, **kwargs)

    @classmethod
    def from_blob(cls, ptr: int, shape: tuple[int, ...], **kwargs: Any) -> Self:
        """A tensor in external memory at address `ptr`, without a copy; it must outlive the tensor.

        >>> array = numpy.arange(3, dtype=numpy.int32)
        >>> Tensor.from_blob(array.ctypes.data, (3,), dtype=dtypes.int).tolist()
        [0, 1, 2]
        """
        dtype = to_dtype(kwargs.pop("dtype", dtypes.default_float))
        device = Device.canonicalize(kwargs.pop("device", None))
        new = cls(foreign_node(ptr, shape, dtype, device), **kwargs)
        new._own_memory()
        return new

    @classmethod
    def from_url(cls, url: str, gunzip: bool = False, **kwargs: Any) -> Self:
        """The bytes of a download, which is cached on disk."""
        return cls(fetch(url, gunzip=gunzip), **kwargs)

    def sequential(self, ll: Sequence[Callable[[Any], Any]]) -> Any:
        """Apply functions in sequence, each to the result of the one before.

        >>> Tensor([1, 2]).sequential([lambda x: x * 2, lambda x: x + 1]).tolist()
        [3, 5]
        """
        return functools.reduce(lambda x, f: f(x), ll, self)

    def callify(self, *lst: Self) -> Self:
        """This tensor: in tinygrad 0.13, a call of the graph of it and others; here graphs need no
        mark to be planned once and reused.

        >>> (Tensor([1, 2]) + 1).callify().tolist()
        [2, 3]
        """
        check_tensors("callify", **{f"tensor {i}": x for i, x in enumerate(lst)})
        return self

    # ---- gradients ----

    def gradient(
        self, *targets: Self, gradient: Self | None = None, materialize_grads: bool = False
    ) -> list[Self]:
        """The gradients of this tensor by each of `targets`, as new tensors.

        A tensor of several elements needs `gradient`, the upstream gradient of its shape; that of
        a tensor without axes may have any shape of one element. With
        `materialize_grads`, targets that it does not depend on get zeros. Raises RuntimeError for
        such a target otherwise, for a missing `gradient`, and for a tensor of integers or bools.

        >>> x = Tensor([1.0, 2.0])
        >>> (x * x).sum().gradient(x)[0].tolist()
        [2.0, 4.0]
        """
        for x in targets:
            check_tensors("gradient", target=x)
        found = gradients(self.uop, self._root_gradient(gradient), targets)
        state = True if self._requires_grad else None
        results = []
        for i, x in enumerate(targets):
            node = found.get(x.uop)
            if node is None and not materialize_grads:
                raise RuntimeError(
                    f"gradient: the tensor does not depend on target {i}, {x!r}; leave it out, "
                    "or pass materialize_grads=True for zeros"
                )
            results.append(x.zeros_like() if node is None else self._new(node, state))
        return results

    def _root_gradient(self, gradient: Self | None) -> UOp:
        if not self.is_floating_point():
            raise RuntimeError(
                f"a tensor of {self.dtype} has no gradient; cast it to float before the "
                "operations to differentiate"
            )
        if gradient is None:
            if self.shape != ():
                raise RuntimeError(
                    f"the gradient of a tensor of shape {self.shape} needs the upstream gradient, "
                    "gradient=; or reduce it first, as with .sum()"
                )
            return const_node(1, self.dtype)
        check_tensors("the gradient", gradient=gradient)
        if self.shape == () and gradient.numel() == 1:
            return gradient.uop.reshape(()).cast(self.dtype)
        if gradient.shape != self.shape:
            raise RuntimeError(
                f"the upstream gradient has shape {gradient.shape}, not {self.shape}"
            )
        return gradient.uop.cast(self.dtype)

    def backward(self, gradient: Self | None = None, retain_graph: bool = False) -> Self:
        """Accumulate the gradients of this tensor in `grad` of all tensors that require one.

        `grad` stays one object, to which each call adds. `gradient` is the upstream gradient. What
        was stored on the way loses its history: a second `backward()` through it needs
        `retain_graph=True` in the first. Raises RuntimeError for a tensor of several elements
        without `gradient`, for a tensor of integers or bools, if it depends on no tensor that
        requires a gradient, and if a gradient needs a history that was not kept, or a value that
        was modified in place.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        wanted = [x for x in live_tensors.requiring_grad() if isinstance(x, Tensor)]
        found = gradients(self.uop, self._root_gradient(gradient), wanted, not retain_graph)
        if not found:
            raise RuntimeError(
                f"backward: {self!r} depends on no tensor that requires a gradient; set "
                "requires_grad=True on those to differentiate by, before computing with them"
            )
        for x in wanted:
            node = found.get(x.uop)
            if node is not None:
                new = self._new(node.detach(), False)
                x._add_gradient(new)
                if x._requires_grad is True and not retain_graph:
                    x._requires_grad = Derived.DIFFERENTIATED
        return self

    def _add_gradient(self, new: Self) -> None:
        """Add to `grad` in place, so that it stays one object and keeps its memory."""
        if self.grad is None:
            self.grad = new
        elif keeps_partial_gradients() and isinstance(self.grad.uop.device, Sharding):
            # the sum of partial sums is one
            self.grad.replace(self.grad + new)
        else:
            self.grad.assign((self.grad + new).cast(self.grad.dtype))

    # ---- modes ----

    @staticmethod
    def accumulate_gradients() -> AbstractContextManager[None]:
        """A `with` block in which realizing the `grad` of a tensor runs no all-reduce.

        A gradient that would be all-reduced to a replicated layout is stored as partial sums, which
        take as much memory. Those of several `backward()` accumulate. The all-reduce runs where the
        gradient is read after the block, or realized for good. Values and layouts are the same as
        without the block.

        >>> weight = Tensor.ones(3).contiguous().shard(("CPU", "CPU:1")).realize()
        >>> weight.requires_grad = True
        >>> for value in (1.0, 2.0):
        ...     x = Tensor.full((4, 3), value).contiguous().shard(("CPU", "CPU:1"), axis=0)
        ...     _ = (x * weight).sum().backward()
        ...     with Tensor.accumulate_gradients():
        ...         _ = weight.grad.realize()
        >>> weight.grad.tolist()  # runs the all-reduce
        [12.0, 12.0, 12.0]
        """
        return keep_partial_gradients()

    class no_grad(ContextDecorator):
        """A `with` block, or a function decorator, whose results require no gradient and keep no
        history. It belongs to the thread.

        >>> x = Tensor([1.0, 2.0], requires_grad=True)
        >>> with Tensor.no_grad():
        ...     (x * 2).requires_grad
        False
        """

        def __enter__(self) -> None:
            enter_no_grad()

        def __exit__(self, *exception: object) -> None:
            exit_no_grad()

    class train(ContextDecorator):
        """Set `Tensor.training` for a `with` block, or as a decorator for a function.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        """

        def __init__(self, mode: bool = True) -> None:
            self.mode = mode

        def __enter__(self) -> None:
            self.previous, Tensor.training = Tensor.training, self.mode

        def __exit__(self, *exception: object) -> None:
            Tensor.training = self.previous


def _restored(
    kind: type[Tensor],
    values: Any,
    dtype: DType,
    device: DeviceLike,
    requires_grad: bool | None,
    members: RestoredMembers | None = None,
    view: Membership | None = None,
) -> Tensor:
    restored = kind(values, device=device, dtype=dtype, requires_grad=requires_grad)
    if members is not None and view is not None:
        members.add(restored, view)
    return restored
