"""Simpler programs than one that shows a finding: without statements, lines of functions, endings
and layouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from test.fuzz_state.program import Program
from test.fuzzing.layouts import plainer

# parts of a statement that a finding may not need, and what to put in their place
SIMPLER = [
    (r"\.(realize|clone|contiguous|contiguous_backward|detach)\(\)", ""),
    (r"\((\w+) [+*] [01]\)", r"\1"),
    (r"\(--(\w+)\)", r"\1"),
    (r"\.to\((\w+)\.device\)", ""),
    (r", device=L\d", ""),
    (r", dtype=dtypes\.(float|double|int)", ""),
    (r" = \(?t\d+ [+*] \d\)?$", " = 1"),
    (r"\] = .*", "] = 7"),
    (r"= \(t\d+ .*\)", "= 7"),
    (r" [-*]= ", " += "),
    (r"\+= .*", "+= 1"),
    (r"\n +Tensor\.realize\(.*\)", ""),
]


def candidates(program: Program) -> Iterator[Program]:
    """Simpler programs, those that lack most first."""
    count = len(program.statements)
    reads = [i for i, x in enumerate(program.statements[:-1]) if x.text.startswith("see(")]
    if reads:
        yield program.without(reads)
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
        for match in re.finditer(pattern, text):
            yield text[: match.start()] + match.expand(simple) + text[match.end() :]


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
    for plain in plainer(layouts):
        yield replace(program, layouts={**program.layouts, **plain})
