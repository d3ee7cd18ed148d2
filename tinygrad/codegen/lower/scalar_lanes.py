"""Write vectors lane by lane, for targets whose threads compute with scalars.

Before: expressions of vector dtypes. After: scalar expressions. Vectors remain as what one aligned
LOAD or STORE of at most the target's `vector_bytes` moves: GEP takes their lanes, VECTORIZE builds
them. Accesses that are not aligned, masked lane by lane or gathers become one access per lane.
Register arrays of vectors become arrays of scalars.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tinygrad.codegen.analysis.affine_index import collect, is_multiple
from tinygrad.codegen.analysis.ranges import loops_of
from tinygrad.dtype import AddrSpace, DType, PtrDType, dtypes
from tinygrad.renderer import Renderer, memory_dtype, pointer_of
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def write_lanes(sink: UOp, renderer: Renderer) -> UOp:
    """Write the vectors of a kernel lane by lane, if its target has threads."""
    nodes = sink.toposort()
    if not renderer.target.has_threads or not any(u.dtype.count > 1 for u in nodes):
        return sink
    writing = _Lanes(renderer.target.vector_bytes)
    for u in nodes:
        writing.write(u)
    return writing.scalar[sink]


@dataclass(frozen=True)
class _Address:
    """The address of a vector: a pointer, and for each lane an index and a condition or None."""

    pointer: UOp
    first: UOp | None
    """The index of the first lane, if the lanes are contiguous."""
    indices: tuple[UOp, ...]
    valid: tuple[UOp | None, ...]

    def lane(self, number: int) -> UOp:
        """The address of one lane."""
        return self.pointer.index(self.indices[number], self.valid[number])


class _Lanes:
    """The scalars of every node: one, or one for each lane of a vector."""

    def __init__(self, vector_bytes: int) -> None:
        self.vector_bytes = vector_bytes
        self.scalar: dict[UOp, UOp] = {}
        self.lanes: dict[UOp, tuple[UOp, ...]] = {}
        self.addresses: dict[UOp, _Address] = {}
        self.stores: dict[UOp, tuple[UOp, ...]] = {}

    def of(self, u: UOp, count: int) -> tuple[UOp, ...]:
        """The lanes of a node; a scalar is in all lanes."""
        found = self.lanes.get(u)
        return (self.scalar[u],) * count if found is None else found

    def write(self, u: UOp) -> None:
        """Write one node, whose sources are written."""
        count = u.dtype.count
        if u.op is Ops.INDEX:
            self.index(u)
        elif u.op is Ops.STORE:
            self.store(u)
        elif isinstance(u.dtype, PtrDType):
            self.scalar[u] = self.pointer(u)
        elif u.op is Ops.REDUCE and u.src[0].dtype.count > 1:
            self.scalar[u] = _fold(u.arg, u.dtype, self.lanes[u.src[0]])
        elif u.op is Ops.GEP:
            source = self.lanes[u.src[0]]
            if isinstance(u.arg, tuple):
                self.lanes[u] = tuple([source[i] for i in u.arg])
            else:
                self.scalar[u] = source[u.arg]
        elif u.op is Ops.MMA_ASYNC:
            self.scalar[u] = u.with_sources(self.operands(u))
        elif count == 1:
            self.scalar[u] = self.rebuilt(u)
        elif u.op is Ops.LOAD:
            self.lanes[u] = self.load(u)
        elif u.op is Ops.CONST:
            values = u.arg if isinstance(u.arg, tuple) else (u.arg,) * count
            self.lanes[u] = tuple([UOp.const(u.dtype.scalar(), x) for x in values])
        elif u.op in {Ops.MMA, Ops.LOAD_MATRIX}:
            self.lanes[u] = self.fragment(u)
        elif u.op is Ops.VECTORIZE:
            self.lanes[u] = tuple([self.scalar[x] for x in u.src]) * (count // len(u.src))
        else:
            assert u.op in GroupOp.Elementwise, f"{u.op.name} of a vector"
            src = [self.of(x, count) for x in u.src]
            self.lanes[u] = tuple(
                [UOp(u.op, u.dtype.scalar(), x, u.arg) for x in zip(*src, strict=True)]
            )

    def rebuilt(self, u: UOp) -> UOp:
        """A scalar node over written sources; one after a store is after the stores of lanes."""
        if self.stores:
            src = tuple(itertools.chain(*[self.stores.get(x) or (self.scalar[x],) for x in u.src]))
        else:
            src = tuple([self.scalar[x] for x in u.src])
        return u.with_sources(src)

    def fragment(self, u: UOp) -> tuple[UOp, ...]:
        """The lanes of the result of an instruction of the warp, whose operands stay vectors."""
        whole = UOp(u.op, u.dtype, self.operands(u), u.arg)
        return tuple([whole.gep(i) for i in range(u.dtype.count)])

    def operands(self, u: UOp) -> tuple[UOp, ...]:
        """The operands of an instruction of the warp."""
        return tuple([_vector(self.lanes[x]) if x in self.lanes else self.scalar[x] for x in u.src])

    def pointer(self, u: UOp) -> UOp:
        """A pointer; memory of vectors becomes memory of scalars."""
        u = self.rebuilt(u)
        assert isinstance(u.dtype, PtrDType)
        base = u.dtype.base
        if base.count == 1:
            return u
        scalars = base.scalar().ptr(u.dtype.size * base.count, u.dtype.addrspace)
        return UOp(u.op, scalars, u.src, u.arg)

    # ---- memory ----

    def index(self, u: UOp) -> None:
        """Note the address of each lane of the accesses by an INDEX."""
        self.scalar[u] = self.rebuilt_index(u)

    def rebuilt_index(self, u: UOp) -> UOp:
        src = tuple([self.scalar.get(x, x) for x in u.src])
        pointer = src[0]
        return u if src == u.src else UOp(u.op, pointer.dtype, src, u.arg)

    def address(self, u: UOp, count: int) -> _Address:
        """The addresses of `count` lanes of the access by the INDEX `u`."""
        pointer = u.src[0]
        base: UOp | None = None
        if pointer.op is Ops.INDEX:
            # lanes at constant offsets from an address
            base = self.scalar[pointer.src[1]]
            pointer = pointer.src[0]
        assert isinstance(pointer.dtype, PtrDType)
        index = u.src[1]
        width = pointer.dtype.base.count
        first: UOp | None = None
        if index.dtype.count > 1:
            lanes = [_as_index(x) for x in self.lanes[index]]
            indices = tuple([collect(base + x) if base is not None else x for x in lanes])
        else:
            first = collect(self.scalar[index] * width) if width > 1 else self.scalar[index]
            indices = tuple([collect(first + i) if i else first for i in range(count)])
        valid: tuple[UOp | None, ...] = (None,) * count
        if len(u.src) > 2:
            valid = self.of(u.src[2], count)
        return _Address(self.scalar[pointer], first, indices, valid)

    def chunks(self, address: _Address, dtype: DType) -> int:
        """The lanes that one access moves: all, a part that fits the target, or one."""
        lanes = dtype.count
        itemsize = memory_dtype(dtype.scalar()).itemsize
        while lanes * itemsize > self.vector_bytes and lanes > 1:
            lanes //= 2
        in_registers = _space(address.pointer) is AddrSpace.REG
        if address.first is None or in_registers or len(set(address.valid)) > 1:
            return 1
        while lanes > 1 and (dtype.count % lanes or not is_multiple(address.first, lanes)):
            lanes //= 2
        return lanes

    def load(self, u: UOp) -> tuple[UOp, ...]:
        """The lanes of a load."""
        dtype, count = u.dtype.scalar(), u.dtype.count
        address = self.address(u.src[0], count)
        others = self.of(u.src[1], count) if len(u.src) > 1 else ()
        together = self.chunks(address, u.dtype)
        lanes: list[UOp] = []
        for start in range(0, count, together):
            where = address.lane(start)
            masked = address.valid[start] is not None
            if together == 1:
                other = others[start] if others else UOp.const(dtype, 0)
                lanes.append(where.load(other if masked else None, dtype=dtype))
                continue
            vector = dtype.vec(together)
            part = others[start : start + together] or (UOp.const(dtype, 0),) * together
            loaded = where.load(_vector(part) if masked else None, dtype=vector)
            lanes += [loaded.gep(i) for i in range(together)]
        return tuple(lanes)

    def store(self, u: UOp) -> None:
        """The stores of all lanes of a store."""
        loops = tuple([self.scalar[x] for x in loops_of(u)])
        count = u.src[1].dtype.count
        if count == 1:
            src = (self.scalar[u.src[0]], self.scalar[u.src[1]], *loops)
            self.scalar[u] = u.with_sources(src)
            return
        values = self.lanes[u.src[1]]
        address = self.address(u.src[0], count)
        together = self.chunks(address, u.src[1].dtype)
        stores: list[UOp] = []
        for start in range(0, count, together):
            part = values[start : start + together]
            value = part[0] if together == 1 else _vector(part)
            stores.append(address.lane(start).store(value, *loops))
        self.stores[u] = tuple(stores)
        self.scalar[u] = stores[-1]


def _vector(lanes: tuple[UOp, ...]) -> UOp:
    return UOp(Ops.VECTORIZE, lanes[0].dtype.vec(len(lanes)), lanes)


def _as_index(node: UOp) -> UOp:
    if node.dtype is dtypes.index:
        return node
    if node.op is Ops.CONST:
        return UOp.const(dtypes.index, node.arg)
    return UOp(Ops.CAST, dtypes.index, (node,))


def _space(pointer: UOp) -> AddrSpace:
    dtype = pointer_of(pointer).dtype
    assert isinstance(dtype, PtrDType)
    return dtype.addrspace


def _fold(op: Ops, dtype: DType, lanes: tuple[UOp, ...]) -> UOp:
    """The reduction of lanes, as a balanced tree."""
    while len(lanes) > 1:
        half = (len(lanes) + 1) // 2
        pairs = [UOp(op, dtype, (a, b)) for a, b in zip(lanes, lanes[half:], strict=False)]
        lanes = (*pairs, *lanes[len(pairs) : half])
    return lanes[0]
