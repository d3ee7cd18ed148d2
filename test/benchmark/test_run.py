"""Benchmarks that fail, or that the time is too short for, and the file of results."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from test.benchmark.__main__ import duration, run
from test.benchmark.measure import Benchmark
from test.benchmark.results import percent_of_bound
from test.benchmark.roofline import H100


def stop() -> float:
    raise ValueError("no such kernel")


def wait() -> float:
    while True:
        time.sleep(0.01)


def test_results_are_written_and_what_has_no_time_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmarks = [
        Benchmark("bad", stop),
        Benchmark("good", lambda: 2.0, lambda: 4.0, work=3.0, nbytes=1000),
        Benchmark("long", wait),
        Benchmark("later", lambda: 1.0),
    ]
    path = tmp_path / "results.json"
    assert not run(benchmarks, 0.3, path)
    shown = capsys.readouterr().out
    assert "failed: ValueError: no such kernel" in shown
    assert "no time for 2: long, later" in shown
    found = json.loads(path.read_text())
    assert found["failed"] == {"bad": "ValueError: no such kernel"}
    assert found["skipped"] == ["long", "later"]
    (result,) = found["results"]
    assert (result["ours_ms"], result["flops"], result["bytes"]) == (2.0, 1.5e12, 5e5)
    assert found["environment"]["device"]
    assert list(tmp_path.iterdir()) == [path]


HANGING = """
import sys
from collections import deque
from itertools import repeat
from pathlib import Path
from test.benchmark import __main__ as program
from test.benchmark.measure import Benchmark

program.GRACE_S = 0.1
# a loop in C, which looks for no signals
hanging = Benchmark("hanging", lambda: deque(repeat(0), maxlen=0))
program.run([Benchmark("good", lambda: 2.0), hanging], 0.5, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_call_that_does_not_return_is_ended_and_the_results_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "in <lambda>" in done.stderr
    found = json.loads(path.read_text())
    assert [result["name"] for result in found["results"]] == ["good"]
    assert found["skipped"] == ["hanging"]


def test_durations_and_shares_of_what_a_gpu_does_at_most() -> None:
    assert [duration(text) for text in ("90s", "8m", "1.5h")] == [90, 480, 5400]
    with pytest.raises(argparse.ArgumentTypeError, match="8 is no duration"):
        duration("8")
    copy = Benchmark("copy", stop, nbytes=3_350_000)
    assert percent_of_bound(copy, H100, 2e-6) == pytest.approx(50)
    product = Benchmark("product", stop, work=66.9, nbytes=1)
    assert percent_of_bound(product, H100, 1e-2) == pytest.approx(10)
