"""Distribute loops over the threads of a block.

A work item is a block of threads, numbered by one LOCAL loop directly inside its GLOBAL loop. All
threads run what is inside: loops are distributed by computing their counters from the number of the
thread. Neighbouring threads get neighbouring steps, so that their accesses are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.codegen.analysis.affine_index import and_conditions
from tinygrad.codegen.analysis.ranges import extent, is_static
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.split import replace_axis
from tinygrad.dtype import dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer import pointer_of
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, UOp


class Block:
    """The threads of the work items of a nest, in groups that share the work of one row."""

    def __init__(
        self,
        nest: Nest,
        threads: int,
        group: int = 1,
        interleaved: bool = False,
        thread: UOp | None = None,
    ) -> None:
        self.nest = nest
        self.interleaved = interleaved
        """Whether neighbouring threads are in different groups."""
        self.threads = threads
        self.group = group
        self.thread = nest.factory.new(threads, AxisType.LOCAL) if thread is None else thread
        apart = _index(threads // group if interleaved else group)
        far, near = self.thread.alu(Ops.IDIV, apart), self.thread.alu(Ops.MOD, apart)
        self.lane = (far if interleaved else near).simplify()
        """The number of a thread in its group."""
        self.row = (near if interleaved else far).simplify()
        """The number of a thread's group."""

    @property
    def rows(self) -> int:
        """The groups of a block."""
        return self.threads // self.group

    def distribute(self, axes: Sequence[UOp], each: int = 1) -> None:
        """Make the outermost loops of all stores, in order, the grid of blocks.

        A group computes `each` steps, which are as far apart as there are groups.
        """
        nest, limit = self.nest, self.nest.renderer.target.grid_items
        size = product([r.src[0] for r in axes])
        steps = self.rows * each
        blocks = _quotient_above(size, steps)
        turns = ceildiv(blocks, limit) if isinstance(blocks, int) else 1
        item = nest.factory.new(blocks if turns == 1 else limit, AxisType.GLOBAL)
        position, loops = item * steps, [item, self.thread]
        if turns > 1:
            # more than the launch can have: every block computes several steps
            turn = nest.factory.new(turns, AxisType.LOOP)
            loops.append(turn)
            position = position + turn * (limit * steps)
        if each > 1:
            step = nest.factory.new(each, AxisType.TILE)
            loops.append(step)
            position = position + step * self.rows
        if self.rows > 1:
            position = position + self.row
        exact = isinstance(size, int) and size == extent(item) * turns * steps
        condition = None if exact else position < _index(size)
        self.replace(axes, position, loops, condition)
        if not axes:
            stores = [s.replace(src=(*s.src[:2], *loops, *s.src[2:])) for s in nest.stores]
            nest.root = nest.root.replace(src=tuple(stores))
        nest.note(f"grid {blocks if isinstance(blocks, int) else blocks.render()}")

    def replace(
        self, axes: Sequence[UOp], position: UOp, loops: Sequence[UOp], condition: UOp | None
    ) -> None:
        """Replace `axes`, flattened, by a position, and by `loops` in the nests that run them.

        Where the condition is false, nothing that depends on the axes is loaded, stored or reduced.
        """
        table: list[tuple[UOp, UOp]] = []
        for r in reversed(axes[1:]):
            table.append((r, position.alu(Ops.MOD, r.src[0])))
            position = position.alu(Ops.IDIV, r.src[0])
        if axes:
            table.append((axes[0], position))
        for r, value in table:
            is_first = r is axes[0]
            self.nest.root = replace_axis(
                self.nest.root,
                r,
                value,
                tuple(loops) if is_first else (),
                condition if is_first else None,
            )

    def share(self, axes: Sequence[UOp], tile: bool = False) -> UOp | None:
        """Distribute loops of a row over its group; returns the loop over the steps of a thread, or
        None if each thread has one step.

        With `tile`, that loop is unrolled.
        """
        assert all(map(is_static, axes)), "a group shares loops of constant size"
        size = points_of(axes)
        steps = ceildiv(size, self.group)
        kind = AxisType.TILE if tile else axes[0].arg.kind
        step = self.nest.factory.new(steps, kind) if steps > 1 else None
        position = self.lane if step is None else step * self.group + self.lane
        condition = None if size % self.group == 0 else position < _index(size)
        self.replace(axes, position, () if step is None else (step,), condition)
        return step

    def only_first(self, stores: Sequence[UOp]) -> None:
        """Let only the first thread of a group run some stores, and read what they write."""
        is_first = self.lane < 1
        written = {pointer_of(store.src[0]) for store in self.nest.stores}
        table = {}
        for store in stores:
            address, value = store.src[:2]
            loads = [u for u in _loads_of_a_thread(value) if pointer_of(u.src[0]) in written]
            only = {u: _load_where(u, is_first) for u in loads}
            src = (_where(address, is_first), value.substitute(only), *store.src[2:])
            table[store] = store.replace(src=src)
        self.nest.root = self.nest.root.substitute(table)


def _where(address: UOp, condition: UOp) -> UOp:
    """An address that is accessed under one more condition."""
    return address.replace(src=(*address.src[:2], and_conditions(condition, *address.src[2:])))


def _load_where(load: UOp, condition: UOp) -> UOp:
    """A load under one more condition; zero where it is false, if it had none."""
    address, *alternative = load.src
    src = (_where(address, condition), *(alternative or [UOp.const(load.dtype, 0)]))
    return load.replace(src=src)


def _loads_of_a_thread(value: UOp) -> list[UOp]:
    """The loads of a value whose results no other thread needs for a reduction."""
    own = value.toposort(lambda x: x.op not in _EXCHANGES)
    needed = set().union(*[u.toposort() for u in own if u.op in _EXCHANGES])
    return [u for u in own if u.op is Ops.LOAD and u not in needed]


_EXCHANGES = frozenset({Ops.REDUCE, Ops.SHUFFLE})


def points_of(axes: Sequence[UOp]) -> int:
    """The steps of some loops together."""
    total = 1
    for r in axes:
        total *= extent(r)
    return total


def product(sizes: Sequence[UOp]) -> UOp | int:
    """The product of loop sizes; an int if all are constant."""
    static, total = 1, None
    for size in sizes:
        if size.op is Ops.CONST:
            static *= int(size.arg)
        else:
            total = size if total is None else total * size
    return static if total is None else (total * static).simplify()


def _quotient_above(size: UOp | int, by: int) -> UOp | int:
    if isinstance(size, int):
        return ceildiv(size, by)
    return (size + (by - 1)).alu(Ops.IDIV, _index(by)).simplify()


def _index(value: UOp | int) -> UOp:
    return UOp.const(dtypes.index, value)
