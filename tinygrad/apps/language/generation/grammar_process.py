"""Compiles grammars on trial, in processes that can be killed.

Input: rules from outside. Output: nothing, or a `GrammarError` if they are wrong, or take too much
time or memory. Invariant: rules that pass compile in this process within the same limits.

One process keeps the vocabulary, as it takes a second to start, and forks a process for each trial.
A short schema may compile to a large grammar: `multipleOf: n` alone takes n states.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, NoReturn

from tinygrad.apps.language.generation.grammar import (
    GrammarError,
    Rules,
    VocabularyBytes,
    compiled,
)

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# processor time; COMPILE_TIMEOUT_S is longer, as a busy machine gives little of it
COMPILE_CPU_S = 2
COMPILE_TIMEOUT_S = 30.0
# time for a process to start, import this package and read a vocabulary
ANSWER_TIMEOUT_S = 120.0
NICENESS = 10
MEMORY_BYTES = 1 << 30


class GrammarProcess:
    """The process that keeps a vocabulary; it starts when needed, and again if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        # the one that the process has
        self._vocabulary: VocabularyBytes | None = None

    def check(self, rules: Rules, vocabulary: VocabularyBytes) -> None:
        """Raise GrammarError unless rules compile within the limits; ImportError as `Grammars`."""
        with self._lock:
            self._prepare(vocabulary)
            error = self._ask(rules)
        if error is not None:
            raise GrammarError(error)

    def prepare(self, vocabulary: VocabularyBytes) -> None:
        """Start the process unless it runs, with a vocabulary. Raises ImportError as `Grammars`."""
        with self._lock:
            self._prepare(vocabulary)

    def _prepare(self, vocabulary: VocabularyBytes) -> None:
        if self._process is None or not self._process.is_alive():
            self._start()
        if self._vocabulary is not vocabulary:
            error = self._ask(vocabulary)
            if error is not None:
                raise ImportError(error)
            self._vocabulary = vocabulary

    def _ask(self, question: Rules | VocabularyBytes) -> str | None:
        """The error that the process finds in `question`."""
        assert self._connection is not None
        try:
            self._connection.send(question)
            if not self._connection.poll(ANSWER_TIMEOUT_S):
                self._kill()
                return "the process that compiles it does not answer"
            error: str | None = self._connection.recv()
        except (EOFError, ConnectionError):
            self._kill()
            return "the process that compiles it has ended"
        return error

    def _start(self) -> None:
        self._kill()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # it ends with this process, however that ends: its end of the pipe is closed
        self._process = context.Process(target=_serve, args=(theirs,), name="grammars", daemon=True)
        # an interrupt reaches all processes of a terminal, also before this one can ignore it; the
        # first process starts another one, and unblocks interrupts then
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def _kill(self) -> None:
        self._vocabulary = None
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# models share it: it is needed for moments only
PROCESS = GrammarProcess()


def lower_priority() -> None:
    """Leave the processor to the engine: of this thread, and what it starts, alone on Linux."""
    os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def _serve(connection: Connection) -> None:
    """The process: an error or None for each vocabulary and each text of rules."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tokens: LLTokenizer | None = None
    size = 0
    with contextlib.suppress(EOFError):
        while True:
            question = connection.recv()
            if isinstance(question, VocabularyBytes):
                tokens, error = _try_vocabulary(question)
                size = len(question.tokens)
            else:
                assert tokens is not None
                lower_priority()
                error = _try_rules(question, tokens, size)
            connection.send(error)


def _try_vocabulary(vocabulary: VocabularyBytes) -> tuple[LLTokenizer | None, str | None]:
    """The vocabulary as llguidance takes it, or why that cannot be imported."""
    try:
        return vocabulary.tokens_of_llguidance(), None
    except ImportError as caught:
        return None, str(caught)


def _try_rules(rules: Rules, tokens: LLTokenizer, size: int) -> str | None:
    """The error of rules, from a process of their own."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        _compile(rules, tokens, size, sending)
    sending.close()
    with receiving:
        try:
            if receiving.poll(COMPILE_TIMEOUT_S):
                error: str | None = receiving.recv()
            else:
                error = f"it takes longer than {COMPILE_TIMEOUT_S:g} s to compile"
        except EOFError:
            return _why_it_ended(os.waitpid(child, 0)[1])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return error


def _why_it_ended(status: int) -> str:
    """The error of a trial whose process ended with a status before it sent one."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return f"it takes longer than {COMPILE_CPU_S} s to compile"
    return "it takes too much memory to compile"


def _compile(rules: Rules, tokens: LLTokenizer, size: int, sending: Connection) -> NoReturn:
    """The forked process: send the error of rules, and end."""
    try:
        _limit_memory()
        # it ends by itself, even if its parent is gone
        resource.setrlimit(resource.RLIMIT_CPU, (COMPILE_CPU_S, COMPILE_CPU_S + 1))
        error = None
        try:
            compiled(rules, tokens, size)
        except (ImportError, GrammarError) as caught:
            error = str(caught)
        sending.send(error)
    finally:
        os._exit(0)


def _limit_memory() -> None:
    """Let the process map `MEMORY_BYTES` more than it has now; Linux alone enforces this."""
    if sys.platform != "linux":
        return
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = used + MEMORY_BYTES
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
