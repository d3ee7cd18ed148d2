"""Loops are split where a condition changes: the parts of a concatenation are plain copies."""

from __future__ import annotations

import numpy
import pytest

from test.backend.codegen.kernels import Build, Runner, buffer, sink
from test.devices import only_cpu
from tinygrad.codegen import get_linear
from tinygrad.codegen.analysis.accesses import condition_of
from tinygrad.codegen.optimize.index_set_splitting import split_index_sets
from tinygrad.dtype import dtypes
from tinygrad.renderer import Target
from tinygrad.renderer.host_cpu import host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.settings import Context
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

pytestmark = only_cpu
ROWS = 40
ZERO = UOp.const(dtypes.float32, 0.0)


def concatenation(left: int, right: int) -> UOp:
    """Columns of two arrays beside each other."""
    b = Build()
    y, x = b.loops(ROWS, left + right)
    is_left = x < left
    first = buffer(1, ROWS * left).index(y * left + x, is_left).load(ZERO)
    second = buffer(2, ROWS * right).index(y * right + x - left, is_left.ne(True)).load(ZERO)
    where = buffer(0, ROWS * (left + right)).index(y * (left + right) + x)
    return sink(where.store(first + second, y, x))


def renderer() -> LLVMRenderer:
    return LLVMRenderer(host_target())


@pytest.mark.parametrize("left", [3, 100, 301, 604])
@pytest.mark.parametrize("right", [3, 300])
def test_each_part_of_a_concatenation_is_copied(left: int, right: int) -> None:
    kernel = concatenation(left, right)
    _, linear = get_linear(kernel, renderer())
    nodes = {x for u in linear for x in u.toposort()}
    accesses = [u for u in nodes if u.op in {Ops.LOAD, Ops.STORE}]
    is_split = ROWS * (left + right) >= 4096
    assert is_split == all(condition_of(u) is None for u in accesses)
    arrays = {
        0: numpy.zeros((ROWS, left + right), "f4"),
        1: numpy.arange(ROWS * left, dtype="f4").reshape(ROWS, left),
        2: -numpy.arange(ROWS * right, dtype="f4").reshape(ROWS, right),
    }
    Runner(kernel)(arrays)
    numpy.testing.assert_array_equal(arrays[0], numpy.hstack([arrays[1], arrays[2]]))


def test_a_long_part_has_loops_of_its_own_and_a_short_one_shares_those_around_it() -> None:
    long = split_index_sets(concatenation(300, 300), renderer())
    assert len({store.src[2] for store in long.src}) == 2
    short = split_index_sets(concatenation(3, 300), renderer())
    assert len({store.src[2] for store in short.src}) == 1
    assert len({store.src[3] for store in short.src}) == 2


def test_a_store_that_never_happens_is_dropped() -> None:
    b = Build()
    (i,) = b.loops(5000)
    load = buffer(1, 5000).index(i).load()
    kernel = sink(buffer(0, 5000).index(i, (i < 100).ne(True)).store(load + 1, i))
    assert len(split_index_sets(kernel, renderer()).src) == 1
    arrays = {0: numpy.zeros(5000, "f4"), 1: numpy.arange(5000, dtype="f4")}
    Runner(kernel)(arrays)
    expected = numpy.arange(1, 5001, dtype="f4")
    expected[:100] = 0
    numpy.testing.assert_array_equal(arrays[0], expected)


def test_stores_of_one_nest_are_split_together() -> None:
    """The second store overwrites what the first one reads."""
    b = Build()
    (i,) = b.loops(5000)
    old = buffer(1, 5000).index(i).load()
    part = (i < 2000).where(old, old.const_like(0))
    kernel = sink(
        buffer(0, 5000).index(i).store(old + part, i), buffer(1, 5000).index(i).store(old * 3, i)
    )
    x = numpy.arange(5000, dtype="f4")
    arrays = {0: numpy.zeros(5000, "f4"), 1: x.copy()}
    Runner(kernel)(arrays)
    numpy.testing.assert_array_equal(arrays[0], numpy.where(x < 2000, 2 * x, x))
    numpy.testing.assert_array_equal(arrays[1], 3 * x)


def test_kernels_of_few_elements_and_of_reductions_are_left_alone() -> None:
    small = concatenation(4, 4)
    assert split_index_sets(small, renderer()) is small
    b = Build()
    (i,), (k,) = b.loops(5000), b.reduces(8)
    value = buffer(1, 40000).index(i * 8 + k, i < 1000).load(ZERO).reduce(k, arg=Ops.ADD)
    reduction = sink(buffer(0, 5000).index(i).store(value, i))
    assert split_index_sets(reduction, renderer()) is reduction
    large = concatenation(300, 300)
    with Context(NOOPT=1):
        assert split_index_sets(large, renderer()) is large
    threads = LLVMRenderer(Target("llvm", block_threads=64))
    assert split_index_sets(large, threads) is large
