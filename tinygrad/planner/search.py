"""Looking for the layouts of least cost.

In: a `Step`, a mesh, a limit of memory. Out: the best layouts found, and their cost. Where there
are few combinations all are tried; else combinations that people would begin with, of which the
best is improved, one group of tensors and one mesh dimension at a time, for as long as that helps.
Always true: the result is no worse than anything that was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod

from tinygrad.planner.cost import Cost, Step, guessed
from tinygrad.planner.layers import Group
from tinygrad.sharding import Mesh, Sharding

Placements = tuple[int | None, ...]
"""The axis that each mesh dimension splits."""
Choice = tuple[Placements, ...]
"""The placements of each group of tensors."""
Key = tuple[int, float, int]
"""What is minimised: bytes beyond the limit, seconds, bytes that move."""

MOST_COMBINATIONS = 256
# a round that leaves more than this of the cost was the last one
ENOUGH = 0.99
# parameters of less than this part of all bytes stay as they were in the start, vectors sooner
FEW, FEW_OF_VECTORS = 1e-3, 1e-2
# how much less than guessed the computation and memory of a choice may turn out: of one that has
# little in common with the other, and of one that differs in a single group
FAR, NEAR = 0.8, 0.97

# how one mesh dimension is used: the axis that it splits of data, and of parameters
Role = Callable[[Group, int], int | None]


def _replicate(group: Group, pieces: int) -> int | None:
    return None


def _data(group: Group, pieces: int) -> int | None:
    return 0 if group.is_data else None


def _fully_sharded(group: Group, pieces: int) -> int | None:
    """Data and parameters, along the first axis."""
    return 0 if group.shape else None


def _rows(group: Group, pieces: int) -> int | None:
    return 0 if not group.is_data and len(group.shape) > 1 else None


def _columns(group: Group, pieces: int) -> int | None:
    return len(group.shape) - 1 if not group.is_data and len(group.shape) > 1 else None


ROLES: tuple[Role, ...] = (_replicate, _data, _fully_sharded, _rows, _columns)


class Search:
    """What was tried so far, and what it cost."""

    def __init__(
        self, step: Step, mesh: Mesh, limit: int | None, fixed: dict[str, Placements]
    ) -> None:
        self.step = step
        self.mesh = mesh
        self.limit = limit
        # how much more memory all layers need than few of them tell
        self.margin = 1.0
        self.options = [self._options(group, fixed) for group in step.groups]
        self.known: dict[Choice, Cost] = {}
        self.surveyed: dict[Choice, Cost] = {}

    def _options(self, group: Group, fixed: dict[str, Placements]) -> list[Placements]:
        if group.name in fixed:
            return [fixed[group.name]]
        axes = [None, *range(len(group.shape))]
        every = product(axes, repeat=len(self.mesh.shape))
        return [found for found in every if self._is_even(group, found)]

    def _is_even(self, group: Group, placements: Placements) -> bool:
        for axis, size in enumerate(group.shape):
            sizes = zip(placements, self.mesh.shape, strict=True)
            pieces = prod(count for place, count in sizes if place == axis)
            if size % pieces or (size == 1 and pieces > 1):
                return False
        return True

    def layouts(self, choice: Choice) -> list[Sharding]:
        """The layout of each group."""
        return [Sharding(self.mesh.devices, p, self.mesh.shape) for p in choice]

    def key(self, cost: Cost) -> Key:
        """What makes one cost less than another."""
        needed = int(cost.memory_nbytes * self.margin)
        over = 0 if self.limit is None else max(0, needed - self.limit)
        return over, cost.seconds, cost.nbytes

    def try_out(self, choice: Choice, rival: Choice | None, doubt: float = FAR) -> bool:
        """Whether a choice is better than its rival, if there is one. One that most likely is not,
        by what it moves and has to compute, is not planned in full.
        """
        if choice not in self.known:
            surveyed = self.surveyed.get(choice)
            if surveyed is not None and self._looks_worse(surveyed, rival, doubt):
                return False
            layouts = self.layouts(choice)
            graphs = self.step.graphs(layouts)
            surveyed = self.surveyed[choice] = self.step.surveyed(layouts, graphs)
            if self._looks_worse(surveyed, rival, doubt):
                return False
            self.known[choice] = self.step.planned(layouts, graphs)
        return rival is None or self.key(self.known[choice]) < self.key(self.known[rival])

    def _looks_worse(self, surveyed: Cost, rival: Choice | None, doubt: float) -> bool:
        if rival is None:
            return False
        theirs, survey_of_theirs = self.known[rival], self.surveyed[rival]
        if surveyed.is_no_less(survey_of_theirs):
            return True
        guess = guessed(surveyed, theirs, survey_of_theirs)
        least = replace(
            guess,
            computation_s=guess.computation_s * doubt,
            working_nbytes=int(guess.working_nbytes * doubt),
        )
        return self.key(least) >= self.key(theirs)

    # ---- which choices ----

    def run(self) -> None:
        """Try what is worth trying."""
        is_small = prod(map(len, self.options)) <= MOST_COMBINATIONS
        best: Choice | None = None
        every = product(*self.options) if is_small else self.starts()
        for choice in dict.fromkeys(every):
            # memory cannot be guessed of choices that have little in common
            if self.try_out(choice, best if self.limit is None else None):
                best = choice
        if not is_small:
            self.improve(self.ranking()[0])

    def ranking(self) -> list[Choice]:
        """What was planned in full, by cost."""
        return sorted(self.known, key=lambda choice: self.key(self.known[choice]))

    def starts(self) -> Iterator[Choice]:
        """Each mesh dimension in one of the usual roles."""
        for roles in product(ROLES, repeat=len(self.mesh.shape)):
            yield tuple(
                self._nearest(number, group, roles) for number, group in enumerate(self.step.groups)
            )

    def _nearest(self, number: int, group: Group, roles: tuple[Role, ...]) -> Placements:
        """What the roles ask of a group, left out where it cannot be split so."""
        found: list[int | None] = []
        for role, pieces in zip(roles, self.mesh.shape, strict=True):
            wanted = role(group, pieces)
            rest = [None] * (len(roles) - len(found) - 1)
            fits = self._is_even(group, (*found, wanted, *rest))
            found.append(wanted if fits else None)
        placements = tuple(found)
        options = self.options[number]
        return placements if placements in options else options[0]

    def improve(self, choice: Choice) -> Choice:
        """Change one group after the other, along one mesh dimension or to the same along all of
        them, until a round of that gains little.
        """
        order = self._worth_moving()
        while True:
            over, seconds, _ = self.key(self.known[choice])
            for number in order:
                choice = self._improve_group(choice, number)
            over_now, seconds_now, _ = self.key(self.known[choice])
            if over_now > ENOUGH * over or (not over and seconds_now >= ENOUGH * seconds):
                return choice

    def _worth_moving(self) -> list[int]:
        """The numbers of the groups, the largest first, without parameters of few bytes."""
        groups = self.step.groups
        sizes = [len(g.tensors) * prod(g.shape) * g.dtype.itemsize for g in groups]
        numbers = []
        for i, group in enumerate(groups):
            few = FEW_OF_VECTORS if len(group.shape) < 2 else FEW
            if group.is_data or sizes[i] >= few * sum(sizes):
                numbers.append(i)
        return sorted(numbers, key=lambda i: -sizes[i])

    def _improve_group(self, choice: Choice, number: int) -> Choice:
        for placements in self.options[number]:
            changes = sum(a != b for a, b in zip(choice[number], placements, strict=True))
            is_plain = len(set(placements)) == 1
            other = (*choice[:number], placements, *choice[number + 1 :])
            is_neighbour = changes == 1 or (changes > 1 and is_plain)
            if is_neighbour and self.try_out(other, choice, NEAR):
                choice = other
        return choice
