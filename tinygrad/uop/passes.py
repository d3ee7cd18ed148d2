"""The pass manager: runs passes in order, verifies forms between them, and shows their results.

Input: a program in the form that the first pass requires. Output: the program in the form that the
last pass ensures. Invariant: between two passes a program has a declared form, which `SPEC` checks.
The passes themselves are listed in `schedule/pipeline.py` and `codegen/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tinygrad.settings import DEBUG, SPEC
from tinygrad.uop.spec import SpecError

C = TypeVar("C")


class Form(Protocol):
    """What a program may contain between two passes: `uop.spec.Spec` for graphs."""

    @property
    def name(self) -> str:
        """The name of the form, for people."""

    def verify(self, program: Any) -> None:
        """Raise SpecError unless `program` has this form."""

    def size(self, program: Any) -> str:
        """The size of a program of this form: `"34 nodes"`."""

    def text(self, program: Any) -> str:
        """A program of this form as text, in full."""


@dataclass(frozen=True)
class Pass(Generic[C]):
    """One step of the compiler: `run(program, context)` takes the form `requires` to `ensures`."""

    name: str
    run: Callable[[Any, C], Any]
    requires: Form
    ensures: Form


@dataclass(frozen=True)
class PassResult:
    """One run of a pass: `subject` is the name of the kernel, or "" for a whole graph."""

    step: Pass[Any]
    subject: str
    before: Any
    after: Any

    @property
    def heading(self) -> str:
        """The name of the pass, and the sizes of the program before and after it."""
        subject = f"{self.subject}: " if self.subject else ""
        before = self.step.requires.size(self.before)
        after = self.step.ensures.size(self.after)
        return f"{subject}{self.step.name}: {before} -> {after} of the {self.step.ensures.name}"

    def __str__(self) -> str:
        if self.after is self.before:
            return f"{self.heading}, unchanged"
        return f"{self.heading}\n{self.step.ensures.text(self.after)}"


Observer = Callable[[PassResult], None]
_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observe_passes(observer: Observer) -> Iterator[None]:
    """Call `observer` after every pass that this thread runs in the block."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def are_observed() -> bool:
    """Whether passes are printed, verified or handed to an observer of this thread."""
    return DEBUG >= 5 or bool(SPEC) or bool(_observers.get())


def run_passes(passes: Sequence[Pass[C]], program: Any, context: C, subject: str = "") -> Any:
    """`program` after all of `passes`. DEBUG=5 prints the result of each.

    Raises:
        SpecError: a form is not what the pass requires or ensures (with `SPEC`).
    """
    if SPEC and passes:
        _verify(passes[0].requires, program, f"before the pass {passes[0].name!r}")
    for step in passes:
        before, program = program, step.run(program, context)
        # an unchanged program of the same form was verified before
        if SPEC and not (program is before and step.ensures is step.requires):
            _verify(step.ensures, program, f"after the pass {step.name!r}")
        show_pass(step, subject, before, program)
    return program


def show_pass(step: Pass[Any], subject: str, before: Any, after: Any) -> None:
    """Hand the result of a pass to all observers; at DEBUG=5, print it."""
    observers = _observers.get()
    if DEBUG >= 5:
        observers = (*observers, print)
    for observer in observers:
        observer(PassResult(step, subject, before, after))


def _verify(form: Form, program: Any, when: str) -> None:
    try:
        form.verify(program)
    except SpecError as error:
        raise SpecError(f"{when}, {error}") from None
