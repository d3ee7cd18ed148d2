"""`Node`, what every graph is made of: immutable and interned.

Equal nodes are the same object, so equality is identity and every table keyed by a node is cheap.
"""

from __future__ import annotations

import collections
import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Self, cast

from tinygrad.dtype import DType, dtypes
from tinygrad.uop import Ops

# what a node has not been asked for yet
UNSET = object()


class _TableRef(weakref.ref[Any]):
    __slots__ = ("key",)
    key: tuple[Any, ...]


class _Removal:
    """The references of dead nodes, to be removed from the table.

    The garbage collector calls `run` at any point of any thread, so it never waits for the lock:
    the holder of the lock calls it again after releasing. Removing a node may let its sources die,
    which calls it recursively; those are left to the outermost call, so deep graphs do not recurse.
    """

    def __init__(self) -> None:
        self.dead: collections.deque[_TableRef] = collections.deque()
        self.is_running = False

    def node_died(self, ref: _TableRef) -> None:
        self.dead.append(ref)
        self.run()

    def run(self) -> None:
        while self.dead and _table_lock.acquire(False):
            is_outermost, self.is_running = not self.is_running, True
            try:
                while is_outermost and self.dead:
                    ref = self.dead.popleft()
                    # a new node may have taken the key since
                    if _table.get(ref.key) is ref:
                        del _table[ref.key]
            finally:
                self.is_running = not is_outermost
                _table_lock.release()
            if not is_outermost:
                return


# Every live node by its contents. `dict.setdefault`, which is atomic, adds entries; those of dead
# nodes are replaced and removed under the lock.
_table: dict[tuple[Any, ...], _TableRef] = {}
_table_lock = threading.RLock()
_removal = _Removal()


def _replace_dead(ref: _TableRef) -> Any:
    """Put `ref` in the place of a reference whose node has died, unless another thread did."""
    with _table_lock:
        found = _table.setdefault(ref.key, ref)()
        if found is None:
            _table[ref.key] = ref
            found = ref()
    _removal.run()
    return found


def _const_key(value: Any) -> Any:
    # 0.0 == -0.0 and nan != nan, so neither may serve as a key itself; and 1 == 1.0 == True
    return value.__class__, value if value and value == value else repr(value)


class Node:
    """What to do (`op`), with what (`src`), the parameters (`arg`) and the dtype of the result."""

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_device",
        "_key",
        "_settled",
        "_shape",
        "arg",
        "dtype",
        "op",
        "src",
    )

    op: Ops
    dtype: DType
    src: tuple[Self, ...]
    arg: Any
    # found when first asked for, and kept
    _bounds: Any
    _device: Any
    _key: Any
    _settled: Any
    _shape: Any

    def __new__(
        cls, op: Ops, dtype: DType = dtypes.void, src: tuple[Self, ...] = (), arg: Any = None
    ) -> Self:
        key = (op, dtype, src, _const_key(arg) if op is Ops.CONST else arg)
        ref = _table.get(key)
        if ref is not None:
            found: Self | None = ref()
            if found is not None:
                return found
        self = object.__new__(cls)
        self.op = op
        self.dtype = dtype
        self.src = src
        self.arg = arg
        self._shape = self._device = self._bounds = self._key = self._settled = UNSET
        new = _TableRef(self, _removal.node_died)
        new.key = key
        found = _table.setdefault(key, new)()
        if found is None:
            found = _replace_dead(new)
        return found

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.op, self.dtype, self.src, self.arg)

    def replace(self, **kwargs: Any) -> Self:
        """Return this node with some of `op`, `dtype`, `src`, `arg` changed."""
        new = {"op": self.op, "dtype": self.dtype, "src": self.src, "arg": self.arg} | kwargs
        return type(self)(new["op"], new["dtype"], new["src"], new["arg"])

    def toposort(self, gate: Callable[[Self], bool] | None = None) -> dict[Self, None]:
        """Return every node below and including this one, sources first. `gate` stops the
        descent.
        """
        done: dict[Self, None] = {}
        # nodes whose sources are on the stack above them: met again, their sources are done
        opened: set[Self] = set()
        stack = [self]
        while stack:
            node = stack.pop()
            if node in done:
                continue
            if not node.src or node in opened or (gate is not None and not gate(node)):
                done[node] = None
                continue
            opened.add(node)
            stack.append(node)
            for x in reversed(node.src):
                if x not in done:
                    stack.append(x)
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
                found = node if src == node.src else make(node.op, node.dtype, src, node.arg)
            done[node] = found
        return done[self]

    def split_uop(self, op: Ops) -> Iterator[Self]:
        """What `op` joins here, from left to right: of `a + (b + c)`, by ADD, a, b and c."""
        stack = [self]
        while stack:
            node = stack.pop()
            if node.op is op:
                stack.extend(reversed(node.src))
            else:
                yield node

    @property
    def key(self) -> bytes:
        """A content hash that is the same in every process (for caches on disk)."""
        if self._key is UNSET:
            for node in self.toposort(gate=lambda u: u._key is UNSET):
                if node._key is UNSET:
                    argument = _content(node.arg)
                    digest = hashlib.sha256(f"{node.op.name}{node.dtype}{argument}".encode())
                    for x in node.src:
                        digest.update(cast(bytes, x._key))
                    node._key = digest.digest()
        return cast(bytes, self._key)


def _content(arg: Any) -> str:
    """An argument as text that differs where the argument does, symbolic sizes included."""
    if isinstance(arg, Node):
        return arg.key.hex()
    return f"({','.join(map(_content, arg))})" if type(arg) is tuple else repr(arg)
