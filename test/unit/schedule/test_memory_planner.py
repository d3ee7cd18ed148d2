"""The memory planner: live buffers never overlap, and sharing memory never increases the total."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad.execution.memory_planner import ALIGNMENT, Lifetime, plan_memory
from tinygrad.helpers import round_up


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    first = draw(st.integers(0, 12))
    return Lifetime(first, first + draw(st.integers(0, 6)), draw(st.integers(0, 1000)))


def rounded(nbytes: int) -> int:
    return round_up(nbytes, ALIGNMENT)


@given(st.lists(lifetimes(), max_size=25))
def test_buffers_alive_together_do_not_overlap(buffers: list[Lifetime]):
    offsets = plan_memory(buffers).offsets
    for (a, at), (b, bt) in itertools.combinations(zip(buffers, offsets, strict=True), 2):
        together = a.first <= b.last and b.first <= a.last and a.nbytes > 0 and b.nbytes > 0
        apart = at + a.nbytes <= bt or bt + b.nbytes <= at
        assert apart or not together, (a, at, b, bt)


@given(st.lists(lifetimes(), max_size=25))
def test_the_total_is_between_the_peak_and_the_sum(buffers: list[Lifetime]):
    result = plan_memory(buffers)
    assert len(result.offsets) == len(buffers)
    for buffer, offset in zip(buffers, result.offsets, strict=True):
        assert offset % ALIGNMENT == 0
        assert 0 <= offset <= offset + buffer.nbytes <= result.total
    peak = max(
        (
            sum(rounded(b.nbytes) for b in buffers if b.first <= step <= b.last)
            for step in range(20)
        ),
        default=0,
    )
    assert peak <= result.total <= sum(rounded(buffer.nbytes) for buffer in buffers)


def test_a_chain_of_steps_needs_two_buffers():
    chain = [Lifetime(step, step + 1, 4096) for step in range(100)]
    assert plan_memory(chain).total == 2 * 4096


def test_the_best_fitting_gap_is_used():
    # at step 1 the memory below 1024 and 4096..6144 is free
    early = [Lifetime(0, 0, 4096), Lifetime(0, 1, 3000), Lifetime(0, 0, 2048)]
    small = Lifetime(1, 1, 2000)
    result = plan_memory([*early, small])
    assert result.total == plan_memory(early).total
    assert result.offsets[3] != result.offsets[1]


def test_nothing_needs_no_memory():
    assert plan_memory([]).total == 0
    assert plan_memory([Lifetime(0, 3, 0)]).total == 0


def test_a_lifetime_that_ends_before_it_begins_is_refused():
    with pytest.raises(ValueError, match="ends before it begins"):
        plan_memory([Lifetime(3, 2, 64)])
