"""Minimizes a finding: removes statements, lines of functions, endings and layouts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from test.fuzz_sharding.program import Layout
from test.fuzz_state.check import Finding, Invalid
from test.fuzz_state.program import Program

Check = Callable[[Program], Finding | None]

# parts of a statement that a finding may not need, and what to put in their place
SIMPLER = [
    (r"\.realize\(\)$", ""),
    (r"\.clone\(\)$", ""),
    (r", device=L\d", ""),
    (r", dtype=dtypes\.(float|double|int)", ""),
    (r" = \(?t\d+ [+*] \d\)?$", " = 1"),
    (r"\] = .*", "] = 7"),
    (r"= \(t\d+ .*\)", "= 7"),
    (r" [-*]= ", " += "),
    (r"\+= .*", "+= 1"),
    (r"\n +Tensor\.realize\(.*\)", ""),
]


def shrink(finding: Finding, check: Check, limit_s: float = 30) -> Finding:
    """The smallest program found that shows a finding of the same kind, as a finding."""
    end = time.monotonic() + limit_s
    smaller: Finding | None = finding
    while smaller is not None:
        finding = smaller
        smaller = next(_still_wrong(finding, check, end), None)
    return finding


def _still_wrong(finding: Finding, check: Check, end: float) -> Iterator[Finding]:
    for program in candidates(finding.program):
        if time.monotonic() > end:
            return
        try:
            found = check(program)
        except (Invalid, SyntaxError):
            continue
        if found is not None and found.kind == finding.kind:
            yield found


def candidates(program: Program) -> Iterator[Program]:
    """Simpler programs, those that lack most first."""
    count = len(program.statements)
    size = count // 2
    while size:
        for start in range(count - size, -1, -size):
            yield program.without(range(start, start + size))
        size //= 2
    if program.settings:
        yield replace(program, settings=())
    yield from with_plainer_layouts(program)
    for number, statement in enumerate(program.statements):
        for text in simpler_texts(statement.text):
            changed = list(program.statements)
            changed[number] = replace(statement, text=text)
            yield replace(program, statements=tuple(changed))


def simpler_texts(text: str) -> Iterator[str]:
    """The statement without one of its inner lines, or with a simpler part."""
    lines = text.splitlines()
    for number in range(len(lines) - 1, 0, -1):
        yield "\n".join(lines[:number] + lines[number + 1 :])
    for pattern, simple in SIMPLER:
        shorter = re.sub(pattern, simple, text)
        if shorter != text:
            yield shorter


def with_plainer_layouts(program: Program) -> Iterator[Program]:
    """Unused layouts left out, all on one device, fewer devices, or replicated."""
    text = " ".join(x.text for x in program.statements)
    used = {name: value for name, value in program.layouts.items() if name in text}
    if used != program.layouts:
        yield replace(program, layouts=used)
    layouts = {name: value for name, value in program.layouts.items() if value is not None}
    if not layouts:
        return
    yield program.on_one_device()
    count = max(len(x.numbers) for x in layouts.values())
    for fewer in range(2, count):
        plain = {
            name: Layout((fewer,), (_first_axis(x),), tuple(range(fewer)))
            for name, x in layouts.items()
        }
        yield replace(program, layouts=plain)
    for name, x in layouts.items():
        for axis in (None, _first_axis(x)):
            plain_layout = Layout((count,), (axis,), tuple(range(count)))
            if _complexity(plain_layout) < _complexity(x):
                yield replace(program, layouts={**layouts, name: plain_layout})


def _first_axis(layout: Layout) -> int | None:
    return next((axis for axis in layout.axes if axis is not None), None)


def _complexity(layout: Layout) -> tuple[int, int, bool]:
    axes = sum(axis is not None for axis in layout.axes)
    return len(layout.mesh), axes, layout.numbers != tuple(range(len(layout.numbers)))
