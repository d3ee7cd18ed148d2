"""What every family of tensor methods builds on: a graph node, and how a new tensor is made of one.

In: nodes of the tensor graph. Out: tensors that hold them. Always true: a tensor changes its node
only when it is realized, assigned or moved in place; `live_tensors` knows every tensor there is.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Self, TypeAlias, cast

from tinygrad.device import Device
from tinygrad.dtype import ConstType, DType, dtypes, to_dtype, truncate
from tinygrad.helpers import prod
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.reshard import unshard_axis

Shape: TypeAlias = tuple[sint, ...]


class _NumberedRef(weakref.ref["TensorCore"]):
    __slots__ = ("number",)
    number: int


class LiveTensors:
    """Every tensor there is, in the order they were made, without keeping them alive."""

    def __init__(self) -> None:
        self._refs: dict[int, _NumberedRef] = {}
        self._numbers = itertools.count()

    def add(self, tensor: TensorCore) -> None:
        """Take note of a new tensor."""
        ref = _NumberedRef(tensor, self._forget)
        tensor.origin = ref.number = next(self._numbers)
        self._refs[ref.number] = ref

    def _forget(self, ref: weakref.ref[TensorCore]) -> None:
        del self._refs[cast(_NumberedRef, ref).number]

    def __iter__(self) -> Iterator[TensorCore]:
        found = (ref() for ref in list(self._refs.values()))
        return iter([tensor for tensor in found if tensor is not None])

    def __len__(self) -> int:
        return len(self._refs)

    def lazy(self) -> list[TensorCore]:
        """The tensors that are more than their memory: views, and what is not computed yet."""
        stored = Ops.BUFFER
        refs = list(self._refs.values())
        return [x for ref in refs if (x := ref()) is not None and x.uop.op is not stored]


live_tensors = LiveTensors()
_remember = live_tensors.add

# what reads its source's memory as it is
VIEWS = frozenset(
    {
        *(Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP),
        *(Ops.DETACH, Ops.CONTIGUOUS_BACKWARD),
    }
)


def seen_through(node: UOp) -> UOp:
    """What a value is a view of, also by way of copies that movement along a split axis needs."""
    while node.op in VIEWS or node.op is Ops.COPY:
        node = node.src[0]
    return node


# what takes the shape of its neighbour when it has none of its own
_SCALARS = frozenset({Ops.CONST, Ops.BIND, Ops.DEFINE_VAR})


def is_scalar(node: UOp) -> bool:
    """Whether this is a number that an elementwise op broadcasts by itself."""
    return node.op in _SCALARS or (node.op is Ops.CAST and node.src[0].op in _SCALARS)


def const_node(value: ConstType, dtype: DType) -> UOp:
    """The scalar `value` as `dtype` holds it: integers wrap around."""
    if dtypes.is_int(dtype):
        number = int(value)
        if not dtypes.min(dtype) <= number <= dtypes.max(dtype):
            number = truncate[dtype](number)
        return UOp.const(dtype, number)
    return UOp.const(dtype, value)


def same_size(a: sint, b: sint) -> bool:
    """Whether two sizes are equal, symbolic ones for all values of their Variables."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return a is b or (UOp.const(dtypes.index, a) - b).ssimplify() == 0


def shown(shape: Shape) -> str:
    """A shape for a person."""
    sizes = [str(size) if isinstance(size, int) else size.render() for size in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def broadcast_shape(*shapes: Shape) -> Shape:
    """The shape that all of `shapes` broadcast to, as in numpy. Raises ValueError if none is."""
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    count = max(len(shape) for shape in shapes)
    padded = [(1,) * (count - len(shape)) + shape for shape in shapes]
    result: list[sint] = []
    for sizes in zip(*padded, strict=True):
        wide = [size for size in sizes if not (isinstance(size, int) and size == 1)]
        if any(not same_size(size, wide[0]) for size in wide):
            listed = " and ".join(shown(shape) for shape in dict.fromkeys(shapes))
            raise ValueError(
                f"shapes {listed} do not broadcast: sizes {sizes[0]} and {sizes[-1]} differ, "
                "and neither is 1"
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


def broadcast_node(node: UOp, shape: Shape) -> UOp:
    """`node` repeated to `shape`, to which it must broadcast."""
    own = node.shape
    if own == shape:
        return node
    return node.reshape((1,) * (len(shape) - len(own)) + own).expand(shape)


def scalar_dtype(value: ConstType, neighbour: DType) -> DType:
    """The type a Python number takes next to a tensor: the tensor's, unless that cannot hold it."""
    if dtypes.is_float(neighbour) or value.__class__ is bool:
        return neighbour
    if dtypes.is_int(neighbour) and isinstance(value, int):
        return neighbour
    return dtypes.from_py(value)


def canonical_device(device: Any) -> str | Sharding | None:
    """`str`, `Sharding`, or a sequence of names (a full copy on each), as a device; None stays."""
    if device is None:
        return device
    if isinstance(device, Sharding):
        names = [Device.canonicalize(name) for name in device.devices]
        return Sharding(names, device.axes, device.mesh_shape)
    if isinstance(device, (tuple, list)):
        if len(device) == 1:
            return Device.canonicalize(device[0])
        return Sharding(tuple(Device.canonicalize(name) for name in device))
    if not isinstance(device, str):
        raise TypeError(
            f"device must be a name, a sequence of names or a Sharding, not {device!r} "
            f"of type {type(device).__name__}"
        )
    return Device.canonicalize(device)


def placed(node: UOp, device: Any) -> UOp:
    """A newly created value on `device` (None: nowhere yet, if it is made of constants).

    A layout whose split axis the shape lacks, or has with size 1, becomes a full copy on each.
    """
    device = canonical_device(device)
    if device is None:
        return node
    if isinstance(device, Sharding) and not fits(device, node.shape):
        device = device.replicated()
    return node.copy_to_device(device)


def fits(layout: Sharding, shape: Shape) -> bool:
    """Whether every split axis exists in `shape`, and can be split."""
    return all(
        axis < len(shape) and isinstance(shape[axis], int) and shape[axis] != 1
        for axis in layout.split_axes
    )


class TensorCore:
    """A tensor as its methods see it: a node, and whether a gradient is wanted.

    `requires_grad` is True, False, or None, which an optimizer makes True. A result needs a
    gradient if one of its operands does.
    """

    __slots__ = ("__weakref__", "_requires_grad", "grad", "origin", "uop")

    uop: UOp
    """The node of the tensor graph that this tensor is."""
    grad: Self | None
    """The gradient, once `backward` was called on something that depends on this."""
    origin: int
    """The number of the tensor that this is a view of; its own number if it is none."""
    _requires_grad: bool | None

    # numpy's own operators leave those with a tensor on the right to the tensor
    __array_ufunc__ = None

    # `==` is elementwise, so tensors are told apart by identity
    __hash__ = object.__hash__

    @classmethod
    def _new(cls, uop: UOp, requires_grad: bool | None = None) -> Self:
        self = object.__new__(cls)
        self.uop = uop
        self._requires_grad = requires_grad
        self.grad = None
        _remember(self)
        return self

    def _derive(self, uop: UOp, *others: TensorCore) -> Self:
        """The result of an operation on this tensor and `others`."""
        wanted = self._requires_grad
        for other in others:
            if wanted is True:
                break
            theirs = other._requires_grad
            if theirs is not False and wanted is not theirs:
                wanted = theirs
        return self._view_of(self, uop, wanted)

    @classmethod
    def _view_of(cls, source: Self, uop: UOp, requires_grad: bool | None) -> Self:
        """A tensor of `uop`, which has the origin of `source` if it is a view of that."""
        new = cls._new(uop, requires_grad)
        if uop is source.uop or (uop.op in VIEWS and seen_through(uop) is seen_through(source.uop)):
            new.origin = source.origin
        return new

    def _whole_along(self, axis: int, by: str | None) -> Self:
        """The same value with `axis` whole on each device, as the operation `by` needs it; None if
        it could not do with less.
        """
        return self._derive(unshard_axis(self.uop, axis, by))

    def _operand(self, x: Any, op: str = "this operation") -> UOp:
        """`x` as an operand next to this tensor, with its own dtype if it is a tensor."""
        if isinstance(x, TensorCore):
            return x.uop
        if isinstance(x, (int, float)):
            return const_node(x, scalar_dtype(x, self.uop.dtype))
        if isinstance(x, UOp):
            return x.cast(dtypes.default_int) if x.dtype is dtypes.index else x
        if type(x).__module__ == "numpy" and getattr(x, "shape", None) == ():
            return self._operand(x.item(), op)
        raise TypeError(
            f"{op} takes a tensor or a number, not {x!r} of type {type(x).__name__}; "
            "wrap it: Tensor(...)"
        )

    @property
    def dtype(self) -> DType:
        """The type of the elements.

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
    def device(self) -> str | Sharding:
        """Where the value lives: a device's name, or a `Sharding` over several."""
        device = self.uop.device
        return Device.DEFAULT if device is None else cast("str | Sharding", device)

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
        """The bytes of one element.

        >>> Tensor([5], dtype=dtypes.int16).element_size()
        2
        """
        return self.uop.dtype.itemsize

    def nbytes(self) -> Any:
        """The bytes of all elements.

        >>> Tensor([8, 9], dtype=dtypes.float).nbytes()
        8
        """
        return prod((*self.uop.shape, self.element_size()))

    def is_floating_point(self) -> bool:
        """Whether the elements are of a floating-point type.

        >>> Tensor([8, 9], dtype=dtypes.float32).is_floating_point()
        True
        """
        return dtypes.is_float(self.uop.dtype)

    def size(self, dim: int | None = None) -> Any:
        """The size of axis `dim`, or all sizes.

        >>> Tensor([[4, 5, 6], [7, 8, 9]]).size(1)
        3
        """
        return self.shape if dim is None else self.shape[self._axis(dim)]

    def __len__(self) -> int:
        """The size of the first axis. Raises TypeError for a tensor without axes."""
        if not self.shape:
            raise TypeError("a tensor without axes has no len()")
        return int(self.shape[0])

    def _axis(self, dim: int, extra: int = 0) -> int:
        """An axis counted from the front; negative ones count from the back.

        Raises IndexError if there is none such among `ndim + extra`; a scalar counts as one axis.
        Raises TypeError for what is no integer.
        """
        if not hasattr(dim, "__index__"):
            raise TypeError(f"an axis of shape {self.shape} is an integer, not {dim!r}")
        count = self.ndim + extra
        limit = max(1, count)
        if not -limit <= dim < limit:
            raise IndexError(
                f"there is no axis {dim} in shape {self.shape}; use {-limit} to {limit - 1}"
            )
        return dim + count if dim < 0 and count else max(dim, 0)

    def _known_axis(self, dim: int, name: str) -> int:
        """`_axis` for the operation `name`, which is not of symbolic sizes. Raises ValueError."""
        axis = self._axis(dim)
        if self.ndim and not isinstance(self.shape[axis], int):
            raise ValueError(
                f"{name} along axis {axis} of {self.shape}: it takes a size that is known when the "
                "graph is built; fill up to the greatest with pad_to"
            )
        return axis

    def cast(self, dtype: DType | str) -> Self:
        """The values converted to `dtype`.

        >>> Tensor([-1, 2.5, 3], dtype=dtypes.float).cast(dtypes.int32).tolist()
        [-1, 2, 3]
        """
        dtype = to_dtype(dtype)
        return self if self.uop.dtype == dtype else self._derive(self.uop.cast(dtype))

    def detach(self) -> Self:
        """The same value, through which no gradient flows.

        >>> Tensor([1.0], requires_grad=True).detach().requires_grad
        False
        """
        return self._view_of(self, self.uop.detach(), False)
