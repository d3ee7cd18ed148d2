"""Fusion: choose the values to materialise; all others are fused into the kernels that use them.

Input: the nodes of a per-device graph, sources first. Output: the nodes that get a buffer.
Invariant: no reduction is computed twice, and a kernel can compute every other value that it needs
at one point of its loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.schedule.grouping.fusion.argument_limit import limit_arguments
from tinygrad.schedule.grouping.fusion.barriers import mark_barriers
from tinygrad.schedule.grouping.fusion.choice import Choice
from tinygrad.schedule.grouping.fusion.row_chains import RowChain
from tinygrad.schedule.grouping.fusion.shared_values import mark_shared
from tinygrad.schedule.grouping.softmax.chains import SoftmaxChain
from tinygrad.sharding import Sharding
from tinygrad.uop.ops import UOp


def choose_materialized(
    order: list[UOp],
    outputs: list[UOp],
    chains: Sequence[SoftmaxChain] = (),
    rows: Sequence[RowChain] = (),
    default_device: str | None = None,
) -> set[UOp]:
    """The nodes of a per-device graph that are materialised. `order` is topological."""
    assert not any(isinstance(n.device, Sharding) for n in outputs), "layouts are lowered first"
    choice = Choice(order, default_device)
    choice.materialized.update(outputs)
    choice.add_chains(chains)
    choice.add_rows(rows)
    mark_barriers(choice)
    if choice.reduced:
        # reductions that the first pass materialised are no longer fused in the second
        mark_barriers(choice)
    mark_shared(choice)
    limit_arguments(choice, outputs)
    return choice.materialized
