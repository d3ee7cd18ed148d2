"""Looking for the layouts of least cost.

In: a `Step`, a mesh, a limit of memory. Out: the best layouts found, and their cost. Where few
combinations can fit into memory all are tried; else combinations that people would begin with, of
which the best is improved, one group of tensors and one mesh dimension at a time, for as long as
that helps. Always true: the result is no worse than anything that was tried. A choice that costs
more at least, by its graph, than another one does is not planned: it cannot be the best.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice, product
from math import prod

from tinygrad.helpers import ceildiv
from tinygrad.planner.cost import Cost, Graphs, Step, guessed
from tinygrad.planner.layers import Group
from tinygrad.sharding import Mesh, Sharding

Placements = tuple[int | None, ...]
"""The axis that each mesh dimension splits."""
Choice = tuple[Placements, ...]
"""The placements of each group of tensors."""
Key = tuple[int, float, int]
"""What is minimised: bytes beyond the limit, seconds, bytes that move."""

MAX_COMBINATIONS = 512
# a round that leaves more than this of the cost was the last one
ENOUGH = 0.99
# what takes more than this part of the time was far from an improvement, and is not tried again
CLOSE = 1.05
# parameters of less than this part of all bytes stay as they were in the start, vectors sooner
FEW, FEW_OF_VECTORS = 1e-3, 1e-2
# how much less than guessed a choice may turn out to cost
DOUBT = 0.99

# how one mesh dimension is used: the axis that it splits of data, and of parameters
Role = Callable[[Group, int], int | None]


def _replicate(group: Group, pieces: int) -> int | None:
    return None


def _data(group: Group, pieces: int) -> int | None:
    return 0 if group.is_data else None


def _fully_sharded(group: Group, pieces: int) -> int | None:
    """Data and parameters, along the first axis."""
    return 0 if group.shape else None


def _zero(group: Group, pieces: int) -> int | None:
    """Data, and the state of optimizers (ZeRO-1, arXiv:1910.02054)."""
    return 0 if group.is_data or group.parameter is not None else None


def _rows(group: Group, pieces: int) -> int | None:
    return 0 if not group.is_data and len(group.shape) > 1 else None


def _columns(group: Group, pieces: int) -> int | None:
    return len(group.shape) - 1 if not group.is_data and len(group.shape) > 1 else None


ROLES: tuple[Role, ...] = (_replicate, _data, _zero, _fully_sharded, _rows, _columns)


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
        # what was planned, by what it costs at least: mesh dimensions of one size are often alike
        self.alike: dict[Hashable, Cost] = {}
        # those of choices that may yet be planned
        self.graphs: dict[Choice, Graphs] = {}
        few = list(islice(self.fitting(), MAX_COMBINATIONS + 1))
        # all that may be the best, if these are few enough to be compared one by one
        self.every = few if 0 < len(few) <= MAX_COMBINATIONS else None

    def _options(self, group: Group, fixed: dict[str, Placements]) -> list[Placements]:
        if group.name in fixed:
            return [fixed[group.name]]
        axes = [None, *range(len(group.shape))]
        every = product(axes, repeat=len(self.mesh.shape))
        return [found for found in every if self._fits(group, found)]

    def _fits(self, group: Group, placements: Placements) -> bool:
        """Whether each device gets a part of each tensor, if a smaller one than others."""
        for axis, size in enumerate(group.shape):
            sizes = zip(placements, self.mesh.shape, strict=True)
            pieces = prod(count for place, count in sizes if place == axis)
            if (pieces - 1) * ceildiv(size, pieces) >= size and pieces > 1:
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

    def survey(self, choice: Choice) -> Cost:
        """What a choice costs at least."""
        if choice not in self.surveyed:
            layouts = self.layouts(choice)
            self.graphs[choice] = self.step.graphs(layouts)
            self.surveyed[choice] = self.step.surveyed(layouts, self.graphs[choice])
        return self.surveyed[choice]

    def plan(self, choice: Choice) -> Cost:
        """What a choice costs."""
        if choice not in self.known:
            layouts = self.layouts(choice)
            graphs = self.graphs.get(choice) or self.step.graphs(layouts)
            cost = self.known[choice] = self.step.planned(layouts, graphs)
            self.alike[_fingerprint(self.survey(choice))] = cost
        return self.known[choice]

    def is_better(self, choice: Choice, rival: Choice) -> bool:
        """Whether a choice that differs little from its rival is better. One that most likely is
        not, by what it moves and has to compute, is not planned in full.
        """
        if choice not in self.known and self._looks_worse(choice, rival):
            return False
        return self.key(self.plan(choice)) < self.key(self.known[rival])

    def _looks_worse(self, choice: Choice, rival: Choice) -> bool:
        survey, of_rival = self.survey(choice), self.survey(rival)
        if survey.is_no_less(of_rival):
            return True
        theirs = self.known[rival]
        alike = self.alike.get(_fingerprint(survey))
        if alike is not None and self.key(alike) >= self.key(theirs):
            return True
        return self.key(guessed(survey, theirs, of_rival, DOUBT)) >= self.key(theirs)

    # ---- which choices ----

    @property
    def is_exact(self) -> bool:
        """Whether all choices are compared, by costs that are exact."""
        return self.every is not None and not self.step.repeated

    def fitting(self) -> Iterator[Choice]:
        """All choices whose tensors alone do not take more memory than there is."""
        sizes = [
            [self._nbytes(group, placements) for placements in options]
            for group, options in zip(self.step.groups, self.options, strict=True)
        ]
        # what the groups from number i on take at least
        least = [0]
        for found in reversed(sizes):
            least.insert(0, least[0] + min(found))

        def extend(chosen: Choice, nbytes: int) -> Iterator[Choice]:
            number = len(chosen)
            if self.limit is not None and nbytes + least[number] > self.limit:
                return
            if number == len(sizes):
                yield chosen
                return
            for placements, size in zip(self.options[number], sizes[number], strict=True):
                yield from extend((*chosen, placements), nbytes + size)

        return extend((), 0)

    def _nbytes(self, group: Group, placements: Placements) -> int:
        layout = Sharding(self.mesh.devices, placements, self.mesh.shape)
        local = prod(layout.local_shape(group.shape))
        return len(group.tensors) * local * group.dtype.itemsize

    def run(self) -> None:
        """Try what is worth trying."""
        self.plan_best(self.starts() if self.every is None else self.every)
        if self.every is None:
            self.improve(self.ranking()[0])

    def plan_best(self, choices: Iterable[Choice]) -> None:
        """Plan those that may be the best of `choices`, by what they cost at least."""
        least = {choice: self.key(self.survey(choice)) for choice in choices}
        best: Key | None = None
        for choice in sorted(least, key=least.__getitem__):
            if best is not None and least[choice] >= best:
                break
            if self.every is None and _fingerprint(self.survey(choice)) in self.alike:
                continue
            key = self.key(self.plan(choice))
            best = key if best is None else min(best, key)
        self.graphs.clear()

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
            fits = self._fits(group, (*found, wanted, *rest))
            found.append(wanted if fits else None)
        placements = tuple(found)
        options = self.options[number]
        return placements if placements in options else options[0]

    def improve(self, choice: Choice) -> Choice:
        """Change one group after the other, along one mesh dimension or to the same along all of
        them, until a round of that gains little.
        """
        moves = [(i, placements) for i in self._worth_moving() for placements in self.options[i]]
        while True:
            over, seconds, _ = self.key(self.known[choice])
            close = []
            for number, placements in moves:
                for other in self._moved(choice, number, placements):
                    if self.is_better(other, choice):
                        choice = other
                    if self._is_close(other, choice):
                        close.append((number, placements))
                    self.graphs.pop(other, None)
            over_now, seconds_now, _ = self.key(self.known[choice])
            if over_now > ENOUGH * over or (not over and seconds_now >= ENOUGH * seconds):
                return choice
            moves = list(dict.fromkeys(close))

    def _moved(self, choice: Choice, number: int, placements: Placements) -> Iterator[Choice]:
        """`choice` with a group laid out anew, if that is along one mesh dimension or the same
        along all; and once more with its state, where it was laid out alike.
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
        # state is split wherever its parameter is
        is_finer = all(_refines(choice[i], placements) for i in state)
        if is_finer and all(_refines(placements, choice[i]) for i in parameter):
            yield _changed(choice, [number], placements)

    def _is_close(self, choice: Choice, rival: Choice) -> bool:
        """Whether a choice, by what it costs at least, may yet be better when others changed."""
        over, seconds, _ = self.key(self.surveyed[choice])
        over_rival, seconds_of_rival, _ = self.key(self.surveyed[rival])
        return over <= over_rival and seconds <= CLOSE * seconds_of_rival

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


def _fingerprint(survey: Cost) -> Hashable:
    seconds = (survey.communication_s, survey.computation_s)
    sizes = (survey.inputs_nbytes, survey.working_nbytes, survey.stored_nbytes)
    return seconds, sizes, frozenset(survey.kinds.items())


def _changed(choice: Choice, numbers: Iterable[int], placements: Placements) -> Choice:
    found = list(choice)
    for number in numbers:
        found[number] = placements
    return tuple(found)


def _refines(placements: Placements, coarser: Placements) -> bool:
    """Whether all that `coarser` splits is split alike."""
    return all(b is None or a == b for a, b in zip(placements, coarser, strict=True))
