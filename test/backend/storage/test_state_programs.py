"""Random programs of writes, reads and captures give what an eager reference gives.

The programs come from `python -m test.fuzz_state`, which searches for a given time. The reference
is compared with numpy's views, and with PyTorch where that is installed.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import test.fuzz_state.statements  # noqa: F401  declares all statements
from test.fuzz_state import reference
from test.fuzz_state.check import compare, difference
from test.fuzz_state.generate import GROUPS, UNUSUAL, random_program
from test.fuzz_state.program import Program, run
from test.fuzz_state.shrink import candidates
from test.fuzzing.findings import Finding, Invalid
from test.fuzzing.shrink import shrink
from tinygrad import Tensor

# each theme with the groups that its programs draw from
STATE = ["views", "writes", "reads"]
BESIDE = ["gradients", "jit", "exports", "interrupts", "threads"]
DRAWN = {"views": STATE, "writes": STATE, **{theme: [theme, *STATE] for theme in BESIDE}}
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


@pytest.mark.sample(3)
@pytest.mark.parametrize("theme", DRAWN)
def test_random_programs(theme: str) -> None:
    finding = search(theme, range(4))
    assert finding is None, str(finding)


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
    # a tensor, a view, a write, and a read
    assert len(drawn) <= 5


# ---- the reference ----


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
