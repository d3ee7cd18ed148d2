"""Random programs of writes, reads and captures give what an eager reference gives.

The programs come from `python -m test.fuzz_state`, which searches for a given time. The reference
is compared with numpy's views, and with PyTorch where that is installed.
"""

from __future__ import annotations

import itertools
import random
import textwrap

import numpy as np
import pytest

import test.fuzz_state.statements  # noqa: F401  declares all statements
from test.backend.storage.test_state_regressions import KINDS, TWO
from test.devices import only_one_process
from test.fuzz_state import reference
from test.fuzz_state.check import compare, difference
from test.fuzz_state.generate import GROUPS, UNUSUAL, random_program
from test.fuzz_state.harness import interrupted
from test.fuzz_state.mutants import COSTS, MUTANTS, drawn_for, noticed
from test.fuzz_state.program import Program, execute, run
from test.fuzz_state.shrink import candidates
from test.fuzzing.findings import Finding, Invalid
from test.fuzzing.shrink import shrink
from tinygrad import GlobalCounters, Tensor, ranks

# each theme with the groups that its programs draw from
STATE = ["views", "writes", "reads"]
BESIDE = ["gradients", "jit", "exports", "interrupts", "threads"]
DRAWN = {"views": STATE, "writes": STATE, **{theme: [theme, *STATE] for theme in BESIDE}}
if ranks.size() > 1:
    # an array is in the memory of one rank
    del DRAWN["exports"]
SLOW_SEEDS = [range(start, start + 100) for start in range(4, 204, 100)]


def search(theme: str, seeds: range) -> Finding[Program] | None:
    """The first finding among the programs with these seeds, on one device and in layouts."""
    for seed in seeds:
        program = random_program(random.Random(seed), DRAWN[theme], theme)
        for placed in (program.on_one_device(), program):
            try:
                finding = compare(placed)
            except Invalid:
                continue
            if finding is not None:
                return finding
    return None


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
@pytest.mark.sample(3)
@pytest.mark.parametrize("theme", DRAWN)
def test_random_programs(theme: str) -> None:
    finding = search(theme, range(4))
    assert finding is None, str(finding)


@pytest.mark.filterwarnings("ignore::tinygrad.jit.RecaptureWarning")
@pytest.mark.slow
@pytest.mark.parametrize("seeds", SLOW_SEEDS, ids=str)
@pytest.mark.parametrize("theme", DRAWN)
def test_many_random_programs(theme: str, seeds: range) -> None:
    finding = search(theme, seeds)
    assert finding is None, str(finding)


@pytest.mark.slow
def test_every_statement_is_drawn() -> None:
    missing = {name for draws in GROUPS.values() for name in draws}
    drawn = {**DRAWN, **{theme: [theme, *STATE] for theme in UNUSUAL}}
    for seed, theme in itertools.product(range(200), drawn):
        if not missing:
            break
        program = random_program(random.Random(seed), drawn[theme], theme)
        missing -= {x.drawn for x in program.statements}
    assert not missing


@pytest.mark.slow
def test_a_view_that_is_a_copy_is_found_and_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "detach", Tensor.clone)
    finding = search("views", range(200))
    assert finding is not None
    found = shrink(finding, compare, candidates, limit_s=10)
    assert found.kind == "wrong value"
    drawn = [x.drawn for x in found.program.statements]
    assert "detached" in drawn
    # a tensor, a view, a write, and a read; two more if time runs out
    assert len(drawn) <= 7


@only_one_process("arrays, Ctrl-C and threads are of one")
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_noticed(name: str) -> None:
    known = [Program.of(x.strip(), L=TWO) for kind in KINDS.values() for x in kind.values()]
    drawn = itertools.islice(drawn_for(MUTANTS[name]), 500)
    assert noticed(MUTANTS[name], itertools.chain(known, drawn)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTS)
def test_mutants_that_only_cost_change_no_value(name: str) -> None:
    assert noticed(COSTS[name], itertools.islice(drawn_for(COSTS[name]), 60)) is None


@only_one_process("a rank is not interrupted by itself")
@pytest.mark.parametrize("when, count", [("before", 0), ("after", 1)])
def test_an_item_is_interrupted_before_or_after_it_runs(when: str, count: int) -> None:
    x = Tensor([1, 2]).realize()
    GlobalCounters.reset()
    with interrupted(0, when):
        (x + 1).realize()
        pytest.fail("not interrupted")
    assert GlobalCounters.kernel_count == count
    assert (x + 1).tolist() == [2, 3]


# ---- the reference ----


def test_results_of_the_reference_are_invalid_after_the_next_call() -> None:
    count, kept = reference.Tensor([0]), []
    names = {"see": None, "count": count, "kept": kept, "TinyJit": reference.TinyJit}
    text = """
        @TinyJit
        def f(x):
            count.assign(count + x)
            kept.append(x * 3)
            return count, x * 2, kept[-1]
    """
    execute(textwrap.dedent(text), names)
    cell, value, held = names["f"](reference.Tensor([1]))
    view, copy = value[:], value.clone()
    assert value.tolist() == [2]
    names["f"](reference.Tensor([5]))
    for stale in (value, view):
        with pytest.raises(reference.Invalid, match="overwritten"):
            stale.tolist()
    # a cell, what the function keeps, and a copy stay what they are
    assert (cell.tolist(), held.tolist(), copy.tolist()) == ([6], [3], [2])


def test_arrays_of_the_reference_share_memory() -> None:
    x = reference.Tensor([[1, 2, 3], [4, 5, 6]])
    equal, view = x + 0, x[:, ::2]
    array = reference.NumPy.from_dlpack(view)
    x += 1
    np.testing.assert_array_equal(array, [[2, 4], [5, 7]])
    array[0] = 9
    assert x.tolist() == [[9, 3, 9], [5, 6, 7]]
    assert equal.tolist() == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(reference.Invalid, match="strides"):
        reference.NumPy.from_dlpack(x.flip(0))
    foreign = np.array([1.0, 2.0])
    y = reference.Tensor.from_dlpack(foreign)
    y *= 2
    foreign += 1
    assert (foreign.tolist(), y.tolist()) == ([3, 5], [3, 5])


def test_frozen_leaves_of_the_reference_have_no_gradient() -> None:
    w, b = (reference.Tensor([1.0]).requires_grad_() for _ in range(2))
    w.requires_grad = False
    (w * 2 + b).sum().backward()
    assert w.grad is None
    assert b.grad is not None
    w.requires_grad = True
    (w * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [2]


def test_views_of_the_reference_are_views_as_in_numpy() -> None:
    array, x = np.arange(12).reshape(3, 4), reference.Tensor(np.arange(12)).reshape(3, 4)
    for move in (
        lambda y: y[::-1],
        lambda y: y.T[1:, ::2],
        lambda y: y[1],
        lambda y: y.reshape(2, 6)[:, None, 4::-3],
    ):
        a, view = move(array), move(x)
        a *= 3
        view *= 3
        view[..., 0] = 5
        a[..., 0] = 5
        np.testing.assert_array_equal(x.numpy(), array)
        np.testing.assert_array_equal(view.numpy(), a)


def test_a_reshape_of_a_transposed_tensor_is_a_view_in_the_reference() -> None:
    x = reference.Tensor([[1, 2], [3, 4]])
    view = x.T.reshape(4)
    view[1:3] = 0
    assert x.tolist() == [[1, 0], [0, 4]]
    x += 1
    assert view.tolist() == [2, 1, 1, 5]


def test_the_reference_refuses_writes_to_repeated_elements() -> None:
    x = reference.Tensor([1, 2])
    view = x.expand(3, 2)
    with pytest.raises(reference.Refusal, match="repeats"):
        view += 1
    view[0] += 1
    assert x.tolist() == [2, 3]


def test_gradients_of_the_reference_follow_writes() -> None:
    w = reference.Tensor([1.0, 2.0, 3.0]).requires_grad_()
    y = w * 3
    y[:2] *= w[1]
    y[2] = 7
    y.sum().backward()
    assert w.grad is not None
    # y is 3 w0 w1, 3 w1 w1, 7
    assert w.grad.tolist() == [6, 3 + 12, 0]


@pytest.mark.slow
def test_the_reference_agrees_with_pytorch() -> None:
    pytest.importorskip("torch")
    from test.fuzz_state import torch_tensor

    agreed = 0
    for seed in range(400):
        program = random_program(random.Random(seed), ["gradients", "views", "writes", "reads"])
        found = torch_tensor.run(program.on_one_device())
        if found is None:
            continue
        expected = run(program.on_one_device(), is_reference=True)
        assert expected.failure is None
        for (number, value), (_, right) in zip(found, expected.seen, strict=True):
            message = difference(value, right)
            assert message is None, f"{program}\n# {program.statements[number].text}: {message}"
        agreed += 1
    assert agreed > 100
