"""Interning: equal nodes are one object, also when several threads build them at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

from test.threads import THREADS, in_threads
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp


def build_in_threads(count: int, keep: bool) -> list[list[UOp]]:
    """The nodes 0 to `count` as built by each of `THREADS` threads at the same time."""
    built: list[list[UOp]] = [[] for _ in range(THREADS)]

    def build(number: int, wait: Callable[[], object]) -> None:
        for i in range(count):
            if i % 64 == 0:
                wait()
            node = UOp(Ops.ADD, dtypes.int, (UOp.const(dtypes.int, i), UOp.const(dtypes.int, -i)))
            if keep:
                built[number].append(node)

    in_threads(build)
    return built


def test_threads_that_build_equal_nodes_get_one_object() -> None:
    built = build_in_threads(8_000, keep=True)
    different = sum(any(node is not nodes[0] for node in nodes[1:]) for nodes in zip(*built))
    assert different == 0


def test_nodes_that_die_while_equal_ones_are_built_stay_unique() -> None:
    build_in_threads(5_000, keep=False)
    first, second = build_in_threads(100, keep=True)[:2]
    assert all(a is b for a, b in zip(first, second, strict=True))


def test_a_deep_graph_dies_without_recursion() -> None:
    node = UOp(Ops.NEG, dtypes.index, (UOp.variable("deep", 0, 9),))
    leaf = weakref.ref(node)
    for _ in range(50_000):
        node = UOp(Ops.NEG, dtypes.index, (node,))
    del node
    gc.collect()
    assert leaf() is None
