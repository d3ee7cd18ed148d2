"""Benchmarks that fail, or that the time is too short for, and the file of results."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from test.benchmark.__main__ import all_benchmarks, duration, is_for_gpu, run, run_within
from test.benchmark.measure import Benchmark, once
from test.benchmark.messages import BENCHMARKS as MESSAGES
from test.benchmark.results import percent_of_bound
from test.benchmark.roofline import H100
from tinygrad.planner import search


def stop() -> float:
    raise ValueError("no such kernel")


def test_results_are_written_and_those_of_a_peer_that_fails_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test.benchmark.results.has_torch", lambda: True)
    benchmarks = [
        Benchmark("bad", stop),
        Benchmark("good", lambda: 2.0, peer=lambda: 4.0, work=3.0, nbytes=1000),
        Benchmark("alone", lambda: 1.0, peer=stop),
    ]
    path = tmp_path / "results.json"
    assert not run(benchmarks, path)
    shown = capsys.readouterr().out
    assert "failed: ValueError: no such kernel" in shown
    assert "peer failed: ValueError: no such kernel" in shown
    found = json.loads(path.read_text())
    assert found["failed"] == {"bad": "ValueError: no such kernel"}
    good, alone = found["results"]
    assert (good["ours_ms"], good["flops"], good["bytes"]) == (2.0, 1.5e12, 5e5)
    assert (good["ratio"], alone["ours_ms"], alone["ratio"]) == (0.5, 1.0, None)
    assert found["environment"]["device"]
    assert list(tmp_path.iterdir()) == [path]


# those of GPUs have small sizes of their own, and the others start MPI or load a model of 98 MB
SMALL = {
    benchmark.name: benchmark.small or benchmark.ours
    for benchmark in all_benchmarks()
    if not is_for_gpu(benchmark)
    and benchmark not in MESSAGES
    and not benchmark.name.startswith("llm")
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_runs_to_its_end_at_a_small_size(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_NODES", 20_000)
    with once():
        assert SMALL[name]() >= 0


WORKER = """
import os
import sys
import time
from collections import deque
from itertools import repeat
from pathlib import Path
from test.benchmark.__main__ import jobs
from test.benchmark.measure import Benchmark
from test.hardware.journal import Journal, work

benchmarks = [
    Benchmark("good", lambda: 2.0),
    Benchmark("crashing", lambda: os._exit(1)),
    # a loop in C, which looks for no signals
    Benchmark("hanging", lambda: deque(repeat(0), maxlen=0)),
    Benchmark("late", lambda: 3.0),
    Benchmark("long", lambda: time.sleep(1000)),
    Benchmark("left out", lambda: 1.0),
]
work(jobs(benchmarks), Journal(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_what_crashes_or_hangs_fails_alone_and_what_has_no_time_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    names = ["good", "crashing", "hanging", "late", "long", "left out"]
    command = [sys.executable, "-c", WORKER]
    assert not run_within(30, command, names, path, limit_s=2)
    shown = capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [result["name"] for result in found["results"]][:2] == ["good", "late"]
    assert "ended with status 1" in found["failed"]["crashing"]
    assert "no answer for 2 s" in found["failed"]["hanging"]
    assert "in <lambda>" in found["failed"]["hanging"]
    assert shown.count("failed: ") == len(found["failed"])


@pytest.mark.slow
def test_what_the_budget_is_too_short_for_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    sleeping = "import time; time.sleep(1000)"
    assert run_within(1, [sys.executable, "-c", sleeping], ["one", "two"], path)
    assert "no time for 2: one, two" in capsys.readouterr().out
    assert json.loads(path.read_text())["skipped"] == ["one", "two"]


def test_durations_and_shares_of_what_a_gpu_does_at_most() -> None:
    assert [duration(text) for text in ("90s", "8m", "1.5h")] == [90, 480, 5400]
    with pytest.raises(argparse.ArgumentTypeError, match="8 is no duration"):
        duration("8")
    copy = Benchmark("copy", stop, nbytes=3_350_000)
    assert percent_of_bound(copy, H100, 2e-6) == pytest.approx(50)
    product = Benchmark("product", stop, work=66.9, nbytes=1)
    assert percent_of_bound(product, H100, 1e-2) == pytest.approx(10)
