"""A run on hardware keeps what it finds, whatever crashes or hangs, and says it on a page."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from test.benchmark import gpu
from test.gpu_programs import BF16, product
from test.hardware import candidates, parts
from test.hardware.journal import Journal, Values, main_line, results, supervise
from test.hardware.summary import by_part, clock_line, summary
from test.hardware.worker import FEW
from tinygrad.codegen.optimize.threads.search import mappings
from tinygrad.renderer import find_renderer
from tinygrad.renderer.gpu_targets import nvidia_target

ROOT = Path(__file__).parents[2]
WORKER = """
import os
import sys
import time
from pathlib import Path
from test.hardware.journal import Journal, work

def raises():
    raise ValueError("no such value")

jobs = {
    "right": lambda: {"value": 1},
    "raises": raises,
    "dies": lambda: os._exit(9),
    "hangs": lambda: time.sleep(1000),
    "last": lambda: {"value": 2},
}
work(jobs.items(), Journal(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_job_that_dies_or_hangs_fails_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    command = [sys.executable, "-c", WORKER, str(path)]
    supervise(command, Journal(path), 2, time.monotonic() + 240, tmp_path / "log")
    found = {line["name"]: line for line in results(path)}
    assert list(found) == ["right", "raises", "dies", "hangs", "last"]
    assert (found["right"]["value"], found["last"]["value"]) == (1, 2)
    assert main_line(found["raises"]["failed"]) == "ValueError: no such value"
    assert main_line(found["dies"]["failed"]) == "the process ended with status 9"
    assert main_line(found["hangs"]["failed"]) == "no answer for 2 s"
    assert "line 15 in <lambda>" in found["hangs"]["failed"]


def test_a_worker_that_does_not_start_is_not_started_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    command = [sys.executable, "-c", "import no_such_module"]
    supervise(command, Journal(path), 2, time.monotonic() + 240, tmp_path / "log")
    (line,) = results(path)
    assert main_line(line["failed"]) == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.slow
def test_what_runs_when_the_time_is_over_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    program = WORKER.replace("raises,", "lambda: time.sleep(1000),")
    command = [sys.executable, "-c", program, str(path)]
    supervise(command, Journal(path), 100, time.monotonic() + 30, tmp_path / "log")
    assert [x["name"] for x in results(path)] == ["right"]
    assert "was at: raises" in "\n".join(summary(tmp_path, []))


def test_a_line_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.finish("one", value=1)
    with journal.path.open("a") as file:
        file.write('{"name": "tw')
    assert [x["name"] for x in results(journal.path)] == ["one"]


def test_the_tests_that_run_exist_and_are_each_run_once() -> None:
    found = parts.test_files()
    assert len(found) == len(set(found)) > 30
    assert found[0] == "test/backend/ops/test_elementwise.py"
    assert all((ROOT / x).is_file() for x in found)


def test_options_are_tried_from_both_ends_of_the_predicted_times() -> None:
    target = nvidia_target("sm_90a", units=132)
    renderer = find_renderer(target)
    (kernel,) = product(512, BF16).graphs(target)
    options = mappings(kernel, renderer)
    case = candidates.Case(product(512, BF16), 4, 8)
    tried = candidates.tried(options, case)
    assert tried[:5] == [0, 1, 2, 3, 4] and tried == sorted(set(tried))
    assert 8 < len(tried) <= 13 and tried[-1] > len(options) // 2
    found = [candidates.prediction(kernel, options[x], renderer) for x in tried[:5]]
    assert [x["cycles"] for x in found] == sorted(x["cycles"] for x in found)
    assert found[0]["size"] == {"rows": 512, "columns": 512, "depth": 512, "batch": 1}
    assert found[0]["instruction"].startswith(("wgmma", "mma"))


def test_clocks_are_summed_up() -> None:
    text = "timestamp, clocks.sm [MHz], name\n1/2, 1980 MHz, GPU\n1/2, 345 MHz, GPU\n"
    assert "clocks.sm [MHz] 345 to 1980" in clock_line(text)


def test_the_page_names_what_failed_and_how_well_times_are_predicted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "results.jsonl")
    for rank, (us, cycles) in enumerate(((20.0, 3.0), (10.0, 1.0), (15.0, 2.0))):
        name = f"times: product, kernel 0, option {rank}: tile {rank}"
        journal.finish(name, us=us, cycles=cycles)
    journal.finish("tiles: product, option 3", failed="E  Mismatched elements: 1 / 2")
    journal.finish("tiles: time", seconds=2.5)
    tests = Journal(tmp_path / "tests.jsonl")
    tests.finish("a.py::test", failed="E  assert 1 == 2")
    tests.append(again="a.py::test")
    page = "\n".join(summary(tmp_path, ["tiles", "times"]))
    assert "| tiles | 1 | 1 | 2.5 |" in page and "| times | 3 | 0 | not done |" in page
    assert "- `tiles: product, option 3`: Mismatched elements: 1 / 2" in page
    assert "- `a.py::test`: assert 1 == 2" in page and "- `a.py::test` passed" in page
    assert "| product, kernel 0 | 3 | 20 | 10 | 1: tile 1 | 1.00 |" in page


@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_all_parts_run_to_their_end_on_the_emulator(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings")
    from test.emulator import compiler

    try:
        compiler.find_compiler()
    except compiler.NoCompilerError as error:
        pytest.skip(str(error))
    options = ["--small", "--budget", "20m", "--processes", "2", "--out", str(tmp_path)]
    faults = ["--tests", "test/hardware/samples/faults.py", "--test-limit", "5s"]
    command = [sys.executable, "-m", "test.emulator", "-m", "test.hardware", "all"]
    done = subprocess.run(
        [*command, *options, *faults], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = by_part(results(tmp_path / "results.jsonl"))
    assert [x["name"] for part in found.values() for x in part if "failed" in x] == []
    assert found.keys() == {*parts.PARTS, "emulator"}
    lines = Journal(tmp_path / "results.jsonl").lines()
    assert [x["unfinished"] for x in lines if "unfinished" in x] == []
    assert programs_of(found["tiles"]) == names_of(candidates.right_cases())
    assert programs_of(found["times"]) == names_of(candidates.timed_cases(is_small=True))
    measured = [x["name"] for x in found["benchmark"] if x.get("ours_ms", 0) > 0]
    assert measured == [x.name for x in gpu.SMALL_BENCHMARKS]
    timed = [x for x in found["times"] if x["name"] != "time"]
    assert all(x["us"] > 0 for x in timed) and all(x["cycles"] > 0 for x in timed if "size" in x)
    tests = {x["name"].partition("::")[2]: x for x in results(tmp_path / "tests.jsonl")}
    reasons = {name: main_line(x["failed"]) for name, x in tests.items() if "failed" in x}
    assert list(reasons) == ["test_wrong", "test_fault", "test_hang"]
    assert "[3, 6] == [3, 7]" in reasons["test_wrong"]
    assert "in kernel check" in reasons["test_fault"]
    assert "__global__" in tests["test_wrong"]["kernels"]
    assert {"test_right", "test_skipped", "test_last"} <= tests.keys()
    with np.load(tmp_path / "intrinsics.npz") as values:
        assert len(values.files) == FEW
    assert len(list(tmp_path.iterdir())) <= 8
    text = (tmp_path / "summary.md").read_text()
    assert text in done.stdout and "| report | " in text
    assert json.loads((tmp_path / "results.jsonl").read_text().splitlines()[0])["name"]


def names_of(cases: list[candidates.Case]) -> set[str]:
    return {case.program.name for case in cases}


def programs_of(lines: list[Values]) -> set[str]:
    """The programs of which a part has found something."""
    return {x["name"].partition(", kernel ")[0] for x in lines if x["name"] != "time"}
