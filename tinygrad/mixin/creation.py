"""Creation of tensors: constants, ranges, identity and triangular matrices.

Input: sizes and numbers. Output: tensors of constants. Without `device=`, they are on no device and
take no memory; they combine with tensors on any device.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.device import Device
from tinygrad.dtype import ConstType, DType, DTypeLike, dtypes, to_dtype
from tinygrad.errors import ArgumentError
from tinygrad.helpers import all_int, argfix, ceildiv
from tinygrad.mixin.elementwise.unary import ElementwiseMixin
from tinygrad.mixin.movement.reshape import MovementMixin
from tinygrad.sharding import max_shape
from tinygrad.storage.files import open_file, place_or_create_file
from tinygrad.storage.gradients.grad_mode import Leaf, marks
from tinygrad.storage.live_tensors import live_tensors
from tinygrad.storage.placement import canonical_device, fitting_layout, in_own_memory
from tinygrad.storage.realization import store_constant
from tinygrad.storage.views import is_constant
from tinygrad.uop.arguments import (
    is_integer,
    number_argument,
    plain_number,
    size_argument,
)
from tinygrad.uop.broadcast import (
    broadcast_node,
    const_node,
    fits_dtype,
    number_dtype,
    operand_node,
)
from tinygrad.uop.device_value import DeviceLike, is_file
from tinygrad.uop.ops import UOp, resolve, sint, smax
from tinygrad.uop.reshard import computing_device
from tinygrad.uop.sint import as_number, index_dtype


class CreationMixin(ElementwiseMixin, MovementMixin):
    """`full`, `zeros`, `ones`, `empty`, `arange`, `linspace`, `eye`, `tril`."""

    __slots__ = ()

    @classmethod
    def _created(
        cls,
        node: UOp,
        device: DeviceLike = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
        contiguous: bool = False,
        buffer: bool = False,
    ) -> Self:
        """A new tensor of `node`, with the common arguments of creation methods. In memory of its
        own if `contiguous` or `buffer`, two names for that.
        """
        if dtype is not None:
            node = node.cast(to_dtype(dtype))
        node = place_or_create_file(cls, node, device)
        self = cls._new(in_own_memory(node) if contiguous or buffer else node)
        self.requires_grad = requires_grad
        return self

    @property
    def requires_grad(self) -> bool | None:
        """Whether `backward` computes the gradient of this tensor; None leaves it to an optimizer.

        Setting it to True gives a tensor of constants memory of its own, since equal constants are
        one node, and the gradient is that of this tensor alone.
        """
        state = self._requires_grad
        return None if state is None else bool(state)

    @requires_grad.setter
    def requires_grad(self, wanted: bool | None) -> None:
        if not (wanted is None or isinstance(wanted, bool)):
            raise TypeError(f"requires_grad is True, False or None, not {wanted!r}")
        state = self._requires_grad
        marks.changes += state is not wanted
        if not wanted:
            if wanted is False and state and not isinstance(state, Leaf):
                self._alias(self.detach())
            self._requires_grad = wanted
        elif not state:
            if is_constant(self.uop):
                store_constant(self)
            self._requires_grad = Leaf(live_tensors.now())
            self._own_memory()

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Set `requires_grad`; returns the tensor itself.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        self.requires_grad = requires_grad
        return self

    @property
    def is_param(self) -> bool | None:
        """Whether this is a parameter to train: another name for `requires_grad`.

        >>> Tensor([1.0], requires_grad=True).is_param
        True
        """
        return self.requires_grad

    @is_param.setter
    def is_param(self, wanted: bool | None) -> None:
        self.requires_grad = wanted

    def is_param_(self, is_param: bool | None = True) -> Self:
        """Set `is_param`; returns the tensor itself.

        >>> Tensor([1.0]).is_param_().is_param
        True
        """
        return self.requires_grad_(is_param)

    # ---- constants ----

    @classmethod
    def full(cls, shape: Any, fill_value: ConstType | UOp, **kwargs: Any) -> Self:
        """A tensor filled with `fill_value`. Takes `dtype`, `device`, `requires_grad`; it is in
        memory of its own with `buffer=True`, and else a constant.

        An integer that `dtype` cannot hold wraps around; without `dtype`, ValueError for one that
        the default int cannot hold.

        >>> Tensor.full((2, 2), 42).tolist()
        [[42, 42], [42, 42]]
        """
        sizes = sizes_of((shape,))
        fill_value = plain_number(fill_value)
        if isinstance(fill_value, UOp):
            node = as_number(fill_value)
            dtype = node.dtype
        else:
            asked = kwargs.pop("dtype", None)
            dtype = number_dtype(fill_value) if asked is None else to_dtype(asked)
            node = const_node(fill_value, dtype)
        return cls._created(broadcast_node(node, sizes), **kwargs)

    @classmethod
    def zeros(cls, *shape: Any, **kwargs: Any) -> Self:
        """A tensor of zeros, by default in the default float type.

        >>> Tensor.zeros(2, 2).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        return cls.full(argfix(*shape), 0.0, **kwargs)

    @classmethod
    def ones(cls, *shape: Any, **kwargs: Any) -> Self:
        """A tensor of ones, by default in the default float type.

        >>> Tensor.ones(2, 2).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        return cls.full(argfix(*shape), 1.0, **kwargs)

    @classmethod
    def empty(
        cls,
        *shape: Any,
        device: DeviceLike = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """An uninitialized tensor in new memory; that of a symbolic size is for its maximum.

        On `"disk:/path"`, a tensor in that file, which keeps its content, or is created with zeros.
        Raises FileError, an OSError, if it is too short or cannot be created.

        >>> Tensor.empty(2, 3).shape
        (2, 3)
        """
        symbolic = sizes_of(shape)
        sizes = max_sizes(symbolic)
        if sizes != symbolic:
            whole = cls.empty(sizes, device=device, dtype=dtype)
            part = whole.shrink(tuple((0, size) for size in symbolic))
            return part.requires_grad_(requires_grad)
        layout = fitting_layout(canonical_device(device) or Device.DEFAULT, sizes)
        dtype = dtypes.default_float if dtype is None else to_dtype(dtype)
        if is_file(layout):
            node = open_file(layout, sizes, dtype)
        else:
            node = UOp.new_buffer(layout, sizes, dtype)
        return cls._new(node).requires_grad_(requires_grad)

    # ---- like another tensor ----

    def _like(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"dtype": self.dtype, "device": computing_device(self.device)} | kwargs

    def full_like(self, fill_value: ConstType, **kwargs: Any) -> Self:
        """`full` with the shape, dtype and device of this tensor, unless given. Raises ValueError
        for an integer that the dtype of this tensor cannot hold.

        >>> Tensor([1.5, 2.5]).full_like(7).tolist()
        [7.0, 7.0]
        """
        if "dtype" not in kwargs and isinstance(fill_value, int):
            operand_node(fill_value, self.dtype, "full_like")
        return self.full(self.shape, fill_value, **self._like(kwargs))

    def zeros_like(self, **kwargs: Any) -> Self:
        """`zeros` with the shape, dtype and device of this tensor, unless given.

        >>> Tensor([1, 2]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, **kwargs)

    def ones_like(self, **kwargs: Any) -> Self:
        """`ones` with the shape, dtype and device of this tensor, unless given.

        >>> Tensor([1, 2]).ones_like().tolist()
        [1, 1]
        """
        return self.full_like(1, **kwargs)

    def empty_like(self, **kwargs: Any) -> Self:
        """`empty` with the shape, dtype and device of this tensor, unless given.

        >>> Tensor([1, 2]).empty_like().shape
        (2,)
        """
        return self.empty(*self.shape, **self._like(kwargs))

    # ---- ranges ----

    @classmethod
    def arange(
        cls, start: ConstType | UOp, stop: Any = None, step: ConstType | UOp = 1, **kwargs: Any
    ) -> Self:
        """Evenly spaced numbers from `start` to `stop`, excluded; one number is `stop`, from 0.

        In the default float type if one of the numbers is a float. Raises ValueError for a step
        that is, or may be, 0, for numbers that are not finite, and, without `dtype`, for integers
        that the default int cannot hold.

        >>> Tensor.arange(5, 10, 2).tolist()
        [5, 7, 9]
        """
        if stop is None:
            start, stop = 0, start
        start, stop, step = (
            x if isinstance(x, UOp) else number_argument("arange", name, x)
            for name, x in (("start", start), ("stop", stop), ("step", step))
        )
        if _may_be_zero(step):
            raise ArgumentError(
                f"arange({start}, {stop}, {step}): the step must not be 0"
                + ("; declare its Variables so that it is not" if isinstance(step, UOp) else "")
            )
        if not all(isinstance(x, UOp) or math.isfinite(x) for x in (start, stop, step)):
            raise ArgumentError(f"arange({start}, {stop}, {step}): the numbers must be finite")
        floats = any(isinstance(x, float) for x in (start, stop, step))
        default = dtypes.default_float if floats else dtypes.default_int
        asked = kwargs.pop("dtype", None)
        dtype = default if asked is None else to_dtype(asked)
        count = _range_length(stop - start, step)
        # computed in a dtype that is exact, then cast
        exact = dtype if dtypes.is_float(dtype) == floats else default
        if exact is dtypes.default_int:
            exact = _range_dtype(start, count, step, asked)
        node = UOp.arange(count, exact)
        by, first = (
            x.cast(exact) if isinstance(x, UOp) else const_node(x, exact) for x in (step, start)
        )
        node = node if step == 1 else node * by
        node = node if start == 0 else node + first
        return cls._created(node.cast(dtype), **kwargs)

    @classmethod
    def _positions_along(cls, size: sint) -> Self:
        """`0, 1, ..., size - 1`, in the dtype of index arithmetic."""
        return cls._new(UOp.arange(size), False)

    @classmethod
    def linspace(cls, start: float, stop: float, steps: int, **kwargs: Any) -> Self:
        """`steps` evenly spaced numbers from `start` to `stop`, both included.

        Raises ValueError unless `steps` is a nonnegative int, and for dtype bool.

        >>> Tensor.linspace(0, 10, 5).tolist()
        [0.0, 2.5, 5.0, 7.5, 10.0]
        """
        asked = kwargs.pop("dtype", None)
        dtype = dtypes.default_float if asked is None else to_dtype(asked)
        start, stop = (
            number_argument("linspace", name, x) for name, x in (("start", start), ("stop", stop))
        )
        steps = plain_number(steps)
        if not isinstance(steps, int) or steps < 0 or dtype is dtypes.bool:
            raise ArgumentError(
                f"linspace: steps={steps!r} must be a nonnegative integer, dtype {dtype} not bool"
            )
        if steps == 1:
            return cls.full((1,), start, dtype=dtype, **kwargs)
        exact = dtype if dtypes.is_float(dtype) else dtypes.default_float
        position = cls._new(UOp.arange(steps).cast(exact))
        # computed from the nearer end, so that both ends are exact
        distance = (stop - start) / max(1, steps - 1)
        first_half = position < steps // 2
        values = first_half.where(
            position * distance + start, stop - (steps - 1 - position) * distance
        )
        return cls._created(values.uop.cast(dtype), **kwargs)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Identity matrix with `n` rows and `m` (by default `n`) columns.

        Raises ValueError for sizes that are not nonnegative integers.

        >>> Tensor.eye(2, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        shape = sizes_of((n, n if m is None else m))
        position = index_dtype(*shape)
        rows = broadcast_node(UOp.arange(shape[0], position).reshape((shape[0], 1)), shape)
        columns = broadcast_node(UOp.arange(shape[1], position).reshape((1, shape[1])), shape)
        dtype = dtypes.default_float if dtype is None else to_dtype(dtype)
        return cls._created(rows.eq(columns), device, dtype, requires_grad)

    @classmethod
    def _triangle(cls, rows: sint, columns: sint, diagonal: sint) -> Self:
        """A mask of the elements on and below diagonal number `diagonal`."""
        dtype = index_dtype(rows, diagonal, columns - diagonal)
        row = cls._new(UOp.arange(rows, dtype).reshape((rows, 1)), False)
        column = cls._new(UOp.arange(columns, dtype).reshape((1, columns)), False)
        return column - diagonal <= row

    def triu(self, diagonal: sint = 0) -> Self:
        """Upper triangle of the last two axes: elements on and above `diagonal`, zeros elsewhere.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        return self._lower_mask(diagonal, above=1).where(self.zeros_like(device=None), self)

    def tril(self, diagonal: sint = 0) -> Self:
        """Lower triangle of the last two axes: elements on and below `diagonal`, zeros elsewhere.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        return self._lower_mask(diagonal).where(self, self.zeros_like(device=None))

    def _lower_mask(self, diagonal: sint, above: int = 0) -> Self:
        if self.ndim < 2:
            raise ArgumentError(f"triu and tril take matrices, not shape {self.shape}")
        diagonal = size_argument("triu and tril", "diagonal", diagonal) - above
        return self._triangle(self.shape[-2], self.shape[-1], diagonal)


def sizes_of(shape: tuple[Any, ...]) -> tuple[sint, ...]:
    """The sizes of a shape, given as a sequence or one by one. Raises ValueError for others."""
    sizes = argfix(*shape)
    for size in sizes:
        if not is_integer(size) or (not isinstance(size, UOp) and size < 0):
            raise ArgumentError(f"shape {sizes}: {size!r} is not a size; use nonnegative integers")
    return tuple(size if isinstance(size, UOp) else int(size) for size in sizes)


def max_sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes, the maximum of each symbolic one."""
    return max_shape(sizes_of(shape))


def known_sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes of new memory. Raises ValueError for symbolic sizes."""
    sizes = sizes_of(shape)
    if not all_int(sizes):
        shown = ", ".join(str(size) for size in sizes)
        raise ArgumentError(
            f"memory of symbolic shape ({shown}): allocate the maximum sizes, and shrink the tensor"
        )
    return sizes


def _may_be_zero(step: Any) -> bool:
    if isinstance(step, UOp):
        return bool(step.vmin <= 0 <= step.vmax)
    return bool(step == 0)


def _range_dtype(start: Any, count: Any, step: Any, asked: Any) -> DType:
    """The dtype of a range of integers: int64 if they are cast from numbers that the default int
    cannot hold. Raises ValueError for these if no dtype is asked for.
    """
    if isinstance(count, int) and not count:
        return dtypes.default_int
    ends = (start, start + (count - 1) * step)
    if asked is None:
        for number in ends:
            if not isinstance(number, UOp):
                number_dtype(number)
        return dtypes.default_int
    limits = [x for n in ends for x in ((n.vmin, n.vmax) if isinstance(n, UOp) else (n,))]
    fits = all(fits_dtype(x, dtypes.default_int) for x in limits)
    return dtypes.default_int if fits else dtypes.int64


def _range_length(span: Any, step: Any) -> sint:
    """The number of steps in `span`, rounded up."""
    if isinstance(span, UOp) or isinstance(step, UOp):
        if resolve(step < 0, False):
            span, step = -span, -step
        steps: sint = ((span + (step - 1)) // step).ssimplify()
        return smax(steps, 0) if isinstance(steps, UOp) and steps.vmin < 0 else steps
    return max(0, int(ceildiv(span, step)))
