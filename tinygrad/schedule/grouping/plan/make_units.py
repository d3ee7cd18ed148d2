"""A unit of work for each materialised value: the kernel or transfer that makes it.

Input: the materialised nodes of a per-device graph, sources first, with their storage. Output:
units, with the tensor forms of kernels. Invariant: a kernel reads materialised values alone, each
as a PARAM; everything else that it depends on is computed within it.
"""

from __future__ import annotations

from typing import Any

from tinygrad.schedule.execution_plan import Slices, TransferItem
from tinygrad.schedule.grouping.plan.storage_map import StorageMap
from tinygrad.schedule.grouping.plan.unit import Unit
from tinygrad.schedule.grouping.softmax.chains import SoftmaxChain
from tinygrad.schedule.grouping.values import max_elements, memory_of
from tinygrad.schedule.storage_views import NAMES_MEMORY, below_reshapes
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import ParamArg, UOp
from tinygrad.uop.reduction import SCATTER_REDUCE_OPS, identity


class UnitBuilder:
    """Builds `units`; `writer[node]` is the one that writes a materialised node."""

    def __init__(
        self, materialized: set[UOp], storage: StorageMap, chains: list[SoftmaxChain]
    ) -> None:
        self.materialized = materialized
        # values that the kernel of another one computes, and stores if `also_stored` says so
        self.inlined: dict[UOp, set[UOp]] = {}
        self.also_stored: dict[UOp, list[UOp]] = {}
        for chain in chains:
            for result, inside in chain.inlined.items():
                self.inlined[result] = inside
                self.also_stored[result] = [x for x in chain.stored if x in materialized]
        self.stored_elsewhere = {x for found in self.also_stored.values() for x in found}
        self.storage = storage
        self.units: list[Unit] = []
        self.writer: dict[UOp, Unit] = {}
        self.params: dict[Any, UOp] = {}
        # a hand-written kernel is one unit, of whose outputs each is a node
        self.custom: dict[tuple[tuple[UOp, ...], UOp], Unit] = {}

    def add(self, node: UOp) -> None:
        """Add the units that write a materialised value, if there is something to write."""
        op = node.op
        if op is Ops.BUFFER or op in NAMES_MEMORY:
            return
        if 0 in node.shape or node in self.stored_elsewhere:
            return
        if op is Ops.CUSTOM_KERNEL:
            self.writer[node] = self.custom_unit(node)
            return
        if op is Ops.ASSIGN and node.src[1].op is Ops.CUSTOM_KERNEL:
            self.custom_unit(node.src[1]).overwrites[memory_of(node)] = node
            return
        unit = self.transfer_unit(node) if op is Ops.TRANSFER else self.kernel_unit(node)
        if op in GroupOp.Scatter:
            # updates are combined with the identity of the reduction
            start = node.const_like(identity(SCATTER_REDUCE_OPS[op], node.dtype))
            fill = UOp(Ops.STORE, node.dtype, (self.param(node, 0), start))
            unit.after = Unit(node, reads=[], stores=[fill], params=[self.storage.slices[node]])
            self.units.append(unit.after)
        self.units.append(unit)
        self.writer[node] = unit
        for other in self.also_stored.get(node, ()):
            self.writer[other] = unit

    def transfer_unit(self, node: UOp) -> Unit:
        """The unit of a TRANSFER."""
        source, target = self.storage.slices[node.src[0]], self.storage.slices[node]
        arg = node.arg
        size = arg.piece_size(max_elements(node.shape))
        item = TransferItem(source, target, size, arg.messages, arg.info, arg.reduction)
        return Unit(node, reads=[node.src[0]], item=item)

    def kernel_unit(self, node: UOp) -> Unit:
        """The unit of a value that a generated kernel computes."""
        value = node.src[0] if node.op is Ops.CONTIGUOUS else node
        target = node
        if node.op is Ops.ASSIGN:
            target, value = node.src
        params: dict[Slices, int] = {self.storage.slices[node]: 0}
        reads: list[UOp] = []
        if target is node or below_reshapes(target).op not in GroupOp.Movement:
            # a reshape does not change memory: the loops have the shape below it
            value = below_reshapes(value)
            address = self.param(value, 0)
        else:
            address = self.view(target, 0)
        body = self.body(value, node, params, reads)
        stores = [UOp(Ops.STORE, value.dtype, (address, body))]
        for other in self.also_stored.get(node, ()):
            slot = params.setdefault(self.storage.slices[other], len(params))
            body = self.body(other, node, params, reads)
            stores.append(UOp(Ops.STORE, other.dtype, (self.param(other, slot), body)))
        return Unit(
            node,
            reads=reads,
            stores=stores,
            params=list(params),
            overwrites={memory_of(target): node} if node.op is Ops.ASSIGN else {},
        )

    def custom_unit(self, node: UOp) -> Unit:
        """The unit of a hand-written kernel, one for all its outputs."""
        key = (node.src, node.arg.kernel)
        if key not in self.custom:
            # the last sources may be Variables
            reads = [x for x in node.src if x.op is not Ops.DEFINE_VAR]
            params = [self.storage.slices[x] for x in reads]
            unit = Unit(node, reads=reads, params=params, kernel=node.arg.kernel)
            self.custom[key] = unit
            self.units.append(unit)
        return self.custom[key]

    def param(self, node: UOp, slot: int) -> UOp:
        """Argument number `slot`, which holds `node`."""
        key = (slot, node.dtype, node.shape)
        found = self.params.get(key)
        if found is None:
            found = self.params[key] = UOp(Ops.PARAM, node.dtype, (), ParamArg(slot, node.shape))
        return found

    def body(self, value: UOp, root: UOp, params: dict[Slices, int], reads: list[UOp]) -> UOp:
        """The tensor form of an expression: materialised values below it become PARAMs."""
        done: dict[UOp, UOp] = {}
        computed = {root, *self.inlined.get(root, ())}
        stored = self.materialized
        # nodes with their sources that were not visited yet; `root` stands for the user of `value`
        stack = [(root, iter((value,)))]
        while True:
            node, sources = stack[-1]
            for x in sources:
                if x in done:
                    continue
                if x in stored and x not in computed:
                    done[x] = self.leaf(x, params)
                    reads.append(x)
                elif x.src:
                    stack.append((x, iter(x.src)))
                    break
                else:
                    done[x] = x
            else:
                stack.pop()
                if not stack:
                    return done[value]
                if node.op is Ops.COPY:
                    done[node] = done[node.src[0]]
                else:
                    new = done[node] = node.with_sources(tuple([done[x] for x in node.src]))
                    new.take_shape(node)

    def leaf(self, node: UOp, params: dict[Slices, int]) -> UOp:
        """A materialised value as a PARAM, or as a view of one."""
        slot = params.setdefault(self.storage.slices[node], len(params))
        if node.op is not Ops.ASSIGN:
            return self.param(node, slot)
        # a value that was assigned to a view is read through that view
        return self.view(node.src[0], slot)

    def view(self, target: UOp, slot: int) -> UOp:
        """`target`, a view of a materialised value, as the same view of PARAM number `slot`."""
        chain: list[UOp] = []
        while target.op in GroupOp.Movement:
            chain.append(target)
            target = target.src[0]
        value = self.param(target, slot)
        for x in reversed(chain):
            value = UOp(x.op, x.dtype, (value,), x.arg)
        return value
