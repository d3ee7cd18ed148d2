"""Find attention: the scores that kernels recompute in blocks instead of storing them.

Input: the nodes of a per-device graph, sources first. Output: a `SoftmaxChain` for each softmax
between products. Invariant: nodes that are never materialised have no use outside of their chain.

The scores are a product of queries and keys. Each use of them, after a softmax, ends in a
reduction: the maximum and the sum of a row, a product with the values, and in the gradient products
with queries and keys. The results of these reductions are far smaller than the scores. So each
reduction is a kernel that computes the scores again, block by block
(`codegen/optimize/blocked_chain/`).

Example: 2,048 queries and keys of 16 heads of 64 in float32. Scores take 256 MB, queries, keys,
values and the output 8 MB each. The forward pass is one kernel, and its `wide` nodes, from the
product to the weights, are never stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tinygrad.helpers import prod
from tinygrad.schedule.grouping.softmax.linear_steps import divisors, is_clamped, linear_steps
from tinygrad.schedule.grouping.softmax.score_axes import (
    KEEPS_ORDER,
    Roles,
    broadcast_axes,
    factors,
    moved,
    roles_of_product,
)
from tinygrad.schedule.grouping.values import max_elements
from tinygrad.schedule.storage_views import below_reshapes, is_storage
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.sint import is_one, same_shape

MIN_ROWS = 16
"""The minimum number of rows and of keys of scores; smaller ones are stored."""
MIN_SCORES = 1 << 17
MIN_SCORES_OF_HEAD = 1 << 14
"""The minimum number of all scores, and of those of one head; fewer stay in a cache."""
MAX_DEPTH = 512
"""The maximum length of the reduction axis of a product that is recomputed, such as a head size."""
MAX_WORK_RATIO = 2.0
"""The maximum work, relative to that with stored scores, for which scores are recomputed."""
CACHED_SCORES = 32
"""Scores are recomputed if there are at least `CACHED_SCORES` times the square of the multiply-adds
that recomputing one score costs; reading fewer from a cache is as fast. Measured: both take the
same time for 512 x 512 scores of 8 heads of 64, and for 1024 x 1024 of 8 heads of 128.
"""

# ops by which row statistics become factors of scores
_FACTORS = KEEPS_ORDER | {Ops.EXPAND, Ops.CAST, Ops.RECIPROCAL, Ops.NEG, Ops.MUL}


@dataclass
class SoftmaxChain:
    """Scores with all of their uses."""

    wide: dict[UOp, Roles] = field(default_factory=dict)
    """The nodes of the shape of the scores, with the role of each axis. Never materialised."""
    expanded: set[UOp] = field(default_factory=set)
    """The nodes between a `wide` node and the product that it is a factor of: EXPAND, CAST, MUL."""
    ends: dict[UOp, int] = field(default_factory=dict)
    """The reductions of `wide` nodes, each with the role of the axis that it reduces."""
    statistics: set[UOp] = field(default_factory=set)
    """The maximum and the sum of the softmax, and what is computed from them, if only the kernel
    of the output needs them; it computes them itself."""
    results: set[UOp] = field(default_factory=set)
    """The nodes that the kernels of `ends` store: the reductions after movement and casts."""
    inlined: dict[UOp, set[UOp]] = field(default_factory=dict)
    """The result whose kernel computes the maximum and the sum, with all nodes on the path from
    these to the scores."""
    stored: tuple[UOp, ...] = ()
    """The maximum and the sum, if that kernel stores them for other kernels, as for gradients."""

    masks: set[UOp] = field(default_factory=set)
    """Masks and biases of the scores that are computed from far smaller arrays, or from `ARANGE`
    alone. Each kernel computes them again."""

    def inside(self) -> set[UOp]:
        """The nodes that are never materialised."""
        return {*self.wide, *self.expanded, *self.statistics, *self.masks}


def find_softmax_chains(order: list[UOp], outputs: Iterable[UOp]) -> list[SoftmaxChain]:
    """The chains of a graph; no two of them have a node in common."""
    if not any(u.op in GroupOp.Exponential for u in order):
        return []
    search = _Search(order, set(outputs))
    chains: list[SoftmaxChain] = []
    taken: set[UOp] = set()
    for node in order:
        if node.op not in GroupOp.Exponential or node in taken:
            continue
        chain = search.chain_of(node)
        if chain is not None and taken.isdisjoint(chain.wide):
            chains.append(chain)
            taken.update(chain.wide)
    return chains


def row_maximum(exponential: UOp) -> UOp | None:
    """The maximum over one axis that is subtracted in the argument of an exponential."""
    for node in elementwise_below(exponential.src[0]):
        if broadcast_axes(node):
            base = node.src[0]
            while base.op in KEEPS_ORDER or is_clamped(base):
                base = base.src[0]
            if base.op is Ops.REDUCE_AXIS and base.arg.op is Ops.MAX:
                return base if len(base.arg.axes) == 1 else None
    return None


def elementwise_below(root: UOp) -> list[UOp]:
    """The nodes of an elementwise expression, down to and including its leaves."""
    found: dict[UOp, None] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found[node] = None
        if (node.op in GroupOp.Elementwise or node.op in KEEPS_ORDER) and not is_storage(node):
            stack += node.src
    return list(found)


class _Search:
    """The search of one graph."""

    def __init__(self, order: list[UOp], outputs: set[UOp]) -> None:
        self.outputs = outputs
        self.position = {node: i for i, node in enumerate(order)}
        self.users: dict[UOp, list[UOp]] = {}
        for node in order:
            for x in dict.fromkeys(node.src):
                self.users.setdefault(x, []).append(node)

    def chain_of(self, exponential: UOp) -> SoftmaxChain | None:
        """The chain of the scores of an exponential, if it is that of a softmax."""
        shape = exponential.shape
        if len(shape) < 2 or max_elements(shape) < MIN_SCORES or not are_positive(shape):
            return None
        maximum = row_maximum(exponential)
        if maximum is None:
            return None
        chain = SoftmaxChain()
        products = self.products_below(maximum.src[0])
        if not products or not all(self.add_uses(p, chain) for p in products):
            return None
        if maximum not in chain.ends or exponential not in chain.wide:
            return None
        self.find_statistics(chain, exponential, maximum)
        self.find_masks(chain)
        if not self.is_worth_it(chain, max_elements(shape)):
            return None
        chain.results = {self.result_of(x) for x in chain.ends if x not in chain.statistics}
        return chain

    def is_worth_it(self, chain: SoftmaxChain, scores: int) -> bool:
        """Whether recomputing the scores is estimated to be faster than storing them, by the
        multiply-adds of all kernels that need them.
        """
        below: dict[UOp, frozenset[UOp]] = {}
        nodes = {*chain.wide, *chain.expanded, *chain.ends}
        for node in sorted(nodes, key=self.position.__getitem__):
            mine = frozenset({node} if node in chain.wide and node.op is Ops.REDUCE_AXIS else ())
            sources = (below[x] for x in node.src if x in below and x not in chain.ends)
            below[node] = mine.union(*sources)
        kernels = [x for x in chain.ends if x not in chain.statistics and x not in chain.stored]
        own = sum(multiply_adds(x) for x in kernels if factors(x) is not None)
        every = frozenset[UOp]().union(*below.values())
        recomputed = sum(multiply_adds(p) for x in kernels for p in below[x])
        needed = sum(map(multiply_adds, every))
        if own + recomputed > MAX_WORK_RATIO * (own + needed):
            return False
        return scores >= CACHED_SCORES * ((recomputed - needed) / scores) ** 2

    def products_below(self, scores: UOp) -> list[UOp]:
        """The products in an expression of the scores that are cheap to recompute."""
        return [x for x in elementwise_below(scores) if is_recomputed(x)]

    # ---- uses ----

    def add_uses(self, product: UOp, chain: SoftmaxChain) -> bool:
        """Add a product and everything that is computed from it to a chain. Returns whether all
        paths end in reductions that a kernel can compute in blocks.
        """
        roles = roles_of_product(product)
        stack = [(product, roles)]
        while stack:
            node, roles = stack.pop()
            if node in chain.wide:
                if chain.wide[node] != roles:
                    return False
                continue
            if roles is None or node in self.outputs or is_storage(node):
                return False
            chain.wide[node] = roles
            for user in self.users.get(node, ()):
                if user.op in GroupOp.Elementwise or user.op in KEEPS_ORDER:
                    stack.append((user, moved(roles, node, user)))
                elif not self.ends_chain(user, roles, chain):
                    return False
            if node.op in GroupOp.Elementwise:
                others = (p for x in node.src for p in self.products_below(x))
                stack += [(p, roles_of_product(p)) for p in others]
        return True

    def ends_chain(self, user: UOp, roles: Roles, chain: SoftmaxChain) -> bool:
        """Add a use of `wide` nodes to the ends of a chain. Returns whether it is a reduction along
        one axis, or leads to products only.
        """
        if user.op is Ops.EXPAND:
            return self.add_products(user, roles, chain)
        if user.op is not Ops.REDUCE_AXIS or len(user.arg.axes) != 1:
            return False
        role = chain.ends[user] = roles[user.arg.axes[0]]
        return bool(role)

    def add_products(self, broadcast: UOp, roles: Roles, chain: SoftmaxChain) -> bool:
        """Add the products of a broadcast value to the ends of a chain."""
        stack = [broadcast]
        while stack:
            node = stack.pop()
            if node in self.outputs or node not in self.users:
                return False
            chain.expanded.add(node)
            for user in self.users[node]:
                if user.op in {Ops.MUL, Ops.CAST}:
                    stack.append(user)
                    continue
                role = role_of_sum(user, roles, broadcast) if user.op is Ops.REDUCE_AXIS else 0
                if not role:
                    return False
                chain.ends[user] = role
        return True

    def find_masks(self, chain: SoftmaxChain) -> None:
        """Find the masks and biases that are not worth storing, since they are computed from small
        arrays and `ARANGE`.
        """
        limit = max(max_elements(x.shape) for x in chain.wide) // MIN_ROWS
        for wide in chain.wide:
            stack = [x for x in wide.src if wide.op in GroupOp.Elementwise]
            while stack:
                node = stack.pop()
                if node in chain.wide or node in chain.masks or not is_computed(node):
                    continue
                leaves = [x for x in node.toposort(gate=is_computed) if not is_computed(x)]
                if all(x.op is Ops.ARANGE or max_elements(x.shape) <= limit for x in leaves):
                    chain.masks.add(node)
                    stack += node.src

    def result_of(self, end: UOp) -> UOp:
        """The node that the kernel of a reduction stores: the reduction after the reshapes,
        permutes and casts that are its only use, as long as its axes are not merged.
        """
        node, is_merged = end, False
        while node not in self.outputs and len(self.users.get(node, ())) == 1:
            user = self.users[node][0]
            if user.op is not Ops.CAST and user.op not in KEEPS_ORDER:
                break
            if is_merged and user.op is not Ops.RESHAPE:
                break
            if user.op is Ops.RESHAPE:
                sizes, others = ([d for d in x.shape if not is_one(d)] for x in (node, user))
                is_merged |= not same_shape(sizes, others)
            node = user
        return below_reshapes(node)

    # ---- statistics ----

    def find_statistics(self, chain: SoftmaxChain, exponential: UOp, maximum: UOp) -> None:
        """Find the product whose kernel also computes the maximum and the sum of the softmax, and
        whether another kernel reads these.
        """
        totals = [x for x in chain.ends if x.arg.op is Ops.ADD and x.src[0] is exponential]
        if len(totals) != 1:
            return
        total = totals[0]
        if chain.ends[total] != chain.ends[maximum]:
            return
        for end, role in chain.ends.items():
            if role != chain.ends[total]:
                continue
            if end in {maximum, total} or not is_multiple(end, exponential, total):
                continue
            found = self.between((maximum, total), end, chain)
            if found is None:
                continue
            chain.inlined[self.result_of(end)] = found
            if len(chain.ends) == 3 and self.are_private(found, chain):
                chain.statistics = found
            else:
                chain.stored = (maximum, total)
            return

    def between(
        self, statistics: tuple[UOp, UOp], end: UOp, chain: SoftmaxChain
    ) -> set[UOp] | None:
        """The statistics, and the nodes on the paths from them to the `wide` nodes of product
        `end`. None if there is any other path, since the kernel could not compute them in place.
        """
        # nodes before both in topological order do not depend on them
        first = min(self.position[x] for x in statistics)
        region = end.toposort(gate=lambda u: self.position[u] > first and u not in statistics)
        if any(x in region and x is not end for x in chain.ends if x not in statistics):
            return None
        found: set[UOp] = set()
        stack = list(statistics)
        while stack:
            node = stack.pop()
            if node in found or node in chain.wide:
                continue
            found.add(node)
            for user in self.users.get(node, ()):
                if user not in region or user in statistics:
                    continue
                if user not in chain.wide and not _is_factor(user):
                    return None
                stack.append(user)
        return found

    def are_private(self, found: set[UOp], chain: SoftmaxChain) -> bool:
        """Whether only `found` and `wide` nodes use the nodes of `found`."""
        return not any(
            x in self.outputs or any(u not in found and u not in chain.wide for u in self.users[x])
            for x in found
        )


def _is_factor(node: UOp) -> bool:
    return not is_storage(node) and (node.op in _FACTORS or is_clamped(node))


def are_positive(shape: Iterable[sint]) -> bool:
    """Whether no size may be 0."""
    return all(isinstance(d, int) or d.vmin > 0 for d in shape)


def multiply_adds(reduce: UOp) -> int:
    """The multiply-adds of a product."""
    return max_elements(reduce.src[0].shape)


def is_computed(node: UOp) -> bool:
    """Whether a node is arithmetic or movement of values with a shape."""
    if is_storage(node) or not node.src:
        return False
    return node.op in GroupOp.Elementwise or node.op in GroupOp.Movement


def is_recomputed(node: UOp) -> bool:
    """Whether a node is a product that is cheap to compute again."""
    if factors(node) is None:
        return False
    depth = max_elements(tuple(node.src[0].shape[a] for a in node.arg.axes))
    roles = roles_of_product(node)
    if roles is None or depth > MAX_DEPTH:
        return False
    axes = list(zip(node.shape, roles, strict=True))
    sizes = [max_elements(tuple(d for d, x in axes if x == i)) for i in (1, 2)]
    return bool(min(sizes) >= MIN_ROWS and prod(sizes) >= MIN_SCORES_OF_HEAD)


def role_of_sum(reduce: UOp, roles: Roles, broadcast: UOp) -> int:
    """The role of the axis that `reduce` sums `broadcast * other` over; 0 if it is not a product
    over all rows or all keys.
    """
    pair = factors(reduce)
    if pair is None:
        return 0
    mine, other = pair if pair[0] is broadcast else pair[::-1]
    here = moved(roles, broadcast.src[0], broadcast)
    axis = reduce.arg.axes[0]
    if mine is not broadcast or here is None or not here[axis]:
        return 0
    # the axes of the other role are those of the result that the other value lacks
    repeated = broadcast_axes(other)
    rows = [i for i, x in enumerate(here) if x and x != here[axis]]
    sums = [i for i, x in enumerate(here) if x == here[axis] and not is_one(broadcast.shape[i])]
    fits = all(i in repeated or is_one(broadcast.shape[i]) for i in rows)
    fits = fits and sums == list(reduce.arg.axes)
    return here[axis] if fits else 0


def is_multiple(end: UOp, exponential: UOp, total: UOp) -> bool:
    """Whether the weights of a product are a multiple of an exponential, divided by `total` at most
    once.
    """
    found = [linear_steps(weight, exponential, total) for weight in factors(end) or ()]
    return any(steps is not None and len(divisors(steps)) <= 1 for steps in found)
