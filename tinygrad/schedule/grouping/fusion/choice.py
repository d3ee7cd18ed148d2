"""The state of the fusion of one graph: values that are materialised, and values that never are."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.schedule.grouping.fusion.row_chains import RowChain
from tinygrad.schedule.grouping.rewrite.add_rows import ADDED_IN_PLACE
from tinygrad.schedule.grouping.softmax.chains import SoftmaxChain
from tinygrad.schedule.storage_views import STORAGE, movement_base
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


class Choice:
    """The choice for the nodes of a per-device graph, which are in topological order."""

    def __init__(self, order: list[UOp], default_device: str | None) -> None:
        self.order, self.default_device = order, default_device
        self.materialized: set[UOp] = {
            n for n in order if n.op in STORAGE and n.tag is not ADDED_IN_PLACE
        }
        # never materialised: kernels compute them again, block by block
        self.recomputed: set[UOp] = set()
        # nodes of kernels whose threads share rows; no other reduction is fused into these
        self.in_rows: set[UOp] = set()
        # nodes with fused reductions in them: that reduction if there is one, else the node that
        # joins several
        self.reduced: dict[UOp, UOp] = {}

    def add_chains(self, chains: Sequence[SoftmaxChain]) -> None:
        """Give each reduction of the scores of a softmax a kernel that recomputes the scores."""
        for chain in chains:
            self.recomputed |= chain.inside()
            self.materialized |= chain.results

    def add_rows(self, rows: Sequence[RowChain]) -> None:
        """Fuse each chain of row reductions into the kernel of its root."""
        for chain in rows:
            self.recomputed |= chain.inside
            self.in_rows |= {*chain.inside, chain.root}
            if chain.root.op is not Ops.REDUCE_AXIS:
                # else what is computed from the reduction is fused with it
                self.materialized.add(chain.root)

    def materialize(self, node: UOp) -> None:
        """Materialise the value below the movement and the widening casts of `node`."""
        base = stored_base(node)
        if base.op not in {Ops.CONST, Ops.ARANGE, Ops.DEFINE_VAR, Ops.BIND}:
            self.materialized.add(base)

    def is_materialized(self, node: UOp) -> bool:
        """Whether a node, or the value below its movement and widening casts, is materialised."""
        found = self.materialized
        if node in found:
            return True
        base = movement_base(node)
        return base in found or (cast_growth(base) > 0 and stored_base(base) in found)


def cast_growth(node: UOp) -> int:
    """The bytes that a CAST adds to an element, negative for a narrowing one; 0 for other ops."""
    return node.dtype.itemsize - node.src[0].dtype.itemsize if node.op is Ops.CAST else 0


def stored_base(node: UOp) -> UOp:
    """The node to materialise for `node`: the value below its movement and its widening casts."""
    base = movement_base(node)
    while cast_growth(base) > 0:
        base = movement_base(base.src[0])
    return base
