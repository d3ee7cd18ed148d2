"""`BEAM` times mappings of a kernel on its device, and keeps the fastest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from test.backend.gpu.test_thread_mapping import add, attention, row_sum, softmax
from test.emulator.test_mappings import arrays_of, check
from test.evaluator.kernel_graph import interpret
from test.gpu_programs import GRADIENTS, product
from tinygrad import Context, Device, Tensor
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.chain.chain_tile import ChainTile
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.search import mappings
from tinygrad.device import CompileError
from tinygrad.execution import tuning
from tinygrad.renderer import find_renderer
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.uop.ops import UOp

DEVICE = "CUDA:5"


class Clock:
    """In place of timed runs: the option that was asked last is the fastest so far."""

    def __init__(self, rejects: bool = False) -> None:
        self.options: list[Any] = []
        self.rejects = rejects

    def __call__(self, kernel: UOp, *arguments: Any) -> float:
        self.options.append(arguments[2])
        if self.rejects and len(self.options) == 3:
            raise CompileError("too many registers")
        return 1.0 / len(self.options)


def chosen(kernel: UOp) -> Any:
    renderer = find_renderer(Device[DEVICE].target)
    with Context(BEAM=2):
        return tuning.tuned(kernel, renderer, DEVICE).arg.mapping


@pytest.mark.slow
@pytest.mark.parametrize("build", [lambda: row_sum(70, 100), lambda: softmax(33, 77)])
def test_the_fastest_mapping_is_kept_in_the_disk_cache(
    monkeypatch: pytest.MonkeyPatch,
    emulated_driver: None,
    empty_cache: os.PathLike[str],
    build: Any,
) -> None:
    kernel, clock = build(), Clock()
    options = mappings(kernel, find_renderer(Device[DEVICE].target))
    monkeypatch.setattr(tuning, "time_mapping", clock)
    best = chosen(kernel)
    assert len(clock.options) == 3 and clock.options[0] == options[0]
    assert best == clock.options[-1] != options[0] and best in options
    # nothing is timed again
    assert chosen(kernel) == best and len(clock.options) == 3


@pytest.mark.slow
def test_what_the_compiler_rejects_is_no_choice(
    monkeypatch: pytest.MonkeyPatch, emulated_driver: None, empty_cache: os.PathLike[str]
) -> None:
    clock = Clock(rejects=True)
    monkeypatch.setattr(tuning, "time_mapping", clock)
    assert chosen(row_sum(70, 100)) == clock.options[1]


@pytest.mark.slow
def test_timed_programs_compute_what_others_do(
    monkeypatch: pytest.MonkeyPatch, emulated_driver: None, empty_cache: os.PathLike[str]
) -> None:
    timed: list[float] = []
    measure = tuning.time_mapping
    monkeypatch.setattr(tuning, "time_mapping", lambda *x: timed.append(measure(*x)) or timed[-1])
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (40, 40)).astype(np.float32) for _ in range(2))
    index = rng.integers(0, 40, 9)

    def step(x: Tensor, y: Tensor) -> Sequence[Tensor]:
        rows = x[Tensor(index.tolist(), device=DEVICE)]
        return (x @ y).relu(), (x + y).softmax(), x.T.contiguous(), rows.sum(1)

    with Context(BEAM=2):
        found = [z.numpy() for z in step(Tensor(a, device=DEVICE), Tensor(b, device=DEVICE))]
    assert len(timed) >= 12 and all(0 < x < float("inf") for x in timed)
    exponentials = np.exp(a + b)
    expected = [
        np.maximum(a @ b, 0),
        exponentials / exponentials.sum(1, keepdims=True),
        a.T,
        a[index].sum(1),
    ]
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_the_first_option_is_that_of_the_heuristics() -> None:
    renderer = find_renderer(nvidia_target("sm_90a", units=132))
    (graph,) = product(1024).graphs(renderer.target)
    for kernel, kind in (
        (add(1 << 14), object),
        (softmax(64, 512), object),
        (graph, BlockTile),
        (attention(512, 64), ChainTile),
        # with the statistics that a gradient reads
        (GRADIENTS.graphs(renderer.target)[0], ChainTile),
    ):
        first = mappings(kernel, renderer)[0]
        assert isinstance(first, kind)
        assert str(first) in get_program(kernel, renderer).applied


@pytest.mark.slow
def test_every_tile_of_an_attention_computes_the_same(emulated_driver: None) -> None:
    kernel = attention(272, 20)
    arrays = arrays_of(kernel)
    expected = {slot: array.copy() for slot, array in arrays.items()}
    interpret(kernel, expected)
    options = mappings(kernel, find_renderer(Device["CUDA"].target))
    tiles = [x for x in options if isinstance(x, ChainTile)]
    assert len(tiles) > 8
    for option in tiles[:: len(tiles) // 8]:
        check(tuning.with_mapping(kernel, option), arrays, expected)
