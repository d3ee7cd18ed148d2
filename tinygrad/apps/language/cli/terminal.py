"""Talking with a model on a terminal.

In: lines that are typed, or piped in. Out: replies as they are written, and nothing else on
standard output. Control-C stops a reply, Control-D ends.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator

from tinygrad.apps.language.chat.conversation import Conversation
from tinygrad.apps.language.chat.reply_parser import Delta
from tinygrad.apps.language.chat.template import ChatError
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError
from tinygrad.settings import cache_directory
from tinygrad.text import colored

HELP = """/new         forgets the conversation
/system TEXT sets what the model is told before it; without TEXT, shows it
/help        shows this
/quit        ends, as Control-D does; Control-C stops a reply
A line that ends with a backslash goes on with the next."""
HISTORY_LINES = 1000


def talk(conversation: Conversation) -> None:
    """Reads messages and writes replies until the input ends."""
    with _history():
        if sys.stdin.isatty():
            print(f"{conversation.loaded.name}; /help shows what else there is", file=sys.stderr)
        while (line := _read()) is not None:
            if line.startswith("/"):
                if not _command(conversation, line):
                    return
            elif line.strip():
                _reply(conversation, line)


def write(deltas: Iterable[Delta]) -> None:
    """Writes what a model says as it comes; its reasoning is grey on a terminal, else left out."""
    on_terminal = sys.stdout.isatty()
    reasoned = False
    for delta in deltas:
        if delta.reasoning and on_terminal:
            reasoned = True
            print(colored(delta.reasoning, "BLACK"), end="", flush=True)
        if delta.content:
            print("\n\n" * reasoned + delta.content, end="", flush=True)
            reasoned = False
    print(flush=True)


def _reply(conversation: Conversation, line: str) -> None:
    try:
        write(conversation.reply(line))
    except KeyboardInterrupt:
        print(colored(" (stopped)", "BLACK") if sys.stdout.isatty() else "")
    except ContextOverflowError as error:
        print(f"{error}; /new starts again", file=sys.stderr)
    except ChatError as error:
        print(error, file=sys.stderr)


def _command(conversation: Conversation, line: str) -> bool:
    """Does what a command says; False for the one that ends."""
    name, _, rest = line.partition(" ")
    match name:
        case "/quit" | "/exit":
            return False
        case "/new":
            conversation.messages.clear()
        case "/system" if rest:
            conversation.system = rest
            conversation.messages.clear()
        case "/system":
            print(conversation.system or "(what the model's template says)", file=sys.stderr)
        case "/help":
            print(HELP, file=sys.stderr)
        case _:
            print(f"there is no {name}; /help shows what there is", file=sys.stderr)
    return True


def _read() -> str | None:
    """The next message, of one line or more; None at the end of the input."""
    lines: list[str] = []
    while True:
        try:
            line = input(("you> ", "...> ")[bool(lines)] if sys.stdin.isatty() else "")
        except EOFError:
            if sys.stdin.isatty():
                print()
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            print()
            lines.clear()
            continue
        lines.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            return "\n".join(lines)


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Lines of before, by the arrow keys, where the terminal has them."""
    try:
        import readline
    except ImportError:
        # Python for Windows has none
        yield
        return
    path = cache_directory() / "language" / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(HISTORY_LINES)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
