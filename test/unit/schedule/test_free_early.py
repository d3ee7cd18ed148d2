"""The order of items that frees memory early: same values, and a lower peak."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tinygrad import dtypes
from tinygrad.schedule.execution_plan import (
    ExecutionPlan,
    Item,
    KernelItem,
    Slices,
    StorageEntry,
    StorageSlice,
    TransferItem,
)
from tinygrad.schedule.grouping.plan.free_early import free_early
from tinygrad.uop import Ops
from tinygrad.uop.args import CommInfo, KernelInfo, ParamArg
from tinygrad.uop.ops import UOp

MEGABYTE = 1 << 18
"""The elements of a float32 array of 1 MiB."""


def entry(size: int) -> StorageEntry:
    return StorageEntry(("CPU",), size, dtypes.float32)


def whole(number: int, size: int) -> Slices:
    return (StorageSlice(number, 0, 0, size, dtypes.float32),)


def kernel(name: str, sizes: Sequence[int], target: int, *sources: int) -> KernelItem:
    """A kernel that stores a function of `sources` in entry `target`."""
    used = [target, *(x for x in sources if x != target)]
    arrays = [UOp(Ops.PARAM, dtypes.float32, (), ParamArg(i, (1,))) for i in range(len(used))]
    value = arrays[0] if target in sources else UOp.const(dtypes.float32, 1.0)
    for x in arrays[1:]:
        value = value + x
    store = UOp(Ops.STORE, dtypes.float32, (arrays[0], value))
    return KernelItem(
        UOp.sink(store, arg=KernelInfo(name)),
        ("CPU",),
        tuple(whole(i, sizes[i]) for i in used),
        [0],
    )


def transfer(sizes: Sequence[int], target: int, source: int) -> TransferItem:
    info = CommInfo("copy", "", "", "")
    return TransferItem(whole(source, sizes[source]), whole(target, sizes[target]), 1, (), info)


def plan_of(
    inputs: int, sizes: Sequence[int], items: Sequence[Item], *outputs: int
) -> ExecutionPlan:
    written = frozenset(x for item in items for x in item.written)
    parts = tuple(whole(i, sizes[i]) for i in outputs)
    return ExecutionPlan(inputs, tuple(map(entry, sizes)), tuple(items), parts, written, ())


def name_of(item: Item) -> str:
    return item.ast.arg.name if isinstance(item, KernelItem) else "transfer"


def contents(plan: ExecutionPlan) -> list[object]:
    """What every entry holds in the end, as the expression that computed it."""
    memory: list[object] = [f"input {i}" for i in range(len(plan.entries))]
    for item in plan.items:
        value = name_of(item), [memory[x] for x in sorted(item.entries)]
        for x in item.written:
            memory[x] = str(value)
    return memory


def peak(plan: ExecutionPlan) -> int:
    """The maximum elements of temporaries that are in use at one item."""
    kept = {p.entry for parts in plan.outputs for p in parts or ()}
    spans = {
        x: [i for i, item in enumerate(plan.items) if x in item.entries]
        for x in plan.temporary
        if x not in kept
    }
    return max(
        sum(plan.entries[x].size for x, at in spans.items() if at and at[0] <= i <= at[-1])
        for i in range(len(plan.items))
    )


def test_gradients_of_weights_run_before_more_memory_is_taken() -> None:
    # x0 -> x1 -> x2, and the gradients g2 -> g1 -> g0; w_i, an output, needs g_i and x_i
    sizes = [MEGABYTE] * 6 + [8] * 3
    items = [
        *(kernel(f"x{i}", sizes, i, i - 1) for i in (1, 2)),
        kernel("g2", sizes, 3, 2),
        *(kernel(f"g{5 - i}", sizes, i, i - 1) for i in (4, 5)),
        *(kernel(f"w{i}", sizes, 6 + i, i, 5 - i) for i in range(3)),
    ]
    plan = plan_of(1, sizes, items, 6, 7, 8)
    found = free_early(plan)
    assert list(map(name_of, found.items)) == ["x1", "x2", "g2", "w2", "g1", "w1", "g0", "w0"]
    assert (peak(plan), peak(found)) == (5 * MEGABYTE, 3 * MEGABYTE)


def test_kernels_do_not_come_between_the_rounds_of_a_collective() -> None:
    sizes = [*[MEGABYTE] * 4, 2 * MEGABYTE, 8, 8]
    items = [
        kernel("a", sizes, 1, 0),
        transfer(sizes, 2, 1),
        transfer(sizes, 3, 2),
        kernel("b", sizes, 4, 3),
        kernel("c", sizes, 5, 4),
        kernel("frees a", sizes, 6, 1),
    ]
    found = free_early(plan_of(1, sizes, items, 5, 6))
    assert list(map(name_of, found.items)) == ["a", "transfer", "transfer", "frees a", "b", "c"]


@pytest.mark.parametrize("seed", range(100))
def test_any_plan_keeps_its_values_and_takes_no_more_memory(seed: int) -> None:
    rng = random.Random(seed)
    inputs, count = 2, 14
    sizes = [rng.choice([8, MEGABYTE, 3 * MEGABYTE]) for _ in range(inputs + count)]
    items: list[Item] = []
    made = list(range(inputs))
    for number in range(inputs, inputs + count):
        items.append(kernel(f"k{number}", sizes, number, *rng.sample(made, rng.choice([1, 1, 2]))))
        made.append(number)
        if rng.random() < 0.3:
            # in place
            target, source = rng.sample(made, 2)
            items.append(kernel(f"u{number}", sizes, target, target, source))
    plan = plan_of(inputs, sizes, items, *rng.sample(range(inputs, inputs + count), 2))
    found = free_early(plan)
    assert sorted(map(id, found.items)) == sorted(map(id, plan.items))
    assert contents(found) == contents(plan)
    assert peak(found) <= peak(plan)
