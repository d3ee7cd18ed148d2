"""Interning: equal nodes are one object, also when several threads build them at once."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

THREADS = 4


@pytest.fixture
def rapid_switching() -> Iterator[None]:
    """Switches threads every microsecond, so that a race needs few attempts."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def build_in_threads(count: int, keep: bool) -> list[list[UOp]]:
    """The nodes 0 to `count` as built by each of `THREADS` threads at the same time."""
    built: list[list[UOp]] = [[] for _ in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def build(mine: list[UOp]) -> None:
        for i in range(count):
            if i % 64 == 0:
                barrier.wait()
            node = UOp(Ops.ADD, dtypes.int, (UOp.const(dtypes.int, i), UOp.const(dtypes.int, -i)))
            if keep:
                mine.append(node)

    threads = [threading.Thread(target=build, args=(mine,)) for mine in built]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return built


def test_threads_that_build_equal_nodes_get_one_object(rapid_switching: None) -> None:
    built = build_in_threads(20_000, keep=True)
    different = sum(any(node is not nodes[0] for node in nodes[1:]) for nodes in zip(*built))
    assert different == 0


def test_nodes_that_die_while_equal_ones_are_built_stay_unique(rapid_switching: None) -> None:
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
