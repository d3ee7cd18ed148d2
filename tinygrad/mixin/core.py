"""Base of all mixins: the properties of a tensor, and results derived from its node.

Input: tensors. Output: new tensors of derived nodes. Invariant: a result requires a gradient if one
of its operands does, unless gradients are disabled. Mutation of tensors is in `tinygrad.storage`.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.device import Device
from tinygrad.dtype import DType, DTypeLike, dtypes, to_dtype
from tinygrad.errors import ArgumentError, ArgumentIndexError
from tinygrad.helpers import prod
from tinygrad.storage.gradients.grad_mode import GradState, gradients_disabled, open_blocks
from tinygrad.storage.live_tensors import TensorBase
from tinygrad.uop import Ops
from tinygrad.uop.arguments import is_integer, plain_number
from tinygrad.uop.broadcast import operand_node, operator_name
from tinygrad.uop.device_value import TensorDevice, replicated, tensor_device
from tinygrad.uop.ops import UOp
from tinygrad.uop.reshard import off_files, unshard_axis
from tinygrad.uop.sint import as_number


def check_tensors(op: str, **arguments: Any) -> None:
    """Raise TypeError unless each argument of `op` is a tensor."""
    for name, x in arguments.items():
        if not isinstance(x, TensorCore):
            raise TypeError(
                f"{op} takes a tensor as {name}, not {x!r} of type {type(x).__name__}; "
                "wrap it: Tensor(...)"
            )


class TensorCore(TensorBase):
    """`shape`, `dtype`, `device`, `cast`, `detach`, and helpers of the other mixins."""

    __slots__ = ()

    def _derive(self, uop: UOp, *others: TensorCore) -> Self:
        """The result of an operation on this tensor and `others`, as a tensor."""
        wanted = self._requires_grad
        for other in others:
            if wanted:
                break
            theirs = other._requires_grad
            if theirs is not False:
                wanted = theirs
        return self._with_state(uop, wanted)

    def _with_state(self, uop: UOp, wanted: GradState) -> Self:
        """A result in memory of its own, of operands whose state is `wanted`."""
        if open_blocks.count and gradients_disabled():
            return self._new(uop if wanted is False else uop.detach(), False)
        return self._new(uop, wanted and True)

    def _unshard_axis(self, axis: int) -> Self:
        """The same value with `axis` unsharded, an error in strict mode."""
        return self._derive(unshard_axis(self.uop, axis, is_implicit=True))

    def _beside(self, *others: Self) -> tuple[Self, ...]:
        """This tensor and `others`, those in files read on the device of the rest: a cast of one
        alone would read it on the default device.
        """
        tensors = (self, *others)
        nodes = off_files(*[x.uop for x in tensors])
        pairs = zip(tensors, nodes, strict=True)
        return tuple(x if node is x.uop else x._derive(node) for x, node in pairs)

    def _operand(self, x: Any, op: str = "this operation") -> UOp:
        """`x` as an operand next to this tensor, with its own dtype if it is a tensor. Raises
        ValueError for a number that the tensor's dtype cannot hold.
        """
        if isinstance(x, TensorCore):
            return x.uop
        if isinstance(x, (int, float)):
            return operand_node(x, self.uop.dtype, op)
        if isinstance(x, UOp):
            return as_number(x)
        plain = plain_number(x)
        if plain is not x:
            return self._operand(plain, op)
        if hasattr(x, "__array__"):
            return self._from_host(x).uop
        name = operator_name(op)
        if x is None:
            raise TypeError(
                f"{name} takes a tensor or a number, not None; test for it by `is None`"
            )
        raise TypeError(
            f"{name} takes a tensor or a number, not {x!r} of type {type(x).__name__}; "
            "wrap it: Tensor(...)"
        )

    def _from_host(self, data: Any, dtype: DTypeLike | None = None) -> Self:
        """A list or an array as a tensor on every device of this one."""
        return type(self)(data, device=replicated(self.uop.device), dtype=dtype)  # type: ignore[call-arg]

    @property
    def dtype(self) -> DType:
        """The data type of the elements.

        >>> Tensor([1, 2]).dtype
        dtypes.int
        """
        return self.uop.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The size of each axis: an int, or an expression of bound Variables.

        >>> Tensor([[1, 2, 3]]).shape
        (1, 3)
        """
        return self.uop.shape

    @property
    def device(self) -> TensorDevice:
        """The device: a name, or a `Sharding` over several."""
        device = self.uop.device
        return Device.DEFAULT if device is None else tensor_device(device)

    @property
    def ndim(self) -> int:
        """The number of axes.

        >>> Tensor([[1, 2], [3, 4]]).ndim
        2
        """
        return len(self.uop.shape)

    def numel(self) -> Any:
        """The number of elements.

        >>> Tensor([[1, 2], [3, 4]]).numel()
        4
        """
        return prod(self.uop.shape)

    def element_size(self) -> int:
        """The size of an element, in bytes.

        >>> Tensor([5], dtype=dtypes.int16).element_size()
        2
        """
        return self.uop.dtype.itemsize

    def nbytes(self) -> Any:
        """The size of all elements, in bytes.

        >>> Tensor([8, 9], dtype=dtypes.float).nbytes()
        8
        """
        return prod((*self.uop.shape, self.element_size()))

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating-point type.

        >>> Tensor([8, 9], dtype=dtypes.float32).is_floating_point()
        True
        """
        return dtypes.is_float(self.uop.dtype)

    def size(self, dim: int | None = None) -> Any:
        """The size of axis `dim`, or all sizes.

        >>> Tensor([[4, 5, 6], [7, 8, 9]]).size(1)
        3
        """
        if dim is None:
            return self.shape
        if not self.shape:
            raise ArgumentIndexError(
                f"size({dim}): a tensor without axes has the shape (); use size()"
            )
        return self.shape[self._axis(dim)]

    def __len__(self) -> int:
        """The size of the first axis. Raises TypeError for a tensor without axes."""
        if not self.shape:
            raise TypeError("a tensor without axes has no len(); its value is item()")
        return int(self.shape[0])

    def _axis(self, dim: int, extra: int = 0) -> int:
        """An axis as a nonnegative int; negative axes count from the end.

        Raises IndexError if it is out of range for `ndim + extra` axes, where 0 axes count as one;
        TypeError for anything but integers.
        """
        if dim.__class__ is not int:
            if not is_integer(dim):
                raise TypeError(f"an axis of shape {self.shape} is an integer, not {dim!r}")
            dim = int(dim)
        count = len(self.uop.shape) + extra
        limit = max(1, count)
        if not -limit <= dim < limit:
            raise ArgumentIndexError(
                f"there is no axis {dim} in shape {self.shape}; use {-limit} to {limit - 1}"
            )
        return dim + count if dim < 0 and count else max(dim, 0)

    def _known_axis(self, dim: int, name: str) -> int:
        """`_axis` for the operation `name`. Raises ValueError for an axis of symbolic size."""
        axis = self._axis(dim)
        if self.ndim and not isinstance(self.shape[axis], int):
            raise ArgumentError(
                f"{name} along axis {axis} of {self.shape}: the size must be known when the graph "
                "is built; pad to the maximum with pad_to"
            )
        return axis

    def cast(self, dtype: DTypeLike) -> Self:
        """Cast the values to `dtype`.

        >>> Tensor([-1, 2.5, 3], dtype=dtypes.float).cast(dtypes.int32).tolist()
        [-1, 2, 3]
        """
        dtype = to_dtype(dtype)
        return self if self.uop.dtype == dtype else self._derive(self.uop.cast(dtype))

    def detach(self) -> Self:
        """The same value, detached from the gradient.

        >>> Tensor([1.0], requires_grad=True).detach().requires_grad
        False
        """
        view = self._view(self.uop.detach(), Ops.DETACH, None)
        view._requires_grad = False
        return view
