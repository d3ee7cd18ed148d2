"""The arguments of `python -m tinygrad.apps.llm`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from math import prod
from typing import NoReturn

from tinygrad.apps.language.model.layouts import Devices
from tinygrad.device import Device
from tinygrad.sharding import Mesh

CACHE_DTYPES = ("float32", "float16", "bfloat16")
DEFAULT_MODEL = "smollm2:135m"
DEFAULT_PORT = 11434
DEFAULT_BENCHMARK = 64
DEFAULT_PARALLEL = 4
DEFAULT_QUEUE = 64

EXAMPLES = """examples:
  python -m tinygrad.apps.llm                              talk with a small model
  python -m tinygrad.apps.llm -m qwen3:8b --shard 4        with one that is split over four devices
  python -m tinygrad.apps.llm --prompt 'Why is the sky blue?' --max-tokens 200
  python -m tinygrad.apps.llm --raw --prompt 'Once upon a time'
  python -m tinygrad.apps.llm --serve --mesh dp=2,tp=4     OpenAI's interface, and a chat page
"""


class OneLineErrorParser(argparse.ArgumentParser):
    """One that says what is wrong in one line, not below the names of all arguments."""

    def error(self, message: str) -> NoReturn:
        """Ends the program."""
        self.exit(2, f"error: {message}; --help shows the arguments\n")


def parser() -> argparse.ArgumentParser:
    """All arguments, with what they are for."""
    found = OneLineErrorParser(
        prog="python -m tinygrad.apps.llm",
        description="Runs language models that are in GGUF files: talks on the terminal, answers "
        "one prompt, or serves them to others.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_model(found)
    _add_actions(found)
    _add_sampling(found)
    _add_server(found)
    return found


def _add_model(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("the model")
    group.add_argument(
        *("-m", "--model"),
        default=DEFAULT_MODEL,
        metavar="NAME",
        help="a name that --list shows, the path of a GGUF file, or a URL (default: %(default)s)",
    )
    group.add_argument(
        *("--max-context", "--max_context"),
        type=integer_at_least(1),
        metavar="N",
        help="the most tokens of a conversation (default: what the model is made for, up to 4096)",
    )
    group.add_argument(
        "--cache-dtype", choices=CACHE_DTYPES, default="float32",
        help="what keys and values are kept as; half the memory, a little less exact (default: "
        "%(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--device", help="where it runs, such as CPU or CUDA (default: the library's)"
    )
    layouts = group.add_mutually_exclusive_group()
    layouts.add_argument(
        "--shard",
        type=integer_at_least(1),
        metavar="N",
        help="split it over N devices: --mesh tp=N",
    )
    layouts.add_argument(
        "--mesh",
        type=mesh_sizes,
        metavar="dp=N,tp=M",
        help="devices in N groups, which share the sequences; the model is split over M in each",
    )


def _add_actions(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("what to do (without any of these: talk)")
    only = group.add_mutually_exclusive_group()
    only.add_argument("--prompt", metavar="TEXT", help="reply to it and end; - reads it from stdin")
    only.add_argument(
        "--serve",
        nargs="?",
        type=port,
        const=DEFAULT_PORT,
        metavar="PORT",
        help=f"answer requests of OpenAI's interface (default port: {DEFAULT_PORT})",
    )
    only.add_argument(
        "--benchmark",
        nargs="?",
        type=integer_at_least(1),
        const=DEFAULT_BENCHMARK,
        metavar="N",
        help=f"show how fast it reads, and writes N tokens (default: {DEFAULT_BENCHMARK})",
    )
    only.add_argument("--list", action="store_true", help="show the models that have a name")
    group.add_argument("--raw", action="store_true", help="continue --prompt, as no conversation")
    group.add_argument("--system", metavar="TEXT", help="what the model is told before all else")


def _add_sampling(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("how it writes (a request to a server may say otherwise)")
    group.add_argument(
        "--max-tokens", type=integer_at_least(1), metavar="N", help="the most tokens of a reply"
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="ends a reply; may be repeated"
    )
    group.add_argument(
        "--json", nargs="?", const="", metavar="FILE",
        help="replies are JSON, of the JSON schema in FILE if one is given",
    )  # fmt: skip
    group.add_argument(
        "--temperature",
        type=float,
        default=0.7,
        metavar="T",
        help="0 always takes the likeliest token (default: %(default)s)",
    )
    group.add_argument(
        "--top-k",
        type=integer,
        default=0,
        metavar="K",
        help="of the K likeliest only; 0: of all",
    )
    group.add_argument(
        "--top-p", type=float, default=0.95, metavar="P",
        help="of the likeliest that have this probability together (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--min-p", type=float, default=0.0, metavar="P",
        help="of those with this share of the likeliest one's probability",
    )  # fmt: skip
    group.add_argument(
        "--repetition-penalty", type=float, default=1.0, metavar="R",
        help="above 1, what was said is less likely",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=integer_at_least(0), metavar="N", help="makes replies repeatable"
    )


def _add_server(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("a server")
    group.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where it listens (default: %(default)s, for this machine only; 0.0.0.0 for others)",
    )
    group.add_argument("--api-key", metavar="KEY", help="what requests must have as bearer token")
    group.add_argument(
        "--parallel",
        type=integer_at_least(1),
        default=DEFAULT_PARALLEL,
        metavar="N",
        help="sequences that are written together (default: %(default)s)",
    )
    group.add_argument(
        "--queue",
        type=integer_at_least(1),
        default=DEFAULT_QUEUE,
        metavar="N",
        help="requests that may wait; more are refused (default: %(default)s)",
    )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Arguments, by default those of the process, checked; ends the program if they are wrong."""
    found = parser()
    wanted = found.parse_args(arguments)
    if wanted.raw and wanted.prompt is None:
        found.error("--raw continues a text: give it with --prompt")
    if wanted.raw and wanted.system:
        found.error("--system is for conversations, and --raw is none")
    if wanted.serve is not None:
        for name in ("system", "json", "stop"):
            if getattr(wanted, name) not in (None, []):
                found.error(f"--{name} is not for a server: each request to it says so itself")
    return wanted


def integer_at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number, not below `least`."""

    def checked(text: str) -> int:
        value = integer(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is below {least}")
        return value

    return checked


def integer(text: str) -> int:
    """The type of an argument that is a whole number.

    >>> integer("-12")
    -12
    """
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error


def port(text: str) -> int:
    """A port; 0 takes a free one."""
    port = integer(text)
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"{port} is no port; these are 0 to 65535")
    return port


def mesh_sizes(text: str) -> dict[str, int]:
    """The sizes of a mesh by name.

    >>> mesh_sizes("dp=2,tp=4")
    {'dp': 2, 'tp': 4}
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in ("dp", "tp") or name in sizes or not size.isdecimal() or not int(size):
            raise argparse.ArgumentTypeError(
                f"{text!r} is no mesh; give sizes for dp, tp or both, as in dp=2,tp=4"
            )
        sizes[name] = int(size)
    return sizes


def devices_from(wanted: argparse.Namespace) -> Devices:
    """The devices that arguments ask for: one, or a mesh of the first of their kind.

    Raises DeviceError if there is no such device.
    """
    base = Device.canonicalize(wanted.device)
    # opened here, before a large file is read for it
    Device[base]
    sizes: dict[str, int] = wanted.mesh or ({"tp": wanted.shard} if wanted.shard else {})
    if not sizes:
        return base
    kind = base.partition(":")[0]
    names = tuple(Device.canonicalize(f"{kind}:{at}") for at in range(prod(sizes.values())))
    return Mesh(tuple(sizes.values()), tuple(sizes), names)
