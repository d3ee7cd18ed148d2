"""`Node`, the immutable, interned node that every graph is built from.

Invariant: equal nodes are the same object, so equality is identity and every table keyed by a node
is cheap. `Node` is the type that the rules of this package see; it declares those methods of the
families in `methods/` that rules call. The class of every node is `UOp` (`ops.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar, cast

from tinygrad.dtype import ConstType, DType, dtypes
from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.sharding import Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.device_value import DeviceValue, TensorDevice
from tinygrad.uop.interning import NodeRef, find_interned, node_died, table
from tinygrad.uop.known_orders import known
from tinygrad.uop.math import MathMixin
from tinygrad.uop.user_line import UserLine

N = TypeVar("N", bound="Node")

UNSET = object()
"""The value of a cached property that has not been computed."""

_CONST = Ops.CONST
_allocate: Any = object.__new__


def _const_key(value: Any) -> Any:
    # 0.0 == -0.0 and nan != nan, so neither may serve as a key itself; and 1 == 1.0 == True
    return value.__class__, value if value and value == value else repr(value)


class Node(MathMixin):
    """An operation `op` on the sources `src` with the parameters `arg`; `dtype` is the result's."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_device",
        "_key",
        "_settled",
        "_shape",
        "_verified",
        "arg",
        "dtype",
        "facts",
        "memory",
        "op",
        "src",
        "tag",
        "user_line",
    )

    op: Ops
    dtype: DType
    src: tuple[Self, ...]
    arg: Any
    # a mark that tells the node from one without it, for passes of a program; None in ours
    tag: Any
    # no part of the node's identity: `file:line` of the user's program that caused a COPY or an
    # ALLREDUCE, or its number in `Canonical.lines`; whatever rewrites the node carries it over
    user_line: UserLine | int | None
    # the memory of a BUFFER that has some, a Buffer or a MultiBuffer, which lives as long as the
    # node does; written by `execution.buffers` alone
    memory: Any
    # what is known of the node beside the graph, by `NodeTable`
    facts: dict[Any, Any] | None
    # cached properties
    _bounds: Any
    _device: Any
    _settled: Any
    _shape: Any
    # not there until it was computed
    _key: bytes
    # names of the forms of the graph in which this node and all below it were found valid; not
    # there until it was verified
    _verified: tuple[str, ...]

    def __new__(
        cls,
        op: Ops,
        dtype: DType = dtypes.void,
        src: tuple[Self, ...] = (),
        arg: Any = None,
        tag: Any = None,
    ) -> Self:
        key: tuple[Any, ...] = (op, dtype, src, _const_key(arg) if op is _CONST else arg)
        if tag is not None:
            key = (*key, tag)
        ref = table.get(key)
        if ref is not None:
            found: Self | None = ref()
            if found is not None:
                return found
        self: Self = _allocate(cls)
        self.op = op
        self.dtype = dtype
        self.src = src
        self.arg = arg
        self.tag = tag
        self.user_line = self.memory = self.facts = None
        self._shape = self._device = self._bounds = self._settled = UNSET
        new = NodeRef(self, node_died)
        new.key = key
        if table.setdefault(key, new) is not new:
            self = find_interned(new)
        return self

    __hash__ = object.__hash__

    def __ne__(self, x: object) -> Self:  # type: ignore[override]
        # `==` is identity, as nodes are keys
        return self.ne(x) if isinstance(x, (Node, int, float)) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.op, self.dtype, self.src, self.arg, self.tag)

    @classmethod
    def const(cls, dtype: DType, value: ConstType | Self) -> Self:
        """A constant, shape (); of a vector dtype, the same number in all lanes."""
        if isinstance(value, Node):
            return value
        return cls(Ops.CONST, dtype, (), dtypes.as_const(value, dtype.scalar()))

    # ---- structure ----

    def replace(self, **kwargs: Any) -> Self:
        """Return this node with some of `op`, `dtype`, `src`, `arg`, `tag` changed."""
        fields = {"op": self.op, "dtype": self.dtype, "src": self.src, "arg": self.arg} | kwargs
        tag = fields.get("tag", self.tag)
        new = type(self)(fields["op"], fields["dtype"], fields["src"], fields["arg"], tag)
        if self.user_line is not None:
            new.user_line = self.user_line
        return new

    def rtag(self, tag: Any = True) -> Self:
        """Return this node with another tag."""
        return self.replace(tag=tag)

    def with_sources(self, src: tuple[Self, ...]) -> Self:
        """Return this node on other sources."""
        if src == self.src:
            return self
        new = type(self)(self.op, self.dtype, src, self.arg, self.tag)
        if self.user_line is not None:
            new.user_line = self.user_line
        return new

    def take_shape(self, other: Self) -> None:
        """Note that the shape is that of `other`, unless it is known already."""
        if self._shape is UNSET:
            self._shape = other._shape

    def take_device(self, other: Self) -> None:
        """Note that the device is that of `other`, unless it is known already."""
        if self._device is UNSET:
            self._device = other._device

    def placed_as(self, other: Self) -> Self:
        """This node; its shape and its device are those of `other`."""
        self.take_shape(other)
        self.take_device(other)
        return self

    def toposort(self, gate: Callable[[Self], bool] | None = None) -> dict[Self, None]:
        """Return every node below and including this one, sources first. `gate` stops the
        descent. What is returned without a gate is not to be changed.
        """
        kept = known.by_sink if gate is None and self.op is Ops.SINK else None
        if kept is not None and self in kept:
            return kept[self]
        done: dict[Self, None] = {}
        if gate is not None and not gate(self):
            return {self: None}
        # nodes with their sources that were not visited yet
        stack = [(self, iter(self.src))]
        while stack:
            node, sources = stack[-1]
            for x in sources:
                if x in done:
                    continue
                if x.src and (gate is None or gate(x)):
                    stack.append((x, iter(x.src)))
                    break
                done[x] = None
            else:
                done[node] = None
                stack.pop()
        if kept is not None:
            kept[self] = done
        return done

    def substitute(self, table: dict[Self, Self]) -> Self:
        """Return the graph with every key of `table` replaced; replacements are not searched."""
        if not table:
            return self
        make, done = type(self), dict[Self, Self]()
        for node in self.toposort(gate=lambda u: u not in table):
            found = table.get(node)
            if found is None:
                src = tuple(done[x] for x in node.src)
                found = (
                    node if src == node.src else make(node.op, node.dtype, src, node.arg, node.tag)
                )
                if node.user_line is not None:
                    found.user_line = node.user_line
            done[node] = found
        return done[self]

    def split_uop(self, op: Ops) -> Iterator[Self]:
        """The operands of a tree of `op`, from left to right: of `a + (b + c)`, a, b and c."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.op is op:
                stack.extend(reversed(node.src))
            else:
                yield node

    def variables(self) -> list[Self]:
        """The Variables this graph depends on, sorted by name; movement arguments are searched
        too.
        """
        found: set[Self] = set()
        for node in self.toposort():
            if node.op is Ops.DEFINE_VAR:
                found.add(node)
            elif node.op in GroupOp.Movement or node.op in {Ops.ARANGE, Ops.PARAM}:
                for x in symbolic_args(node):
                    found.update(x.variables())
        return sorted(found, key=lambda v: cast(str, v.arg[0]))

    @property
    def key(self) -> bytes:
        """A content hash that is the same in every process (for caches on disk)."""
        # a node that has one ends the descent
        for node in self.toposort(gate=lambda u: not hasattr(u, "_key")):
            if not hasattr(node, "_key"):
                argument = _content(node.arg)
                digest = hashlib.sha256(f"{node.op.name}{node.dtype}{argument}".encode())
                for x in node.src:
                    digest.update(x._key)
                node._key = digest.digest()
        return self._key

    # ---- properties: computed by rules, see `methods/properties.py` ----

    @property
    def shape_or_none(self) -> tuple[int | Self, ...] | None:
        """The global shape; None outside the tensor graph."""
        raise NotImplementedError

    @property
    def device(self) -> DeviceValue:
        """Where the value lives; None for an expression of constants."""
        raise NotImplementedError

    @property
    def layout(self) -> Sharding:
        """The device of a value that is known to be sharded."""
        layout = self.device
        assert isinstance(layout, Sharding), f"{self.op.name} is on {layout!r}, not sharded"
        return layout

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The lower and upper bound of the value."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int | Self, ...]:
        """The global shape of the value."""
        shape: tuple[int | Self, ...] | None = self._shape
        if shape is UNSET:
            shape = self.shape_or_none
        if shape is None:
            raise ArgumentError(
                f"{self.op.name} has no shape: it is not a node of the tensor graph"
            )
        return shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements; where the shape is symbolic, an upper bound."""
        return prod(d if isinstance(d, int) else int(d.vmax) for d in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the global value."""
        return self.size * self.dtype.itemsize

    @property
    def vmin(self) -> Any:
        """The lower bound of the value."""
        return self.bounds[0]

    @property
    def vmax(self) -> Any:
        """The upper bound of the value."""
        return self.bounds[1]

    # ---- numbers: an expression whose bounds meet ----

    def __bool__(self) -> bool:
        if self.op is Ops.CONST:
            return bool(self.arg)
        for node in (self, self.simplify()):
            low, high = node.bounds
            if low == high:
                return bool(low)
        raise ArgumentError(f"the truth of a symbolic expression is not known: {self.render()}")

    def __int__(self) -> int:
        return int(self._known_value())

    def __float__(self) -> float:
        return float(self._known_value())

    def __index__(self) -> int:
        return int(self)

    def _known_value(self) -> Any:
        simple = self.simplify()
        if simple.vmin != simple.vmax:
            raise ArgumentError(
                f"the value of a symbolic expression is not known: {simple.render()}"
            )
        return simple.vmin

    # ---- declared here, defined by the families of methods above ----

    def simplify(self) -> Self:
        """The same expression, simplified."""
        raise NotImplementedError

    def ssimplify(self) -> int | Self:
        """The simplified expression, as an int where it is constant."""
        simple = self.simplify()
        return cast(int, simple.arg) if simple.op is Ops.CONST else simple

    def render(self, simplify: bool = True) -> str:
        """The expression in infix form, simplified first."""
        raise NotImplementedError

    def cast(self, dtype: DType) -> Self:
        """The value converted to `dtype`."""
        raise NotImplementedError

    def reshape(self, shape: Any, *sizes: Any) -> Self:
        """The same elements in row-major order under another shape."""
        raise NotImplementedError

    def pad(self, padding: tuple[tuple[Any, Any], ...]) -> Self:
        """Zeros before and after each axis."""
        raise NotImplementedError

    def shrink(self, bounds: tuple[tuple[Any, Any], ...]) -> Self:
        """Keep `start:end` of each axis."""
        raise NotImplementedError

    def broadcast_to(self, shape: tuple[Any, ...]) -> Self:
        """A scalar as an array of `shape`."""
        raise NotImplementedError

    def allreduce(self, device: TensorDevice) -> Self:
        """The reduction of a partial value, delivered to `device`."""
        raise NotImplementedError

    def copy_to_device(self, device: DeviceValue | Sequence[str]) -> Self:
        """The same value on another device or in another layout."""
        raise NotImplementedError


def symbolic_args(node: N) -> Iterator[N]:
    """The expressions in the argument of a movement op, ARANGE or PARAM."""
    stack = [node.arg.shape if node.op is Ops.PARAM else node.arg]
    while stack:
        x = stack.pop()
        if isinstance(x, Node):
            yield cast(N, x)
        elif isinstance(x, tuple):
            stack.extend(x)


def _content(arg: Any) -> str:
    """An argument as text that differs where the argument does, symbolic sizes included."""
    if isinstance(arg, Node):
        return arg.key.hex()
    return f"({','.join(map(_content, arg))})" if type(arg) is tuple else repr(arg)
