"""A program with state: statements as text, and the layouts that they name.

Input: statements and layouts. Output: what the program reads, in order, as it calls `see`. The
same text runs with the library and with the reference.
"""

from __future__ import annotations

import ast
import copy
import traceback
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tinygrad
from test.fuzz_state import harness, reference, versions
from test.fuzzing.layouts import ONE_DEVICE, Layout
from tinygrad.jit import JitError
from tinygrad.settings import Context, ContextVar
from tinygrad.sharding import ShardingError
from tinygrad.uop.spec import SpecError

# what the library may raise for a statement that it cannot run
DOCUMENTED = (
    *(RuntimeError, ValueError, IndexError, NotImplementedError, BufferError),
    *(JitError, ShardingError),
)
SEED = 5
NAMES = ("Tensor", "TinyJit", "Variable")

# what the library and the reference each have one of
HARNESS = ("at_once", "content_of", "interrupted", "node_of", "pause", "settle")

HEADER = """\
import copy
import numpy as np
from collections import deque
from types import SimpleNamespace
from tinygrad import Context, Sharding, Tensor, TinyJit, Variable, dtypes
from test.fuzz_state.harness import *
see = print"""


@dataclass(frozen=True)
class Statement:
    """One statement of a program, and the group and the function that drew it.

    `is_call`: it calls a function under `TinyJit`, whose effects an error does not undo.
    """

    text: str
    group: str
    drawn: str = ""
    is_call: bool = False

    def names(self) -> tuple[set[str], set[str]]:
        """The names that it needs, and those that it binds."""
        nodes = list(ast.walk(ast.parse(self.text)))
        changed = {id(x.target) for x in nodes if isinstance(x, ast.AugAssign)}
        needed, bound = set(), set()
        for x in nodes:
            if isinstance(x, ast.Name):
                is_bound = isinstance(x.ctx, ast.Store) and id(x) not in changed
                (bound if is_bound else needed).add(x.id)
        return needed, bound


@dataclass
class Outcome:
    """What a run read and raised, by the number of the statement."""

    seen: list[tuple[int, Any]] = field(default_factory=list)
    raised: list[tuple[int, Exception]] = field(default_factory=list)
    # statements that did not run, because they raised or need the result of one that did
    skipped: set[int] = field(default_factory=set)
    # the statement after which nothing was run
    end: int | None = None
    # the error that no statement may raise
    failure: Exception | None = None


class NotRefused(Exception):
    """The library ran a statement that it must refuse."""


class VersionChanged(Exception):
    """A statement changed the content of a version of memory."""


class Refused:
    """A `with` block in which the library must raise a documented error."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if kind is None:
            raise NotRefused("the statement must raise")
        return issubclass(kind, DOCUMENTED) and is_deliberate(error)


@dataclass(frozen=True)
class Program:
    """Statements, the layouts that they name (None: one device), and settings."""

    statements: tuple[Statement, ...]
    layouts: Mapping[str, Layout | None]
    settings: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, text: str, **layouts: Layout | None) -> Program:
        """The program with this text, which names the layouts."""
        lines, statements = text.splitlines(), []
        for node in ast.parse(text).body:
            decorators = getattr(node, "decorator_list", [])
            start = min([node.lineno, *(x.lineno for x in decorators)])
            statements.append(Statement("\n".join(lines[start - 1 : node.end_lineno]), ""))
        return cls(tuple(statements), layouts)

    def on_one_device(self) -> Program:
        return replace(self, layouts=dict.fromkeys(self.layouts))

    def up_to(self, number: int) -> Program:
        """The program without the statements after this one."""
        return replace(self, statements=self.statements[: number + 1])

    def without(self, numbers: Iterable[int]) -> Program:
        """The program without these statements."""
        left_out = set(numbers)
        kept = [x for i, x in enumerate(self.statements) if i not in left_out]
        return replace(self, statements=tuple(kept))

    def namespace(self, is_reference: bool) -> dict[str, Any]:
        """The names that the text may use."""
        names: dict[str, Any] = {"copy": copy, "deque": deque, "Output": harness.Output}
        names["SimpleNamespace"] = types.SimpleNamespace
        for name, layout in self.layouts.items():
            names[name] = ONE_DEVICE if layout is None else layout.build()
        source: Any = reference if is_reference else tinygrad
        names.update((name, getattr(source, name)) for name in NAMES)
        names["dtypes"] = reference.DTYPES if is_reference else tinygrad.dtypes
        names["refused"] = reference.Refused if is_reference else Refused
        names["np"] = reference.NumPy() if is_reference else np
        beside = reference if is_reference else harness
        names.update((name, getattr(beside, name)) for name in HARNESS)
        return names

    @contextmanager
    def context(self) -> Iterator[None]:
        """Its settings, as far as the library has them."""
        with ExitStack() as stack:
            for name, value in self.settings:
                if name in ContextVar.declared:
                    stack.enter_context(Context(**{name: value}))
            yield

    def __str__(self) -> str:
        """The program as a script that prints what it reads."""
        lines = HEADER.splitlines()
        text = "\n".join(x.text for x in self.statements)
        if not any(word in text for word in ("refused", "Output", *HARNESS)):
            lines.remove("from test.fuzz_state.harness import *")
        lines += [f"{name} = {value or repr(ONE_DEVICE)}" for name, value in self.layouts.items()]
        if "Tensor.rand" in text:
            lines.append(f"Tensor.manual_seed({SEED})")
        body = [line for x in self.statements for line in x.text.splitlines()]
        if self.settings:
            settings = ", ".join(f"{name}={value}" for name, value in self.settings)
            body = [f"with Context({settings}):", *(f"    {line}" for line in body)]
        return "\n".join([*lines, *body])


def run(
    program: Program,
    is_reference: bool = False,
    skipped: frozenset[int] = frozenset(),
    end: int | None = None,
    has_versions: bool = False,
) -> Outcome:
    """Runs the statements one by one.

    A statement of the library that raises a documented error is skipped, and so are those that use
    what it would have bound. An error inside a captured function ends the run, and so does any
    other error, and any error of the reference. The reference leaves out the statements in
    `skipped`, and ends after `end`. If the library `has_versions`, a statement must not change the
    content of one.
    """
    names, outcome = program.namespace(is_reference), Outcome()
    reference.LEAVES.clear()
    tinygrad.Tensor.manual_seed(SEED)
    missing: set[str] = set()
    for number, statement in enumerate(program.statements):
        names["see"] = lambda value, number=number: outcome.seen.append((number, plain(value)))
        needed, bound = statement.names()
        if number in skipped or needed & missing:
            outcome.skipped.add(number)
        else:
            is_checked = has_versions and statement.drawn != "write_shared_memory"
            before = versions.live_versions() if is_checked else {}
            try:
                execute(statement.text, names)
            except Exception as error:
                is_expected = isinstance(error, DOCUMENTED) and is_deliberate(error)
                if is_reference or not is_expected:
                    outcome.failure, outcome.end = error, number
                    return outcome
                outcome.raised.append((number, error))
                outcome.skipped.add(number)
                if statement.is_call:
                    end = number
            changed = versions.changed_versions(before) if is_checked else []
            if changed:
                outcome.failure, outcome.end = VersionChanged(statement.text, changed), number
                return outcome
        missing = missing | bound if number in outcome.skipped else missing - bound
        if number == end:
            break
    outcome.end = end
    return outcome


def is_deliberate(error: Exception) -> bool:
    """Whether a `raise` statement raised it, and not a check of the graph or of a replay."""
    if isinstance(error, SpecError) or "if the function runs" in str(error):
        return False
    line = traceback.extract_tb(error.__traceback__)[-1].line
    return line is not None and line.startswith("raise ")


def execute(text: str, names: dict[str, Any]) -> None:
    """Runs statements that this package built."""
    exec(text, names)


def plain(value: Any) -> Any:
    """What was read, as it is now."""
    return value.copy() if isinstance(value, np.ndarray) else value
