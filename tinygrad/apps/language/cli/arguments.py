"""The command line arguments of `python -m tinygrad.apps.llm`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from math import prod
from typing import Any, NoReturn

from tinygrad.apps.language.cli.argument_types import (
    integer,
    integer_at_least,
    mesh_sizes,
    number,
    number_from_zero,
    port,
)
from tinygrad.apps.language.files.catalogue import CATALOGUE
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.model.layouts import Devices
from tinygrad.apps.language.server.refusals import REFUSED_PER_SECOND
from tinygrad.device import Device
from tinygrad.sharding import Mesh

CACHE_DTYPES = ("float32", "float16", "bfloat16")
DEFAULT_MODEL = "smollm2:135m"
DEFAULT_PORT = 11434
DEFAULT_BENCHMARK = 64
DEFAULT_PARALLEL = 4
# MiB
DEFAULT_HOST_CACHE = 1024
DEFAULT_QUEUE = 64
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")

EXAMPLES = """examples:
  python -m tinygrad.apps.llm                              chat with a small model
  python -m tinygrad.apps.llm -m qwen3:8b --shard 4        with one sharded over four devices
  python -m tinygrad.apps.llm 'Why is the sky blue?' --max-tokens 200
  python -m tinygrad.apps.llm --raw --prompt 'Once upon a time'
  python -m tinygrad.apps.llm --serve --mesh dp=2,tp=4     OpenAI's API, and a chat page
"""


class OneLineErrorParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"error: {message}; --help shows the arguments\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    parser = OneLineErrorParser(
        prog="python -m tinygrad.apps.llm",
        description="Runs language models of GGUF files: chats on the terminal, answers one "
        "prompt, or serves OpenAI's API.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    _add_model(parser)
    _add_actions(parser)
    _add_sampling(parser)
    _add_server(parser)
    return parser


def _version() -> str:
    """The version of the installed package."""
    try:
        return version("tinygrad-sharding")
    except PackageNotFoundError:
        return "of a source folder that is not installed"


def sequences_of(options: argparse.Namespace) -> int:
    """The number of sequences whose KV caches are kept."""
    sequences: int = max(options.parallel, options.slots or 0)
    return sequences


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
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
        help="maximum context length in tokens (default: that of the model, or what "
        "half of the memory has room for in as many sequences)",
    )
    group.add_argument(
        "--cache-dtype", choices=CACHE_DTYPES,
        help="dtype of the KV cache; 16 bits halve its memory, and are a little less exact "
        "(default: float16, or float32 with LLM_EXACT=1)",
    )  # fmt: skip
    group.add_argument("--device", help="device kind, such as CPU or CUDA (default: the library's)")
    layouts = group.add_mutually_exclusive_group()
    layouts.add_argument(
        "--shard",
        type=integer_at_least(1),
        metavar="N",
        help="tensor parallel over N devices: --mesh tp=N",
    )
    layouts.add_argument(
        "--mesh",
        type=mesh_sizes,
        metavar="dp=N,tp=M",
        help="data parallel over N groups of devices, tensor parallel over M devices in each",
    )


def _add_actions(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("actions (default: chat on the terminal)")
    only = group.add_mutually_exclusive_group()
    only.add_argument("text", nargs="?", metavar="TEXT", help="the same as --prompt TEXT")
    only.add_argument("--prompt", metavar="TEXT", help="reply and exit; - reads it from stdin")
    only.add_argument(
        "--serve",
        nargs="?",
        type=port,
        const=DEFAULT_PORT,
        metavar="PORT",
        help=f"serve OpenAI's API (default port: {DEFAULT_PORT})",
    )
    only.add_argument(
        "--benchmark",
        nargs="?",
        type=integer_at_least(1),
        const=DEFAULT_BENCHMARK,
        metavar="N",
        help=f"measure prefill, and decoding of N tokens (default: {DEFAULT_BENCHMARK})",
    )
    only.add_argument("--list", action="store_true", help="list the models that have a name")
    group.add_argument(
        "--raw", action="store_true", help="continue --prompt without a chat template"
    )
    group.add_argument("--system", metavar="TEXT", help="system prompt")
    group.add_argument(
        "--drop-oldest",
        action="store_true",
        help="when the context is full, go on without the oldest messages (default: an error)",
    )


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "sampling parameters",
        "Those not given are the ones that the file, or else the catalogue, recommends for the "
        "model. Requests to a server can override them.",
    )
    group.add_argument(
        "--max-tokens",
        type=integer_at_least(1),
        metavar="N",
        help="maximum tokens of a reply",
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="stop string; may be repeated"
    )
    group.add_argument(
        "--json", nargs="?", const="", metavar="FILE",
        help="structured output: JSON, by the JSON schema in FILE if one is given",
    )  # fmt: skip
    group.add_argument("--temperature", type=number, metavar="T", help="0 is greedy")
    group.add_argument(
        "--top-k", type=integer, metavar="K", help="sample from the K likeliest tokens; 0: from all"
    )
    group.add_argument(
        "--top-p",
        type=number,
        metavar="P",
        help="sample from the likeliest tokens of this total probability",
    )
    group.add_argument(
        "--min-p",
        type=number,
        metavar="P",
        help="sample from tokens with at least this fraction of the largest probability",
    )
    group.add_argument(
        "--repetition-penalty",
        type=number,
        metavar="R",
        help="above 1, tokens of the sequence are less likely",
    )
    group.add_argument(
        "--seed", type=integer_at_least(0), metavar="N", help="makes sampling reproducible"
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="listening address (default: %(default)s, this machine only; 0.0.0.0: all)",
    )
    keys = group.add_mutually_exclusive_group()
    keys.add_argument(
        "--api-key",
        metavar="KEY",
        help="the bearer token that requests must have; other users of this machine see arguments, "
        "so prefer a file, or the variable LLM_API_KEY",
    )
    keys.add_argument("--api-key-file", metavar="FILE", help="the file with the bearer token")
    group.add_argument("--alias", metavar="NAME", help="name of the model in the API")
    group.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME",
        help="a host name that requests may be sent to; may be repeated (default: this machine's, "
        "or any with --host)",
    )  # fmt: skip
    group.add_argument(
        "--cors-origin", action="append", default=[], metavar="ORIGIN",
        help="a web site whose pages may use the server; may be repeated",
    )  # fmt: skip
    group.add_argument("--tls-cert", metavar="FILE", help="certificate chain, for https")
    group.add_argument("--tls-key", metavar="FILE", help="private key of the certificate")
    _add_limits(group)


def _add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--parallel",
        type=integer_at_least(1),
        default=DEFAULT_PARALLEL,
        metavar="N",
        help="maximum batch size of decoding (default: %(default)s)",
    )
    group.add_argument(
        "--slots",
        type=integer_at_least(1),
        metavar="N",
        help="sequences whose KV caches are kept, running or not (default: as --parallel)",
    )
    group.add_argument(
        "--host-cache",
        type=integer_at_least(0),
        default=DEFAULT_HOST_CACHE,
        metavar="MIB",
        help="host memory for the KV caches of sequences without a slot (default: %(default)s)",
    )
    group.add_argument(
        "--queue",
        type=integer_at_least(1),
        default=DEFAULT_QUEUE,
        metavar="N",
        help="maximum number of waiting requests; more are refused (default: %(default)s)",
    )
    group.add_argument(
        "--refused-per-second",
        type=number_from_zero,
        default=REFUSED_PER_SECOND,
        metavar="N",
        help="refused requests of one address that get their errors at once; the errors of more "
        "are held back, so that bad requests do not slow the others (default: %(default)g; 0: no "
        "limit)",
    )


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse and check arguments, by default those of the process; exits if they are wrong."""
    parser = make_parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(_about_unknown(options.text, unknown))
    if options.text is not None:
        if options.text.lower() in CATALOGUE:
            parser.error(f"to choose a model, give -m {options.text}")
        options.prompt = options.text
    if options.raw and options.prompt is None:
        parser.error("--raw continues a text: give it with --prompt")
    if options.raw and options.system:
        parser.error("--system needs a chat template, and --raw uses none")
    if options.tls_key and not options.tls_cert:
        parser.error("--tls-key needs --tls-cert")
    groups, sequences = (options.mesh or {}).get("dp", 1), sequences_of(options)
    if groups > sequences:
        parser.error(
            f"--mesh dp={groups} has more groups of devices than there are sequences, {sequences}: "
            f"give --parallel {groups}, or dp={sequences}"
        )
    if options.serve is not None:
        for name in ("system", "json", "stop"):
            if getattr(options, name) not in (None, []):
                parser.error(f"--{name} is not for a server: it is a parameter of each request")
    try:
        Sampling(**sampling_from(options))
    except ValueError as error:
        parser.error(str(error))
    return options


def _about_unknown(text: str | None, unknown: Sequence[str]) -> str:
    """The error for unknown arguments, which are often words of a prompt without quotes."""
    words = [word for word in (text, *unknown) if word]
    is_prompt = not any(word.startswith("-") for word in words)
    hint = f"; quote a prompt of several words: '{' '.join(words)}'" if is_prompt else ""
    return f"unrecognized arguments: {' '.join(unknown)}{hint}"


def sampling_from(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters of `Sampling` that the options give."""
    values = {name: getattr(options, name) for name in SAMPLING}
    return {name: value for name, value in values.items() if value is not None}


def devices_from(options: argparse.Namespace) -> Devices:
    """The devices of the options: one, or a mesh of the first ones of their kind.

    Raises DeviceError if there is no such device.
    """
    base = Device.canonicalize(options.device)
    # fail before a large file is downloaded
    Device[base]
    sizes: dict[str, int] = options.mesh or ({"tp": options.shard} if options.shard else {})
    if not sizes:
        return base
    kind = base.partition(":")[0]
    names = tuple(Device.canonicalize(f"{kind}:{at}") for at in range(prod(sizes.values())))
    return Mesh(tuple(sizes.values()), tuple(sizes), names)
