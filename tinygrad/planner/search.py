"""The search for the layouts of lowest cost.

Input: a `TrialFunction`, a mesh, a memory limit. Output: the best layouts found, and their cost.
If few combinations can fit into memory, all are compared. Otherwise it starts from the usual
strategies (data parallel, ZeRO, fully sharded, tensor parallel, pairs of matrices as in Megatron)
and their combinations, and improves the best by local
search: one group of tensors and one mesh dimension at a time. A choice whose lower bound exceeds a
known cost is not planned. The search ends when a round improves little, after `MAX_ROUNDS`, or once
`MAX_NODES` were built: the limit is the same in every process. Invariant: the result is the best of
all choices that were planned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice, product
from math import prod

from tinygrad.helpers import ceildiv
from tinygrad.planner.cost import (
    MIN_PLANNED_LAYERS,
    Cost,
    Graphs,
    TrialFunction,
    extrapolate,
)
from tinygrad.planner.layers import Group
from tinygrad.sharding import Mesh, Sharding

Placements = tuple[int | None, ...]
"""The axis that each mesh dimension shards."""
Choice = tuple[Placements, ...]
"""The placements of each group of tensors."""
Key = tuple[int, float, int]
"""The objective: bytes over the memory limit, seconds, communicated bytes."""

MAX_COMBINATIONS = 512
"""With more choices that can fit into memory, they are not all compared."""
MAX_REMAINING_COST = 0.99
"""The local search ends after a round that leaves more than this fraction of the cost."""
MAX_ROUNDS = 16
"""The maximum number of rounds of a local search."""
MAX_NODES = 600_000
"""The maximum number of graph nodes that are built or planned, a measure of the time of a search:
half a minute on one core. The starts may take half of it."""
PLANNING_WORK = 2
"""The time to plan a graph, in proportion to that to build it."""
MIN_LAYERS = 1
"""The minimum number of equal layers in a graph whose lower bound is taken."""
MAX_SLOWDOWN = 1.05
"""A change whose lower bound is over this multiple of the best time is not tried again."""
MIN_MATRIX_SHARE, MIN_VECTOR_SHARE = 1e-3, 1e-2
"""Parameters of a smaller share of all bytes keep the layout that the search started with."""
EXTRAPOLATION_FACTOR = 0.99
"""Extrapolated costs are lowered by this factor before a choice is dismissed by them."""

Role = Callable[[Group, int], int | None]
"""A use of one mesh dimension: the axis that it shards of a group of tensors."""


def _replicate(group: Group, pieces: int) -> int | None:
    return None


def _data(group: Group, pieces: int) -> int | None:
    return 0 if group.is_data else None


def _fully_sharded(group: Group, pieces: int) -> int | None:
    """Data and parameters along the first axis (FSDP)."""
    return 0 if group.shape else None


def _zero(group: Group, pieces: int) -> int | None:
    """Data, and the state of optimizers (ZeRO-1, arXiv:1910.02054)."""
    return 0 if group.is_data or group.parameter is not None else None


def _columns(group: Group, pieces: int) -> int | None:
    return len(group.shape) - 1 if not group.is_data and len(group.shape) > 1 else None


SPREAD = {_fully_sharded, _zero}
"""Roles that may shard any axis: one that no other role shards, if there is one."""


class Search:
    """The state of a search: the choices that were compared, with their costs and lower bounds."""

    def __init__(
        self, step: TrialFunction, mesh: Mesh, limit: int | None, fixed: dict[str, Placements]
    ) -> None:
        self.step = step
        self.mesh = mesh
        self.limit = limit
        # memory of all layers, in proportion to the extrapolation from few
        self.margin = 1.0
        # the nodes that were built or planned
        self.work = 0
        self.is_cut_short = False
        self.options = [self._options(group, fixed) for group in step.groups]
        self.planned: dict[Choice, Cost] = {}
        # costs with all layers built
        self.whole: dict[Choice, Cost] = {}
        self.lower_bounds: dict[Choice, Cost] = {}
        # costs by lower bounds: mesh dimensions of equal size are often interchangeable
        self.planned_alike: dict[Hashable, Cost] = {}
        # the graphs of choices that may still be planned, if they have all layers
        self.graphs: dict[Choice, Graphs] = {}
        few = list(islice(self.fitting(), MAX_COMBINATIONS + 1))
        # all choices that fit into memory, if they are few enough to be compared
        self.all_choices = few if 0 < len(few) <= MAX_COMBINATIONS else None

    def _options(self, group: Group, fixed: dict[str, Placements]) -> list[Placements]:
        if group.name in fixed:
            return [fixed[group.name]]
        axes = [None, *range(len(group.shape))]
        every = product(axes, repeat=len(self.mesh.shape))
        return [found for found in every if self._fits(group, found)]

    def _fits(self, group: Group, placements: Placements) -> bool:
        """Whether no device has an empty shard of a tensor."""
        for axis, size in enumerate(group.shape):
            sizes = zip(placements, self.mesh.shape, strict=True)
            pieces = prod(count for place, count in sizes if place == axis)
            if (pieces - 1) * ceildiv(size, pieces) >= size and pieces > 1:
                return False
        return True

    def layouts(self, choice: Choice) -> list[Sharding]:
        """The layout of each group."""
        return [Sharding(self.mesh.devices, p, self.mesh.shape) for p in choice]

    def key(self, cost: Cost, margin: float | None = None) -> Key:
        """The objective of a cost, whose memory is that of few layers unless a margin is given."""
        needed = int(cost.memory_nbytes * (self.margin if margin is None else margin))
        over = 0 if self.limit is None else max(0, needed - self.limit)
        return over, cost.seconds, cost.nbytes

    def lower_bound(self, choice: Choice) -> Cost:
        """A lower bound of the cost of a choice."""
        if choice not in self.lower_bounds:
            layouts = self.layouts(choice)
            graphs = self._built(layouts, MIN_LAYERS)
            self.lower_bounds[choice] = self.step.lower_bound(layouts, graphs)
            if not self.step.repeated:
                self.graphs[choice] = graphs
        return self.lower_bounds[choice]

    def plan(self, choice: Choice) -> Cost:
        """The cost of a choice."""
        if choice not in self.planned:
            layouts = self.layouts(choice)
            graphs = self.graphs.get(choice) or self._built(layouts, MIN_PLANNED_LAYERS)
            self.work += PLANNING_WORK * _node_count(graphs)
            cost = self.planned[choice] = self.step.planned(layouts, graphs)
            self.planned_alike[_fingerprint(self.lower_bound(choice))] = cost
        return self.planned[choice]

    def _built(self, layouts: list[Sharding], count: int) -> Graphs:
        """The graphs of a choice with at least `count` equal layers."""
        graphs = self.step.graphs(layouts, count)
        self.work += _node_count(graphs)
        return graphs

    def _is_over(self, work: float) -> bool:
        """Whether so much work has been done, so that the search is cut short."""
        self.is_cut_short |= self.work >= work
        return self.work >= work

    def is_better(self, choice: Choice, rival: Choice) -> bool:
        """Whether a choice is better than a similar `rival`. One that is probably worse, by its
        lower bound, is not planned.
        """
        if choice not in self.planned and self._is_probably_worse(choice, rival):
            return False
        return self.key(self.plan(choice)) < self.key(self.planned[rival])

    def _is_probably_worse(self, choice: Choice, rival: Choice) -> bool:
        bound, of_rival = self.lower_bound(choice), self.lower_bound(rival)
        if bound.is_dominated_by(of_rival):
            return True
        theirs = self.planned[rival]
        alike = self.planned_alike.get(_fingerprint(bound))
        if alike is not None and self.key(alike) >= self.key(theirs):
            return True
        expected = extrapolate(bound, theirs, of_rival, EXTRAPOLATION_FACTOR)
        return self.key(expected) >= self.key(theirs)

    # ---- choices ----

    @property
    def is_exact(self) -> bool:
        """Whether all choices are compared by exact costs."""
        is_whole = self.all_choices is not None and not self.is_cut_short
        return is_whole and not self.step.repeated

    def fitting(self) -> Iterator[Choice]:
        """All choices whose inputs alone fit into memory."""
        sizes = [
            [self._nbytes(group, placements) for placements in options]
            for group, options in zip(self.step.groups, self.options, strict=True)
        ]
        # the minimum of the bytes of the groups from number i on
        min_nbytes = [0]
        for found in reversed(sizes):
            min_nbytes.insert(0, min_nbytes[0] + min(found))

        pending: list[tuple[Choice, int]] = [((), 0)]
        while pending:
            chosen, nbytes = pending.pop()
            number = len(chosen)
            if self.limit is not None and nbytes + min_nbytes[number] > self.limit:
                continue
            if number == len(sizes):
                yield chosen
                continue
            options = list(zip(self.options[number], sizes[number], strict=True))
            for placements, size in reversed(options):
                pending.append(((*chosen, placements), nbytes + size))

    def _nbytes(self, group: Group, placements: Placements) -> int:
        layout = Sharding(self.mesh.devices, placements, self.mesh.shape)
        local = prod(layout.local_shape(group.shape))
        return len(group.tensors) * local * group.dtype.itemsize

    def run(self) -> None:
        """Search: `ranking()` is the result."""
        if self.all_choices is not None:
            self.plan_best(self.all_choices, MAX_NODES)
            return
        self.plan_best(self.starts(), MAX_NODES / 2)
        self.improve(self.ranking()[0])

    def plan_best(self, choices: Iterable[Choice], work: float) -> None:
        """Plan the `choices` that may be the best by their lower bounds, lowest first, until so
        much work has been done, half of it for the bounds.
        """
        bounds: dict[Choice, Key] = {}
        for choice in choices:
            if bounds and self._is_over(work / 2):
                break
            bounds[choice] = self.key(self.lower_bound(choice))
        best: Key | None = None
        for choice in sorted(bounds, key=bounds.__getitem__):
            if best is not None and (bounds[choice] >= best or self._is_over(work)):
                break
            if (
                self.all_choices is None
                and _fingerprint(self.lower_bound(choice)) in self.planned_alike
            ):
                continue
            key = self.key(self.plan(choice))
            best = key if best is None else min(best, key)
        self.graphs.clear()

    def ranking(self) -> list[Choice]:
        """The choices that were planned, best first; by their cost with all layers, if known."""

        def rank(choice: Choice) -> Key:
            whole = self.whole.get(choice)
            return self.key(self.planned[choice]) if whole is None else self.key(whole, 1.0)

        return sorted(self.planned, key=rank)

    def starts(self) -> Iterator[Choice]:
        """All combinations of usual roles of the mesh dimensions."""
        paired = self._paired()
        # the most useful ones first: of large graphs, some combinations only are tried
        usual: tuple[Role, ...] = (_data, _fully_sharded, _zero, paired, _columns, _replicate)
        for roles in product(usual, repeat=len(self.mesh.shape)):
            yield self._combined(roles)

    def _combined(self, roles: tuple[Role, ...]) -> Choice:
        groups = enumerate(self.step.groups)
        return tuple(self._nearest(number, group, roles) for number, group in groups)

    def _paired(self) -> Role:
        """Tensor parallel as in Megatron (arXiv:1909.08053): every matrix is sharded along its
        first or its last axis, whichever sends less beside those before it. So the second of two
        matrices takes shards as the first one leaves them.
        """
        axes = {g.name: _first_of_matrix(g) for g in self.step.groups}

        def role(group: Group, pieces: int) -> int | None:
            return axes[group.parameter or group.name]

        def seconds() -> float:
            roles = (*[_data] * (len(self.mesh.shape) - 1), role)
            return self.lower_bound(self._combined(roles)).communication_s

        matrices = [g for g in self.step.groups if g.parameter is None and axes[g.name] is not None]
        # those of all layers first: what is before and after the layers follows them
        matrices.sort(key=lambda group: -len(group.tensors))
        least = seconds()
        # later matrices may change what is best for earlier ones
        for group in 2 * matrices:
            if self._is_over(MAX_NODES / 4):
                break
            before = axes[group.name]
            axes[group.name] = len(group.shape) - 1 if before == 0 else 0
            sent = seconds()
            if sent < least:
                least = sent
            else:
                axes[group.name] = before
        return role

    def _nearest(self, number: int, group: Group, roles: tuple[Role, ...]) -> Placements:
        """The placements of a group by roles, replicated where it cannot be sharded so."""
        found: list[int | None] = [None] * len(roles)
        for i in sorted(range(len(roles)), key=lambda i: roles[i] in SPREAD):
            axis = roles[i](group, self.mesh.shape[i])
            if axis is not None and roles[i] in SPREAD and not group.is_data:
                taken = {a for role, a in zip(roles, found, strict=True) if role not in SPREAD}
                free = (a for a in range(len(group.shape)) if a not in taken)
                axis = next(free, axis)
            found[i] = axis
            if not self._fits(group, tuple(found)):
                found[i] = None
        placements = tuple(found)
        options = self.options[number]
        return placements if placements in options else options[0]

    def improve(self, choice: Choice) -> Choice:
        """Local search from a choice: change one group after the other, along one mesh dimension
        or alike along all, until a round improves little.
        """
        changes = [
            (i, placements) for i in self._groups_to_change() for placements in self.options[i]
        ]
        for _ in range(MAX_ROUNDS):
            over, seconds, _ = self.key(self.planned[choice])
            choice, changes = self._improve_once(choice, changes)
            over_now, seconds_now, _ = self.key(self.planned[choice])
            has_improved = over_now < MAX_REMAINING_COST * over or (
                not over and seconds_now < MAX_REMAINING_COST * seconds
            )
            if not has_improved:
                break
        return choice

    def _improve_once(
        self, choice: Choice, changes: list[tuple[int, Placements]]
    ) -> tuple[Choice, list[tuple[int, Placements]]]:
        """Try each change of a group to other placements. Returns the best choice, and the changes
        that may improve it further.
        """
        close: dict[tuple[int, Placements], None] = {}
        for number, placements in changes:
            for other in self._neighbors(choice, number, placements):
                if self._is_over(MAX_NODES):
                    return choice, []
                if self.is_better(other, choice):
                    choice = other
                if self._is_close(other, choice):
                    close[number, placements] = None
                self.graphs.pop(other, None)
        return choice, list(close)

    def _neighbors(self, choice: Choice, number: int, placements: Placements) -> Iterator[Choice]:
        """`choice` with other placements of a group, if they differ along one mesh dimension or
        are the same along all; and the same with the optimizer's state of the group.
        """
        changes = sum(a != b for a, b in zip(choice[number], placements, strict=True))
        if changes != 1 and (changes == 0 or len(set(placements)) > 1):
            return
        groups = self.step.groups
        name, owner = groups[number].name, groups[number].parameter
        state = [i for i, group in enumerate(groups) if group.parameter == name]
        parameter = [i for i, group in enumerate(groups) if group.name == owner]
        is_alike = all(choice[i] == choice[number] for i in state)
        if state and is_alike and all(placements in self.options[i] for i in state):
            yield _changed(choice, [number, *state], placements)
        # state is sharded at least as its parameter is
        is_finer = all(_refines(choice[i], placements) for i in state)
        if is_finer and all(_refines(placements, choice[i]) for i in parameter):
            yield _changed(choice, [number], placements)

    def _is_close(self, choice: Choice, rival: Choice) -> bool:
        """Whether a choice may become better after other changes, by its lower bound."""
        over, seconds, _ = self.key(self.lower_bounds[choice])
        over_rival, seconds_of_rival, _ = self.key(self.lower_bounds[rival])
        return over <= over_rival and seconds <= MAX_SLOWDOWN * seconds_of_rival

    def _groups_to_change(self) -> list[int]:
        """The numbers of the groups, largest first, without small parameters."""
        groups = self.step.groups
        sizes = [len(g.tensors) * prod(g.shape) * g.dtype.itemsize for g in groups]
        numbers = []
        for i, group in enumerate(groups):
            min_share = MIN_VECTOR_SHARE if len(group.shape) < 2 else MIN_MATRIX_SHARE
            if group.is_data or sizes[i] >= min_share * sum(sizes):
                numbers.append(i)
        return sorted(numbers, key=lambda i: -sizes[i])


def _first_of_matrix(group: Group) -> int | None:
    return 0 if not group.is_data and len(group.shape) > 1 else None


def _fingerprint(bound: Cost) -> Hashable:
    seconds = (bound.communication_s, bound.computation_s)
    sizes = (bound.inputs_nbytes, bound.working_nbytes, bound.stored_nbytes)
    return seconds, sizes, frozenset(bound.kinds.items())


def _node_count(graphs: Graphs) -> int:
    return sum(len(sink.toposort()) for _, sink in graphs)


def _changed(choice: Choice, numbers: Iterable[int], placements: Placements) -> Choice:
    found = list(choice)
    for number in numbers:
        found[number] = placements
    return tuple(found)


def _refines(placements: Placements, coarser: Placements) -> bool:
    """Whether placements shard alike where `coarser` shards, and possibly more."""
    return all(b is None or a == b for a, b in zip(placements, coarser, strict=True))
