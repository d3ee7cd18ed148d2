"""`plan(function, inputs, mesh)`: the layouts of lowest cost for the tensors of a step.

Input: a function that builds tensors lazily, its inputs, a mesh. Output: a `Plan`: the layout of
every tensor, the communicated bytes of a step and the memory of each device; `apply()` moves the
tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.device import Device
from tinygrad.garbage import no_garbage
from tinygrad.helpers import prod
from tinygrad.nn.optim import Optimizer
from tinygrad.planner.cost import Cost, TrialFunction
from tinygrad.planner.layers import Group, group_tensors, named_tensors
from tinygrad.planner.optimizers import follow_parameters, optimizers_in, parameters_of_state
from tinygrad.planner.search import Choice, Placements, Search
from tinygrad.planner.trial import Function
from tinygrad.sharding import Mesh, P, Sharding, ShardingError
from tinygrad.tensor import Tensor
from tinygrad.text import aligned

MAX_CHECKED = 4
"""The maximum number of choices that are built with all layers."""


@dataclass(frozen=True, eq=False)
class PlannedGroup:
    """A group of tensors and its layout."""

    group: Group
    spec: P
    layout: Sharding

    @property
    def nbytes(self) -> int:
        """The memory of the group on each device."""
        local = prod(self.layout.local_shape(self.group.shape))
        return len(self.group.tensors) * local * self.group.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Plan:
    """The chosen layouts, and the cost of a step with them.

    `tried` is the number of choices that were compared. If `is_optimal`, these are all that can fit
    into memory, and none is faster by the cost model. `print(plan)` shows a table.
    """

    mesh: Mesh
    entries: tuple[PlannedGroup, ...]
    cost: Cost
    tried: int
    is_optimal: bool
    optimizers: tuple[Optimizer, ...] = ()

    @property
    def specs(self) -> dict[str, P]:
        """The partition spec of each group of tensors."""
        return {entry.group.name: entry.spec for entry in self.entries}

    @property
    def layouts(self) -> dict[str, Sharding]:
        """The layout of each tensor, by its name in the inputs."""
        return {name: entry.layout for entry in self.entries for name in entry.group.tensors}

    def apply(self) -> Plan:
        """Move every tensor to its layout, in place."""
        for entry in self.entries:
            for tensor in entry.group.tensors.values():
                tensor.to_(entry.layout)
        follow_parameters(self.optimizers)
        return self

    def table(self) -> str:
        """The layouts, bytes and memory as text."""
        rows = [("tensor", "count", "shape", "dtype", "layout", "bytes/device")]
        for entry in self.entries:
            group = entry.group
            names = (group.name, str(len(group.tensors)), str(group.shape), group.dtype.name)
            rows.append((*names, str(entry.spec), f"{entry.nbytes:,}"))
        cost = self.cost
        proof = (
            "all that can fit: none is better" if self.is_optimal else "there may be better ones"
        )
        moved = ", ".join(f"{kind} {nbytes:,}" for kind, nbytes in sorted(cost.kinds.items()))
        return "\n".join(
            [
                f"{self.mesh}, {self.tried} choices tried; {proof}",
                aligned(rows, numbers={1, 5}),
                f"memory: {cost.memory_nbytes:,} bytes a device, {cost.inputs_nbytes:,} of them "
                "for these tensors",
                f"a step moves {cost.nbytes:,} bytes" + (f": {moved}" if moved else ""),
                f"about {cost.seconds:.3g} s a step, {cost.communication_s:.3g} s of them "
                "communication",
            ]
        )

    def __str__(self) -> str:
        return self.table()


def plan(
    function: Function,
    inputs: Mapping[str, Any],
    mesh: Mesh,
    memory_limit: int | None = None,
    fixed: Mapping[str, P] | None = None,
) -> Plan:
    """The layouts over `mesh` with which `function(**inputs)` is fastest.

    `inputs` are tensors, and models or other objects that hold tensors. The function returns every
    tensor that a step computes, such as the loss and the gradients, lazily: it is called many times
    with other layouts, and nothing is computed. Time is that of the cost model: a `Topology` gives
    the speed of links and devices.

    Equal elements of a list, such as the layers of a model, have the same layouts; while choices
    are compared, at most three of many are built. An optimizer's state of a group of parameters is
    a group, `optimizer of model.layers.*.weight`, and may be sharded where they are not (ZeRO-1);
    the function returns the result of `schedule_step`. Sizes that do not divide evenly are sharded
    into blocks of the size rounded up.

    Args:
        memory_limit: the memory of each device in bytes, for inputs, results and temporaries.
        fixed: specs to keep, by name; `*` stands for all layers: `model.layers.*.weight`.

    Raises:
        MemoryError: no choice that was tried fits the limit.
        ShardingError: `fixed` names no tensor, or shards an axis that does not exist or is of
            size 1.
        TypeError: the function returns no tensor.
        ValueError: an optimizer is fused.

    >>> mesh = Mesh((2,), ("dp",), ("NULL:0", "NULL:1"))
    >>> w, x = Tensor.empty(4096, 4096), Tensor.empty(65536, 4096)
    >>> found = plan(lambda w, x: (x @ w).sum(), {"w": w, "x": x}, mesh)
    >>> found.specs
    {'w': P(None, None), 'x': P('dp', None)}
    """
    mesh = Mesh(mesh.shape, mesh.names, [Device.canonicalize(name) for name in mesh.devices])
    step = TrialFunction(function, inputs, group_tensors(inputs))
    search = Search(step, mesh, memory_limit, _fixed(fixed or {}, step, mesh))
    with no_garbage():
        search.run()
        choice, cost = _checked(search)
    optimizers = tuple(optimizers_in(inputs).values())
    entries, tried = _entries(search, choice), len(search.lower_bounds)
    return Plan(mesh, entries, cost, tried, search.is_exact, optimizers)


def _checked(search: Search) -> tuple[Choice, Cost]:
    """The best choice by its cost with all layers built, and that cost, which fits the limit.

    The best ones are built until one stays the best. Where few layers underestimate memory, that of
    other choices is scaled in proportion.
    """
    step, whole = search.step, search.whole
    for _ in range(MAX_CHECKED):
        choice = search.ranking()[0]
        if choice in whole:
            break
        known = search.planned[choice]
        was_over, *_ = search.key(known)
        whole[choice] = step.cost(search.layouts(choice)) if step.repeated else known
        if search.key(whole[choice], 1.0)[0]:
            if was_over:
                break
            search.margin = whole[choice].memory_nbytes / known.memory_nbytes
            search.improve(choice)
    best = min(whole, key=lambda choice: search.key(whole[choice], 1.0))
    if search.key(whole[best], 1.0)[0]:
        raise _memory_error(search, whole[best])
    return best, whole[best]


def predict(function: Function, inputs: Mapping[str, Any], layouts: Mapping[str, Sharding]) -> Cost:
    """The cost of `function(**inputs)` with tensors in the given layouts, by name; others keep
    their own.

    >>> x = Tensor.empty(4, 4, device=Sharding(("NULL:0", "NULL:1"), 0))
    >>> predict(lambda x: x.sum(0), {"x": x}, {}).kinds
    {'all_reduce': 32}
    """
    groups = [Group(name, {name: x}, False) for name, x in named_tensors(inputs).items()]
    unknown = sorted(set(layouts) - {group.name for group in groups})
    if unknown:
        raise _no_such_tensor(unknown[0], groups)
    wanted = layouts_of_state(inputs, layouts)
    chosen = [wanted.get(group.name, x.device) for group in groups for x in group.tensors.values()]
    return TrialFunction(function, inputs, groups).cost(chosen)


def layouts_of_state(
    inputs: Mapping[str, Any], layouts: Mapping[str, Sharding]
) -> Mapping[str, Sharding]:
    """`layouts`, with the state of optimizers, unless it is named, in the layouts of its
    parameters, and state that belongs to no parameter replicated.
    """
    names = {id(x): name for name, x in named_tensors(inputs).items()}
    found = dict(layouts)
    for optimizer in optimizers_in(inputs).values():
        for state, parameter in parameters_of_state(optimizer):
            layout = layouts.get(names[id(parameter)])
            if layout is not None:
                found.setdefault(names[id(state)], layout)
        first = layouts.get(names[id(optimizer.params[0])])
        for x in vars(optimizer).values():
            if isinstance(x, Tensor) and first is not None:
                found.setdefault(names[id(x)], first.replicated())
    return found


def _no_such_tensor(name: str, groups: list[Group]) -> ShardingError:
    names = ", ".join(group.name for group in groups)
    return ShardingError(f"no tensor of the inputs is {name!r}; use one of {names}")


def _fixed(fixed: Mapping[str, P], step: TrialFunction, mesh: Mesh) -> dict[str, Placements]:
    found: dict[str, Placements] = {}
    for name, spec in fixed.items():
        group = next((group for group in step.groups if group.name == name), None)
        if group is None:
            raise _no_such_tensor(name, list(step.groups))
        mesh.sharding(spec, len(group.shape)).check(group.shape)
        axis_of = {part: axis for axis in range(len(spec)) for part in spec.names(axis)}
        found[name] = tuple(axis_of.get(part) for part in mesh.names)
    return found


def _entries(search: Search, choice: Choice) -> tuple[PlannedGroup, ...]:
    groups = search.step.groups
    found = zip(groups, choice, search.layouts(choice), strict=True)
    return tuple(PlannedGroup(g, _spec(g, p, search.mesh), layout) for g, p, layout in found)


def _spec(group: Group, placements: Placements, mesh: Mesh) -> P:
    entries: list[str | tuple[str, ...] | None] = []
    for axis in range(len(group.shape)):
        pairs = zip(mesh.names, placements, strict=True)
        names = tuple(name for name, place in pairs if place == axis)
        entries.append(names if len(names) > 1 else names[0] if names else None)
    return P(*entries)


def _memory_error(search: Search, nearest: Cost) -> MemoryError:
    return MemoryError(
        f"plan: none of {len(search.lower_bounds)} choices of layouts fits into {search.limit:,} "
        f"bytes a device; the nearest needs {nearest.memory_nbytes:,} bytes, "
        f"{nearest.inputs_nbytes:,} of them for the inputs; use more devices, a smaller batch, "
        "or a higher memory_limit"
    )
