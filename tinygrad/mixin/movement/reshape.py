"""Movement: reshape, permute, expand, shrink, pad, flip, repeat.

Input: a tensor and sizes, which may be expressions of bound Variables. Output: a tensor of the same
elements, or zeros. No arithmetic happens; most results are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinygrad.errors import ArgumentError
from tinygrad.helpers import all_int, argfix, flatten, prod
from tinygrad.mixin.core import TensorCore
from tinygrad.mixin.movement.symbolic_range import check_range
from tinygrad.storage.host.values import bound_size
from tinygrad.uop import Ops
from tinygrad.uop.arguments import is_integer
from tinygrad.uop.broadcast import SymbolicShape, broadcast_node, format_shape
from tinygrad.uop.ops import UOp, sint, smax
from tinygrad.uop.sint import is_one, same_size

Padding = tuple[tuple[sint, sint], ...]


class MovementMixin(TensorCore):
    """`reshape`, `permute`, `expand`, `shrink`, `flip`, `repeat`, ..."""

    __slots__ = ()

    # ---- shape ----

    def reshape(self, shape: Any, *args: Any) -> Self:
        """Reshape in row-major order; -1 infers a size, None keeps the size of that axis.

        Raises ValueError if the number of elements differs or a size is negative, RuntimeError
        for more than one -1, TypeError for sizes that are not integers.

        >>> Tensor.arange(6).reshape(2, -1).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        node = self.uop
        old, new = node.shape, argfix(shape, *args)
        if not _are_sizes(new):
            new = _resolved_sizes(old, new)
        if new == old:
            return self._view(node)
        if not same_size(prod(old), prod(new)):
            bound = all_int(old) and all(isinstance(s, int) or _is_bound(s) for s in new)
            sizes = tuple(bound_size(s) for s in new) if bound else ()
            if bound and prod(old) == prod(sizes):
                return self.reshape(sizes)._up_to(new)
            raise ArgumentError(
                f"reshape {format_shape(old)} -> {format_shape(new)}: "
                f"{format_shape((prod(old),))[1:-2]} elements are not "
                f"{format_shape((prod(new),))[1:-2]}{_hint_to_shrink(old)}"
            )
        return self._view(node.reshape(new), Ops.RESHAPE, new)

    def _up_to(self, sizes: SymbolicShape) -> Self:
        """This tensor with symbolic sizes, which are bound to its own."""
        upper = (s if isinstance(s, int) else s.vmax for s in sizes)
        widest = self._padded_view(tuple((0, u - own) for u, own in zip(upper, self.shape)))
        return widest.shrink(tuple((0, size) for size in sizes))

    def view(self, shape: Any, *args: Any) -> Self:
        """Alias of `reshape`.

        >>> Tensor.arange(4).view(2, 2).tolist()
        [[0, 1], [2, 3]]
        """
        return self.reshape(shape, *args)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Merge axes `start_dim` to `end_dim`, both included. Raises ValueError if `start_dim` is
        after `end_dim`.

        >>> Tensor.arange(8).reshape(2, 2, 2).flatten(1).shape
        (2, 4)
        """
        start, end = self._axis(start_dim), self._axis(end_dim)
        if start > end:
            raise ArgumentError(
                f"flatten({start_dim}, {end_dim}): the first axis is after the last"
            )
        shape = self.shape
        return self.reshape((*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))

    def unflatten(self, dim: int, sizes: tuple[int, ...]) -> Self:
        """Split axis `dim` into axes of `sizes`.

        >>> Tensor.ones(3, 4, 1).unflatten(1, (2, 2)).shape
        (3, 2, 2, 1)
        """
        axis, shape = self._axis(dim), self.shape
        return self.reshape((*shape[:axis], *sizes, *shape[axis + 1 :]))

    def squeeze(self, dim: int | None = None) -> Self:
        """Remove axes of size 1: all of them, or `dim` if its size is 1.

        >>> Tensor.zeros(2, 1, 2, 1).squeeze().shape
        (2, 2)
        """
        if dim is None:
            return self.reshape(tuple(s for s in self.shape if not is_one(s)))
        axis, shape = self._axis(dim), self.shape
        if not shape or not is_one(shape[axis]):
            return self._view(self.uop)
        return self.reshape((*shape[:axis], *shape[axis + 1 :]))

    def unsqueeze(self, dim: int) -> Self:
        """Insert an axis of size 1 before axis `dim`.

        >>> Tensor([1, 2, 3, 4]).unsqueeze(0).shape
        (1, 4)
        """
        axis, shape = self._axis(dim, 1), self.shape
        return self.reshape((*shape[:axis], 1, *shape[axis:]))

    # ---- order ----

    def permute(self, order: Any, *args: Any) -> Self:
        """Permute axes: axis `i` of the result is `order[i]`. ValueError unless each occurs once.

        >>> Tensor.empty(2, 3, 5).permute(2, 0, 1).shape
        (5, 2, 3)
        """
        given = argfix(order, *args)
        axes = tuple(self._axis(x) for x in given)
        if sorted(axes) != list(range(self.ndim)):
            raise ArgumentError(f"order {given} does not name each of the {self.ndim} axes once")
        return self._view(self.uop.permute(axes), Ops.PERMUTE, axes)

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Swap two axes.

        >>> Tensor.arange(6).reshape(2, 3).transpose(0, 1).tolist()
        [[0, 3], [1, 4], [2, 5]]
        """
        node = self.uop
        order = list(range(len(node.shape)))
        first, second = self._axis(dim0), self._axis(dim1)
        if not order:
            return self._view(node)
        order[first], order[second] = order[second], order[first]
        axes = tuple(order)
        return self._view(node.permute(axes), Ops.PERMUTE, axes)

    @property
    def T(self) -> Self:
        """Swap the first two axes, as `transpose()`.

        >>> Tensor.zeros(2, 3).T.shape
        (3, 2)
        """
        return self.transpose()

    def flip(self, axis: Any, *args: Any) -> Self:
        """Reverse the elements along the given axes.

        >>> Tensor.arange(6).reshape(2, 3).flip(0).tolist()
        [[3, 4, 5], [0, 1, 2]]
        """
        given = argfix(axis, *args)
        axes = {self._axis(x) for x in given}
        if len(axes) != len(given):
            raise ArgumentError(f"flip{given} names an axis twice in {self.ndim} axes")
        flipped = tuple(i in axes for i in range(self.ndim))
        return self._view(self.uop.flip(flipped), Ops.FLIP, flipped)

    # ---- repetition and slices ----

    def expand(self, shape: Any, *args: Any) -> Self:
        """Expand axes of size 1 to a new size, and add leading axes; -1 or None keeps a size.

        Raises ValueError where an axis has another size than 1 and is not kept.

        >>> Tensor([1, 2, 3]).expand(2, -1).tolist()
        [[1, 2, 3], [1, 2, 3]]
        """
        new, old = argfix(shape, *args), self.uop.shape
        aligned = (1,) * (len(new) - len(old)) + old
        target = tuple(
            a if s is None or (isinstance(s, int) and s == -1) else s
            for a, s in zip(aligned, new, strict=False)
        )
        if len(new) < len(old):
            raise ArgumentError(
                f"expand {old} -> {new}: there are fewer axes; squeeze or sum first"
            )
        return self._broadcast_to(checked_sizes("expand", target))

    def _broadcast_to(self, shape: SymbolicShape) -> Self:
        old = self.uop.shape
        if old == shape:
            return self
        aligned = (1,) * (len(shape) - len(old)) + old
        if len(old) > len(shape) or any(
            not is_one(a) and not same_size(a, b) for a, b in zip(aligned, shape, strict=True)
        ):
            raise ArgumentError(
                f"cannot expand {format_shape(old)} to {format_shape(shape)}: only axes of size 1 "
                "can be repeated"
            )
        return self._view(broadcast_node(self.uop, shape), Ops.EXPAND, shape)

    def shrink(self, arg: Sequence[tuple[sint, sint] | None]) -> Self:
        """Slice each axis from `start` to `end`, excluded; None keeps the whole axis.

        Raises ValueError for bounds outside of the axis, IndexError if bound Variables put them
        there.

        >>> Tensor.arange(9).reshape(3, 3).shrink(((0, 2), None)).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        shape = self.uop.shape
        if not isinstance(arg, Sequence) or len(arg) != len(shape):
            raise ArgumentError(f"shrink: {arg!r} is not a (start, end) for each axis of {shape}")
        for pair in arg:
            if pair is not None and not (isinstance(pair, Sequence) and len(pair) == 2):
                raise ArgumentError(f"shrink: {pair!r} is not a (start, end) of an axis")
        given = ((0, s) if b is None else b for b, s in zip(arg, shape, strict=True))
        bounds = tuple((start, end) for start, end in (_integers("shrink", (*b,)) for b in given))
        for axis, (start, end) in enumerate(bounds):
            if not all_int((start, end, shape[axis])):
                check_range(start, end, axis, shape)
            elif not 0 <= start <= end <= shape[axis]:
                text = format_shape((start, end))
                raise ArgumentError(
                    f"shrink: {text} is not within an axis of {format_shape(shape)}"
                )
        return self._view(self.uop.shrink(bounds), Ops.SHRINK, bounds)

    def shrink_to(self, shape: Any, *args: Any) -> Self:
        """Keep the first elements of each axis, to sizes `shape`; None keeps the whole axis.

        >>> Tensor.arange(9).reshape(3, 3).shrink_to(2, None).tolist()
        [[0, 1, 2], [3, 4, 5]]
        """
        return self.shrink(tuple(None if s is None else (0, s) for s in argfix(shape, *args)))

    def pad_to(self, shape: Any, *args: Any) -> Self:
        """Pad each axis with zeros at the end, to sizes `shape`; None keeps the size.

        >>> Tensor([[1, 2]]).pad_to(2, 3).tolist()
        [[1, 2, 0], [0, 0, 0]]
        """
        new = argfix(shape, *args)
        _integers("pad_to", tuple(s for s in new if s is not None))
        if len(new) != self.ndim:
            raise ArgumentError(f"pad_to{new} needs one size for each axis of {self.shape}")
        pairs = tuple(
            (0, 0) if s is None else (0, s - old) for s, old in zip(new, self.shape, strict=True)
        )
        return self._padded(pairs)

    def _padded(self, pairs: Padding) -> Self:
        """Pad with zeros before and after each axis; negative numbers crop."""
        node = self.uop
        if any(isinstance(p, int) and p < 0 for pair in pairs for p in pair):
            for size, (before, after) in zip(node.shape, pairs, strict=True):
                if all_int((size, before, after)) and size < -min(before, 0) - min(after, 0):
                    raise ArgumentError(f"pad: ({before}, {after}) crops more than {size} elements")
            node = node.shrink(
                tuple(
                    (smax(0, -before), size - smax(0, -after))
                    for size, (before, after) in zip(node.shape, pairs, strict=True)
                )
            )
            pairs = tuple((smax(before, 0), smax(after, 0)) for before, after in pairs)
        return self._derive(node.pad(pairs))

    def _padded_view(self, pairs: Padding) -> Self:
        """Pad with zeros that no view of the result selects, so that it is a view itself."""
        return self._view(self.uop.pad(pairs), Ops.PAD, pairs)

    def repeat(self, repeats: Any, *args: Any) -> Self:
        """Repeat the whole tensor along each axis; extra counts add leading axes.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        counts = checked_sizes("repeat", argfix(repeats, *args))
        if len(counts) < self.ndim:
            raise ArgumentError(f"repeat{counts} needs at least one count for each of {self.shape}")
        base = (1,) * (len(counts) - self.ndim) + self.shape
        apart = flatten([[1, s] for s in base])
        repeated = flatten([[r, s] for r, s in zip(counts, base, strict=True)])
        final = tuple(r * s for r, s in zip(counts, base, strict=True))
        return self._repeated(tuple(apart), tuple(repeated), final)

    def repeat_interleave(self, repeats: sint, dim: int | None = None) -> Self:
        """Repeat each element along `dim`; by default of the flat tensor.

        >>> Tensor([1, 2, 3]).repeat_interleave(2).tolist()
        [1, 1, 2, 2, 3, 3]
        """
        (repeats,) = checked_sizes("repeat_interleave", (repeats,))
        x = self.flatten() if dim is None else self._with_axes("repeat_interleave")
        axis = 0 if dim is None else self._axis(dim)
        shape = x.shape
        apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
        repeated = (*shape[: axis + 1], repeats, *shape[axis + 1 :])
        final = (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])
        return x._repeated(apart, repeated, final)

    def _repeated(
        self, apart: SymbolicShape, repeated: SymbolicShape, final: SymbolicShape
    ) -> Self:
        """A new value: the elements in shape `apart`, expanded, in shape `final`."""
        return self._derive(broadcast_node(self.uop.reshape(apart), repeated).reshape(final))

    def _with_axes(self, op: str) -> Self:
        """This tensor. Raises ValueError for `op` if it has no axes."""
        if not self.uop.shape:
            raise ArgumentError(f"{op} needs a tensor with axes; unsqueeze first")
        return self

    def _known_size(self, op: str, axis: int) -> int:
        """The size of an axis. Raises ValueError if it is symbolic."""
        size: sint = self.uop.shape[axis]
        if isinstance(size, UOp):
            raise ArgumentError(
                f"{op}: axis {axis} of shape {format_shape(self.shape)} has no fixed size"
            )
        return size


def _are_sizes(given: tuple[Any, ...]) -> bool:
    """Whether these are nonnegative ints."""
    for size in given:  # noqa: SIM110 a loop takes half the time of a generator
        if size.__class__ is not int or size < 0:
            return False
    return True


def _resolved_sizes(old: SymbolicShape, given: tuple[Any, ...]) -> SymbolicShape:
    """The sizes of a reshape, as expressions or ints; None and -1 are replaced."""
    new = given
    if None in given:
        new = tuple(s if s is not None else _kept_size(old, given, i) for i, s in enumerate(given))
    new = _integers("reshape", new)
    unknown = [i for i, s in enumerate(new) if isinstance(s, int) and s == -1]
    if len(unknown) > 1:
        raise ArgumentError(f"reshape {old} -> {new}: only one size can be -1")
    if unknown:
        new = _with_inferred_size(old, new, unknown[0])
    return checked_sizes("reshape", new)


def _integers(op: str, given: tuple[Any, ...]) -> SymbolicShape:
    """Integers or expressions. Raises TypeError for anything else."""
    if all(size.__class__ is int for size in given):
        return given
    if not all(map(is_integer, given)):
        raise TypeError(f"{op}: {given} are not sizes; use integers")
    return tuple(size if isinstance(size, UOp) else int(size) for size in given)


def checked_sizes(op: str, given: tuple[Any, ...]) -> SymbolicShape:
    """Sizes. Raises TypeError for anything but integers, ValueError for negative ones."""
    if _are_sizes(given):
        return given
    sizes = _integers(op, given)
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise ArgumentError(f"{op}: sizes {format_shape(sizes)} must not be negative")
    return sizes


def _kept_size(old: SymbolicShape, new: tuple[Any, ...], axis: int) -> sint:
    """The old size of an axis whose new size is None."""
    if axis >= len(old):
        raise ArgumentError(
            f"reshape {old} -> {new}: there is no axis {axis} whose size None keeps"
        )
    return old[axis]


def _hint_to_shrink(shape: SymbolicShape) -> str:
    """For an error: how to get a known size from one that holds for all values of a Variable."""
    if all_int(shape) or not all(isinstance(s, int) or _is_bound(s) for s in shape):
        return ""
    sizes = ", ".join(str(bound_size(s)) for s in shape)
    return f" for all values of the Variables; make the sizes known first: .shrink_to({sizes})"


def _is_bound(size: UOp) -> bool:
    """Whether all Variables of a size have values."""
    return all(variable.op is Ops.BIND for variable in size.vars())


def _with_inferred_size(old: SymbolicShape, new: SymbolicShape, unknown: int) -> SymbolicShape:
    """`new` with the size of axis `unknown` inferred from the number of elements."""
    total, rest = prod(old), prod([s for i, s in enumerate(new) if i != unknown])
    if isinstance(total, int) and isinstance(rest, int):
        if rest == 0 or total % rest:
            raise ArgumentError(f"reshape {old} -> {new}: {total} elements do not divide by {rest}")
        return (*new[:unknown], total // rest, *new[unknown + 1 :])
    # symbolic sizes on both sides cancel; the remaining factors are known
    left = [s for s in old if not isinstance(s, int)]
    right = [s for i, s in enumerate(new) if i != unknown and not isinstance(s, int)]
    known = prod([s for s in old if isinstance(s, int)])
    divisor = prod([s for i, s in enumerate(new) if i != unknown and isinstance(s, int)])
    if any(size not in left for size in right) or divisor == 0 or known % divisor:
        raise ArgumentError(
            f"reshape {format_shape(old)} -> {format_shape(new)}: the size for -1 is not known"
        )
    for size in right:
        left.remove(size)
    return (*new[:unknown], prod(left) * (known // divisor), *new[unknown + 1 :])
