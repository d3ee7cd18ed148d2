"""A page of what a run on hardware found, in Markdown, from the files of its results."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from test.hardware.journal import MAX_LINE, Journal, Values, main_line, results

DEVICE_REPORT = "device report"
MAX_FAILURES = 40
"""Failures of a part that the page lists."""


def write_summary(out: Path, names: Sequence[str]) -> None:
    """Writes `summary.md` from the files of a folder."""
    lines = [f"{line}\n" for line in summary(out, names)]
    (out / "summary.md").write_text("".join(lines))


def summary(out: Path, names: Sequence[str]) -> Iterator[str]:
    """The lines of the page; `names` are the parts that were to run."""
    found = by_part(results(out / "results.jsonl"))
    tests = results(out / "tests.jsonl")
    yield from heading(found["report"], out)
    yield from overview(found, tests, names)
    failed = [x for part, lines in found.items() for x in lines if "failed" in x]
    yield from failures("Failures", failed)
    yield from failures("Failed tests", [x for x in tests if "failed" in x])
    yield from again([x for x in Journal(out / "tests.jsonl").lines() if "again" in x])
    yield from unfinished(Journal(out / "results.jsonl").lines())
    yield from unfinished(Journal(out / "tests.jsonl").lines())
    yield from benchmarks(found["benchmark"])
    yield from candidate_times(found["times"])


def by_part(lines: Sequence[Values]) -> dict[str, list[Values]]:
    """The results of each part, with what they are without the name of the part."""
    found: dict[str, list[Values]] = defaultdict(list)
    for line in lines:
        part, _, name = line["name"].partition(": ")
        found[part].append({**line, "name": name, "part": part})
    return found


def heading(report: Sequence[Values], out: Path) -> Iterator[str]:
    yield "# A run on hardware"
    yield ""
    for line in report:
        if line["name"] == DEVICE_REPORT:
            yield from ("```", line.get("text", "").strip(), "```", "")
    clocks = out / "clocks.csv"
    if clocks.exists():
        yield from (clock_line(clocks.read_text()), "")


def clock_line(text: str) -> str:
    """The range of each number of nvidia-smi."""
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    ranges = []
    for name in rows[0] if rows else ():
        values = [v for row in rows if (v := _number(row[name])) is not None]
        if values:
            ranges.append(f"{name} {min(values):g} to {max(values):g}")
    return f"Over {len(rows)} readings: {'; '.join(ranges)}."


def _number(cell: str | None) -> float | None:
    try:
        return float((cell or "").split()[0])
    except (IndexError, ValueError):
        return None


def overview(
    found: dict[str, list[Values]], tests: Sequence[Values], names: Sequence[str]
) -> Iterator[str]:
    """A line for each part."""
    yield "| part | jobs | failed | s |"
    yield "|---|---|---|---|"
    for name in names:
        lines = [x for x in found[name] if x["name"] != "time"]
        lines += tests if name == "tests" else []
        lines += found["emulator"] if name == "intrinsics" else []
        seconds = [x["seconds"] for x in found[name] if x["name"] == "time"]
        wrong = sum("failed" in x for x in lines)
        yield f"| {name} | {len(lines)} | {wrong} | {seconds[0] if seconds else 'not done'} |"
    skipped = sum("skipped" in x for x in tests)
    yield ""
    if skipped:
        yield from (f"{skipped} of the tests were skipped.", "")


def failures(title: str, failed: Sequence[Values]) -> Iterator[str]:
    """What failed, with the line of the reason that says most."""
    if not failed:
        return
    yield from (f"## {title}", "")
    for line in failed[:MAX_FAILURES]:
        name = f"{line['part']}: {line['name']}" if "part" in line else line["name"]
        yield f"- `{name}`: {main_line(line['failed'])}"
    if len(failed) > MAX_FAILURES:
        yield f"- and {len(failed) - MAX_FAILURES} more"
    yield ""


def again(lines: Sequence[Values]) -> Iterator[str]:
    """What the failed tests did when they ran once more, alone."""
    passed = [x["again"] for x in lines if "failed" not in x]
    if lines:
        yield f"{len(lines)} of them ran once more, alone; {len(passed)} passed then."
        yield from (f"- `{name}` passed" for name in passed)
        yield ""


def unfinished(lines: Sequence[Values]) -> Iterator[str]:
    """What the workers did for which the time was over."""
    for line in lines:
        if "unfinished" in line:
            yield f"When the time was over, worker {line['worker']} was at: {line['unfinished']}"
            yield ""


def benchmarks(lines: Sequence[Values]) -> Iterator[str]:
    """The benchmarks, beside torch."""
    lines = [x for x in lines if "ours_ms" in x]
    if not lines:
        return
    yield from ("## Benchmarks", "")
    yield "| benchmark | ours, ms | torch, ms | ratio | rate | of the machine's peak |"
    yield "|---|---|---|---|---|---|"
    for x in lines:
        peer = x["peer_ms"]
        ratio = "" if peer is None else f"{x['ours_ms'] / peer:.2f}"
        rates = [
            f"{x[key] / 1e12:.3g} {unit}"
            for key, unit in (("flops", "TFLOP/s"), ("bytes", "TB/s"))
            if x[key] is not None
        ]
        share = "" if x["percent_of_bound"] is None else f"{x['percent_of_bound']:.0f}%"
        cells = [x["name"], f"{x['ours_ms']:.4g}", "" if peer is None else f"{peer:.4g}"]
        yield f"| {' | '.join([*cells, ratio, ', '.join(rates), share])} |"
    yield ""


def candidate_times(lines: Sequence[Values]) -> Iterator[str]:
    """For each kernel the fastest candidate, that of the heuristics, and how well it was predicted.

    The correlation is that of ranks, of the candidates that the model of cycles covers.
    """
    groups: dict[str, list[Values]] = defaultdict(list)
    for x in lines:
        if "us" in x:
            groups[x["name"].partition(", option ")[0]].append(x)
    if not groups:
        return
    yield from ("## Times of candidates", "")
    yield "| kernel | timed | heuristics, µs | fastest, µs | fastest | correlation with the model |"
    yield "|---|---|---|---|---|---|"
    for name, timed in groups.items():
        best = min(timed, key=lambda x: x["us"])
        first = [x["us"] for x in timed if ", option 0:" in x["name"]]
        predicted = [x for x in timed if "cycles" in x]
        pairs = [(x["cycles"], x["us"]) for x in predicted]
        rank = f"{rank_correlation(pairs):.2f}" if len(pairs) > 2 else ""
        option = best["name"].partition(", option ")[2].replace("|", "\\|")[:MAX_LINE]
        heuristics = f"{first[0]:.4g}" if first else ""
        yield f"| {name} | {len(timed)} | {heuristics} | {best['us']:.4g} | {option} | {rank} |"
    yield ""


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's correlation."""
    ranks: Any = [np.argsort(np.argsort(values)) for values in zip(*pairs, strict=True)]
    return float(np.corrcoef(*ranks)[0, 1])
