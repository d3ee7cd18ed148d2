"""`UOp`, the one node type of every graph, and how layouts travel while a tensor graph is built.

A A node of the tensor graph denotes one logical
array of its *global* shape; `UOp.device` says where it lives (`str`, `Sharding`, or None for what
is made of constants).
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, cast

from tinygrad.dtype import AddrSpace, ConstType, DType, dtypes
from tinygrad.helpers import argsort, prod
from tinygrad.sharding import LAYOUT_RULES, Sharding
from tinygrad.uop import GroupOp, Ops, gather_scatter, reshard
from tinygrad.uop.args import (
    AxisType,
    BufferArg,
    KernelInfo,
    ParamArg,
    RangeArg,
    ReduceArg,
    ViewArg,
    WindowArg,
)
from tinygrad.uop.bounds import min_max
from tinygrad.uop.device_rules import compute_device
from tinygrad.uop.kernel_language import KernelMixin
from tinygrad.uop.math import MathMixin
from tinygrad.uop.node import UNSET, Node
from tinygrad.uop.render import infix, tree
from tinygrad.uop.shape import compute_shape
from tinygrad.uop.sint import resolve, sint, smax, smin, sym_infer, symbolic_args
from tinygrad.uop.symbolic import symbolic
from tinygrad.uop.upat import PatternMatcher, UPat, graph_rewrite

# fmt: off
__all__ = [
    "AxisType", "BufferArg", "GroupOp", "KernelInfo", "Ops", "ParamArg", "PatternMatcher",
    "RangeArg", "ReduceArg", "UOp", "UPat", "ViewArg", "WindowArg", "buffers", "graph_rewrite",
    "resolve", "sint", "smax", "smin", "sym_infer", "symbolic_args",
]
# fmt: on


# the storage of realized BUFFER nodes (a Buffer, or a MultiBuffer), for as long as the node lives
buffers: weakref.WeakKeyDictionary[UOp, Any] = weakref.WeakKeyDictionary()
_buffer_slots = itertools.count()


class UOp(Node, MathMixin, KernelMixin):
    """One interned node. Build with `UOp(op, dtype, src, arg)` or, better, by the methods below."""

    __slots__ = ()

    def __repr__(self) -> str:
        return infix(self) if self.dtype is dtypes.index else tree(self)

    def __bool__(self) -> bool:
        if self.op is Ops.CONST:
            return bool(self.arg)
        low, high = self.vmin, self.vmax
        if low == high:
            return bool(low)
        raise ValueError(f"the truth of a symbolic expression is not known: {self.render()}")

    def __int__(self) -> int:
        return int(self._known_value())

    def __float__(self) -> float:
        return float(self._known_value())

    def __index__(self) -> int:
        return int(self)

    def _known_value(self) -> Any:
        simple = self.simplify()
        if simple.vmin != simple.vmax:
            raise ValueError(f"the value of a symbolic expression is not known: {simple.render()}")
        return simple.vmin

    # ---- structure ----

    def sink(*src: UOp, arg: Any = None) -> UOp:
        """Gather several outputs under one root: `UOp.sink(x, y)`, or `x.sink(y)`."""
        return UOp(Ops.SINK, dtypes.void, src, arg)

    @property
    def base(self) -> UOp:
        """The node below all movement."""
        node = self
        while node.op in GroupOp.Movement:
            node = node.src[0]
        return node

    # ---- shape and device ----

    @property
    def _shape_or_none(self) -> tuple[sint, ...] | None:
        if self._shape is UNSET:
            if any(x._shape is UNSET for x in self.src):
                for node in self.toposort(gate=lambda u: u._shape is UNSET):
                    if node._shape is UNSET:
                        node._shape = compute_shape(node)
            else:
                self._shape = compute_shape(self)
        return cast("tuple[sint, ...] | None", self._shape)

    @property
    def shape(self) -> tuple[sint, ...]:
        """The global shape of the value."""
        shape = self._shape_or_none
        if shape is None:
            raise ValueError(f"{self.op.name} has no shape: it is not a node of the tensor graph")
        return shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, at their most where the shape is symbolic."""
        return prod(d if isinstance(d, int) else int(d.vmax) for d in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the global value."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Any:
        """Where the value lives: a name, a `Sharding`, or None for what is made of constants
        alone.
        """
        if self._device is UNSET:
            if any(x._device is UNSET for x in self.src):
                for node in self.toposort(gate=lambda u: u._device is UNSET):
                    if node._device is UNSET:
                        node._device = compute_device(node)
            else:
                self._device = compute_device(self)
        return self._device

    @property
    def axis(self) -> Any:
        """The split axis of a sharded value, as in `Sharding.axis`; None for any other."""
        return self.device.axis if isinstance(self.device, Sharding) else None

    # ---- building the tensor graph ----

    @staticmethod
    def const(dtype: DType, value: ConstType | UOp) -> UOp:
        """A constant, shape (); of a vector dtype, the same number in all lanes."""
        if isinstance(value, UOp):
            return value
        return UOp(Ops.CONST, dtype, (), dtypes.as_const(value, dtype.scalar()))

    def const_like(self, value: Any) -> UOp:
        """A constant of this node's dtype and, in a tensor graph, of its shape."""
        node = UOp.const(self.dtype, value)
        shape = self._shape_or_none
        return node._broadcast_to(shape) if shape else node

    def _broadcast_to(self, shape: tuple[sint, ...]) -> UOp:
        return self.reshape((1,) * len(shape)).expand(shape)

    @staticmethod
    def new_buffer(device: Any, shape: tuple[int, ...], dtype: DType) -> UOp:
        """A new stored array; its memory is allocated when it is first written."""
        return UOp(Ops.BUFFER, dtype, (), BufferArg(next(_buffer_slots), shape, device))

    @staticmethod
    def arange(size: sint, dtype: DType = dtypes.int) -> UOp:
        """`0, 1, ..., size - 1`. It is never stored unless asked for."""
        return UOp(Ops.ARANGE, dtype, (), size)

    def alu(self, op: Ops, *src: UOp) -> UOp:
        """`op(self, *src)`, elementwise; sources on disagreeing layouts are brought to a common
        one.
        """
        srcs = (self, *src)
        if op in GroupOp.Comparison:
            dtype = dtypes.bool.vec(self.dtype.count) if self.dtype.count > 1 else dtypes.bool
        else:
            dtype = srcs[-1].dtype
        if any(isinstance(x.device, Sharding) for x in srcs) or _conflicts(srcs):
            srcs = reshard.common_sources(op, srcs)
        return UOp(op, dtype, srcs)

    def cast(self, dtype: DType) -> UOp:
        """The value converted to `dtype`."""
        if self.dtype.count > 1 and dtype.count == 1:
            dtype = dtype.vec(self.dtype.count)
        return self if self.dtype == dtype else UOp(Ops.CAST, dtype, (self,))

    def bitcast(self, dtype: DType) -> UOp:
        """The same bits read as `dtype`; if its size differs, so does that of the last axis."""
        if self.dtype == dtype:
            return self
        return UOp(Ops.BITCAST, dtype, (reshard.source_of_bitcast(self, dtype),))

    def r(self, op: Ops, axes: tuple[int, ...]) -> UOp:
        """Reduce `axes` by `op`, keeping them as size 1. Over a split axis, an ALLREDUCE
        follows.
        """
        shape = self.shape
        axes = tuple(sorted(a for a in axes if not (isinstance(shape[a], int) and shape[a] == 1)))
        if not axes:
            return self
        node = UOp(Ops.REDUCE_AXIS, self.dtype, (self,), ReduceArg(op, axes))
        layout = node.device
        if isinstance(layout, Sharding) and layout.is_partial:
            return node.allreduce(layout.without_partial())
        return node

    def allreduce(self, device: Any) -> UOp:
        """The reduction of a partial value, delivered to `device`."""
        node = UOp(Ops.ALLREDUCE, self.dtype, (self,), device)
        reshard.record(node)
        return node

    def copy_to_device(self, device: Any) -> UOp:
        """The same value on another device or in another layout."""
        device = Sharding(device) if isinstance(device, tuple) else device
        if self.device == device:
            return self
        if isinstance(device, Sharding):
            device.check(self.shape)
        return reshard.copy(self, device)

    def shard(self, devices: tuple[str, ...] | Sharding, axis: Any = None) -> UOp:
        """Split `axis` over `devices`; None puts a full copy on each."""
        layout = devices if isinstance(devices, Sharding) else Sharding(tuple(devices), axis)
        return self.copy_to_device(layout)

    def mselect(self, index: int) -> UOp:
        """Device number `index`'s part of a value that lives on several."""
        return UOp(Ops.MSELECT, self.dtype, (self,), index)

    @staticmethod
    def mstack(*parts: UOp) -> UOp:
        """One value of the parts that live on one device each."""
        return UOp(Ops.MSTACK, parts[0].dtype, parts)

    def contiguous(self) -> UOp:
        """The value, stored."""
        if self.op in {Ops.CONTIGUOUS, Ops.BUFFER, Ops.ASSIGN}:
            return self
        return UOp(Ops.CONTIGUOUS, self.dtype, (self,))

    def contiguous_backward(self) -> UOp:
        """The value; its gradient is stored."""
        return UOp(Ops.CONTIGUOUS_BACKWARD, self.dtype, (self,))

    def detach(self) -> UOp:
        """The value; no gradient flows through."""
        return UOp(Ops.DETACH, self.dtype, (self,))

    def assign(self, value: UOp) -> UOp:
        """Store `value` into the buffer that this node is a view of.

        `arg` counts the assignments before this one that are not run yet: values that read each of
        them may still be waited for.
        """
        value = reshard.value_to_assign(value, self.device)
        target, before = (self.src[0], self.arg + 1) if self.op is Ops.ASSIGN else (self, 0)
        return UOp(Ops.ASSIGN, self.dtype, (target, value), before)

    def gather(self, index: UOp, batch: int = 0) -> UOp:
        """Rows of axis `batch`: shape `(*index.shape, *self.shape[batch + 1:])`; a row out of range
        reads as 0. The axes in front of it are also those of the index: each picks from its own.
        """
        return gather_scatter.gather(self, index, batch)

    def scatter_add(self, index: UOp, count: sint, batch: int = 0) -> UOp:
        """Add `self` (`(*index.shape, *rest)`) into zeros of `(*index.shape[:batch], count,
        *rest)`; out of range is dropped.
        """
        return self.scatter(Ops.SCATTER_ADD, index, count, batch)

    def scatter(self, op: Ops, index: UOp, count: sint, batch: int = 0) -> UOp:
        """As `scatter_add`; rows that meet are combined by `op`, of `GroupOp.Scatter`, with its
        identity where there is none.
        """
        return gather_scatter.scatter(op, self, index, count, batch)

    # ---- movement ----

    def _movement(self, op: Ops, arg: Any) -> UOp:
        source = self
        layout = self.device
        if isinstance(layout, Sharding) and LAYOUT_RULES[op.name](layout, self.shape, arg) is None:
            in_blocks = reshard.reshape_in_blocks(self, arg) if op is Ops.RESHAPE else None
            if in_blocks is not None:
                return in_blocks
            source = reshard.reshard_for_movement(self, op, arg)
        return UOp(op, self.dtype, (source,), arg)

    def reshape(self, shape: tuple[sint, ...] | sint, *sizes: sint) -> UOp:
        """The same elements in row-major order under another shape, a tuple or several sizes."""
        if not isinstance(shape, tuple):
            shape = (shape, *sizes)
        if self.shape == shape:
            return self
        return self._movement(Ops.RESHAPE, shape)

    def expand(self, shape: tuple[sint, ...]) -> UOp:
        """Repeat axes of size 1."""
        return self if self.shape == shape else self._movement(Ops.EXPAND, shape)

    def permute(self, order: tuple[int, ...] | int, *axes: int) -> UOp:
        """Axis `i` of the result is axis `order[i]` of the source; a tuple or several axes."""
        if not isinstance(order, tuple):
            order = (order, *axes)
        if order == tuple(range(len(order))):
            return self
        return self._movement(Ops.PERMUTE, order)

    def pad(self, padding: tuple[tuple[sint, sint], ...]) -> UOp:
        """Zeros before and after each axis."""
        if all(isinstance(p, int) and p == 0 for pair in padding for p in pair):
            return self
        return self._movement(Ops.PAD, padding)

    def shrink(self, bounds: tuple[tuple[sint, sint], ...]) -> UOp:
        """Keep `start:end` of each axis."""
        return self if _is_whole(bounds, self.shape) else self._movement(Ops.SHRINK, bounds)

    def flip(self, flips: tuple[bool, ...]) -> UOp:
        """Reverse the axes whose flag is set."""
        return self._movement(Ops.FLIP, flips) if any(flips) else self

    def window(self, arg: WindowArg) -> UOp:
        """Slide windows over axes, see `WindowArg`."""
        return self._movement(Ops.WINDOW, arg)

    def unwindow(self, arg: WindowArg) -> UOp:
        """Put each element of a window back to where it came from; the adjoint of `window`."""
        return self._movement(Ops.UNWINDOW, arg)

    def inverse_permute(self) -> tuple[int, ...]:
        """The order that undoes this PERMUTE."""
        return tuple(argsort(self.arg))

    # ---- symbolic integers ----

    @staticmethod
    def variable(name: str, min_value: int, max_value: int, dtype: DType = dtypes.index) -> UOp:
        """An integer known when a kernel runs, between `min_value` and `max_value`, both
        included.
        """
        if not isinstance(min_value, int) or not isinstance(max_value, int):
            raise TypeError(f"Variable {name}: bounds must be ints, got {min_value}, {max_value}")
        if min_value > max_value:
            raise ValueError(f"Variable {name}: empty interval [{min_value}, {max_value}]")
        return UOp(Ops.DEFINE_VAR, dtype, (), (name, min_value, max_value))

    def bind(self, value: int) -> UOp:
        """Give this variable a value."""
        if self.op is not Ops.DEFINE_VAR:
            raise TypeError(f"bind needs a Variable, not {self.op.name}")
        if not self.arg[1] <= value <= self.arg[2]:
            raise ValueError(f"{self.arg[0]}={value} is outside [{self.arg[1]}, {self.arg[2]}]")
        return UOp(Ops.BIND, self.dtype, (self, UOp.const(self.dtype, value)))

    def unbind(self) -> tuple[UOp, int]:
        """The variable and the value of a BIND."""
        assert self.op is Ops.BIND
        return self.src[0], int(self.src[1].arg)

    @property
    def val(self) -> int:
        """The bound value."""
        return self.unbind()[1]

    @property
    def expr(self) -> str:
        """The name of a Variable."""
        return cast(str, (self.src[0] if self.op is Ops.BIND else self).arg[0])

    @property
    def vmin(self) -> Any:
        """The least value that this expression can take."""
        return self._min_max()[0]

    @property
    def vmax(self) -> Any:
        """The greatest value that this expression can take."""
        return self._min_max()[1]

    def _min_max(self) -> tuple[Any, Any]:
        if self._bounds is UNSET:
            self._bounds = min_max(self)
        bounds: tuple[Any, Any] = self._bounds
        return bounds

    def simplify(self) -> UOp:
        """The same expression, simplified."""
        if not self.src:
            return self
        return graph_rewrite(self, symbolic, name="simplify")

    def ssimplify(self) -> sint:
        """The simplified expression, as an int where it is constant."""
        simple = self.simplify()
        return cast(int, simple.arg) if simple.op is Ops.CONST else simple

    def render(self) -> str:
        """The expression in infix form."""
        return infix(self)

    def variables(self) -> list[UOp]:
        """The Variables this graph depends on, sorted by name; movement arguments are searched
        too.
        """
        found: set[UOp] = set()
        for node in self.toposort():
            if node.op is Ops.DEFINE_VAR:
                found.add(node)
            elif node.op in GroupOp.Movement or node.op in {Ops.ARANGE, Ops.PARAM}:
                for x in symbolic_args(node):
                    found.update(x.variables())
        return sorted(found, key=lambda v: cast(str, v.arg[0]))

    # ---- storage ----

    @property
    def realized(self) -> Any:
        """The storage of a stored value (`Buffer` or `MultiBuffer`), or None."""
        base = self.base
        return buffers.get(base) if base.op is Ops.BUFFER else None

    @property
    def is_realized(self) -> bool:
        """Whether the value below all movement is in memory."""
        return self.realized is not None

    @property
    def buffer(self) -> Any:
        """The storage of this value; an error if it is not realized."""
        found = self.realized
        if found is None:
            raise ValueError(f"{self.base.op.name} is not realized, so it has no buffer")
        return found

    # ---- kernels ----

    @staticmethod
    def placeholder(
        shape: tuple[sint, ...],
        dtype: DType,
        slot: int,
        addrspace: AddrSpace = AddrSpace.GLOBAL,
    ) -> UOp:
        """Array number `slot` of a kernel: an argument, scratch memory, or registers."""
        return UOp(Ops.PARAM, dtype, (), ParamArg(slot, shape, addrspace))

    @staticmethod
    def range(size: sint, index: int, axis_type: AxisType = AxisType.LOOP) -> UOp:
        """A loop variable `0 <= r < size`."""
        bound = UOp.const(dtypes.index, size)
        return UOp(Ops.RANGE, dtypes.index, (bound,), RangeArg(index, axis_type))

    def index(self, idx: UOp, valid: UOp | None = None) -> UOp:
        """The address of element `idx` of this pointer; with `valid`, only where that is true."""
        return UOp(Ops.INDEX, self.dtype, (self, idx) if valid is None else (self, idx, valid))

    def load(self, alt: UOp | None = None, dtype: DType | None = None) -> UOp:
        """The value at this address; `alt` where the address is not valid."""
        return UOp(Ops.LOAD, dtype or self.dtype.base, (self,) if alt is None else (self, alt))

    def store(self, value: UOp | ConstType, *ranges: UOp) -> UOp:
        """Write `value` to this address, once for each value of `ranges`."""
        written = UOp.const(self.dtype.base, value)
        return UOp(Ops.STORE, dtypes.void, (self, written, *ranges))

    def reduce(self, *ranges: UOp, arg: Ops) -> UOp:
        """The reduction of this value over `ranges` by the op `arg`."""
        return UOp(Ops.REDUCE, self.dtype, (self, *ranges), arg)

    def group(*stores: UOp) -> UOp:
        """Several things that a kernel does, in any order."""
        return UOp(Ops.NOOP, dtypes.void, stores)

    def gep(self, lane: int) -> UOp:
        """One lane of a vector."""
        return UOp(Ops.GEP, self.dtype.scalar(), (self,), lane)


def _is_whole(bounds: tuple[tuple[sint, sint], ...], shape: tuple[sint, ...]) -> bool:
    # `==` between symbolic sizes is identity, since nodes are interned
    return all(
        isinstance(start, int) and start == 0 and end == size
        for (start, end), size in zip(bounds, shape, strict=True)
    )


def _conflicts(srcs: tuple[UOp, ...]) -> bool:
    return len({x.device for x in srcs if x.device is not None}) > 1
