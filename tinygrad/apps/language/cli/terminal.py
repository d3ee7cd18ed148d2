"""Chat on the terminal.

Input: lines that are typed, or piped in. Output: replies as they are generated, and nothing else on
standard output. Control-C stops a reply, Control-D exits.
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

HELP = """/new         starts a new conversation
/system TEXT starts a new conversation with this system prompt
/system      shows the system prompt
/help        shows this
/bye         exits, as /quit and Control-D do; Control-C stops a reply
A line that ends with a backslash continues on the next."""
HISTORY_LINES = 1000


def talk(conversation: Conversation) -> int:
    """Read messages and write replies until the input ends; returns how many replies failed."""
    failed = 0
    with _history():
        if sys.stdin.isatty():
            print(f"{conversation.loaded.name}; /help lists the commands", file=sys.stderr)
        while (line := _read()) is not None:
            is_command = line.startswith("/")
            if is_command and not _command(conversation, line):
                break
            if not is_command and line.strip() and not _reply(conversation, line):
                failed += 1
    return failed


def write(deltas: Iterable[Delta]) -> None:
    """Write a reply as it is generated; reasoning is grey on a terminal, else left out."""
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


def _reply(conversation: Conversation, line: str) -> bool:
    """Write the reply to a message; returns whether it is complete."""
    try:
        write(conversation.reply(line))
    except KeyboardInterrupt:
        print(colored(" (stopped)", "BLACK") if sys.stdout.isatty() else "")
        return True
    except ContextOverflowError as error:
        print(
            f"{error}; /new starts again, --max-context makes room, --drop-oldest forgets",
            file=sys.stderr,
        )
    except ChatError as error:
        print(error, file=sys.stderr)
    else:
        return True
    return False


def _command(conversation: Conversation, line: str) -> bool:
    """Execute a command; returns whether the chat goes on."""
    name, _, rest = line.partition(" ")
    match name:
        case "/bye" | "/quit" | "/exit":
            return False
        case "/new":
            conversation.messages.clear()
        case "/system" if rest:
            conversation.system = rest
            conversation.messages.clear()
        case "/system":
            print(conversation.system or "(that of the chat template)", file=sys.stderr)
        case "/help":
            print(HELP, file=sys.stderr)
        case _:
            print(f"there is no command {name}; /help lists the commands", file=sys.stderr)
    return True


def _read() -> str | None:
    """The next message, of one or more lines; None at the end of the input."""
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
    """Input history by the arrow keys, where Python has `readline`."""
    try:
        import readline
    except ImportError:
        # Python for Windows has none
        yield
        return
    # text that is pasted is one message, also if it has several lines
    readline.parse_and_bind("set enable-bracketed-paste on")
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
