"""The mappings of a kernel to threads, for a search: enumerated, and pruned without a GPU.

In: a kernel graph. Out: options, that of the heuristics first, and the resources of each.
`with_mapping` gives the kernel that is mapped by one of them. A kernel of several loop nests, or
whose loops keep their order, has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinygrad.codegen import get_linear
from tinygrad.codegen.analysis.ranges import RangeFactory
from tinygrad.codegen.analysis.resources import Resources, estimate_resources, occupancy
from tinygrad.codegen.optimize.chain.match import find_chain, join_statistics
from tinygrad.codegen.optimize.lanes.transpose import find_transpose
from tinygrad.codegen.optimize.loops import group_stores
from tinygrad.codegen.optimize.nest import Nest
from tinygrad.codegen.optimize.normalize import normalize
from tinygrad.codegen.optimize.threads.chain.chain_product import chain_options
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainTile
from tinygrad.codegen.optimize.threads.elementwise import element_options, order_loops
from tinygrad.codegen.optimize.threads.product.block_product import product_options
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.product.matrix_product import find_product
from tinygrad.codegen.optimize.threads.reduction import find_rows, group_options
from tinygrad.codegen.optimize.threads.transpose import transpose_options
from tinygrad.renderer import Renderer
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

TILES = (BlockTile, ChainTile)
"""Options whose stages hide latency, whatever the number of threads."""
MIN_OCCUPANCY = 0.25
"""Resident threads that hide the latency of memory, as a fraction of those that can be."""


@dataclass(frozen=True)
class Mapping:
    """An option, what its program needs, and the fraction of a unit's threads that run."""

    option: Any
    resources: Resources
    occupancy: float


def only_nest(kernel: UOp, renderer: Renderer) -> Nest | None:
    """The loops of a kernel, None if they are several nests or keep their order."""
    sink = normalize(kernel)
    nodes = sink.toposort()
    has_loops = any(u.op is Ops.RANGE for u in nodes) and kernel.arg.opts_to_apply is None
    groups = join_statistics(group_stores(sink)) if has_loops else []
    if len(groups) != 1:
        return None
    return Nest(UOp.sink(*groups[0]), renderer, RangeFactory(nodes))


def mappings(kernel: UOp, renderer: Renderer) -> list[Any]:
    """The options of a kernel, that of the heuristics first."""
    nest = only_nest(kernel, renderer)
    if nest is None:
        return []
    options: list[Any] = []
    chain = find_chain(nest)
    if chain is not None:
        options += chain_options(nest, chain)
    product = find_product(nest)
    if product is not None:
        options += product_options(nest, product)
    rows = find_rows(nest)
    if rows is not None:
        options += group_options(nest, rows)
    if find_transpose(nest, 1) is not None:
        options += transpose_options(nest)
    order_loops(nest)
    return options + element_options(nest)


def with_mapping(kernel: UOp, option: Any) -> UOp:
    """The kernel, mapped by an option."""
    return kernel.replace(arg=replace(kernel.arg, mapping=option))


def prune(kernel: UOp, renderer: Renderer, options: Sequence[Any] | None = None) -> list[Mapping]:
    """The mappings, by all `options`, whose programs fit the target and run enough threads.

    Those of most threads are first; equal ones are in the order of the options. Tiles come before,
    by predicted time.
    """
    kept: list[Mapping] = []
    for option in mappings(kernel, renderer) if options is None else options:
        _, linear = get_linear(with_mapping(kernel, option), renderer)
        needed = estimate_resources(linear)
        share = occupancy(needed, renderer.target)
        if share >= MIN_OCCUPANCY or (share and isinstance(option, TILES)):
            kept.append(Mapping(option, needed, share))
    return sorted(kept, key=lambda m: -2 if isinstance(m.option, TILES) else -m.occupancy)
