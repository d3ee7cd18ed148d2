"""The program `python -m tinygrad.apps.llm`: what its arguments make it do.

In: arguments. Out: an exit status: 0, 1 for what failed, with one line that says why, 2 for
arguments that are wrong, 130 for an interrupt.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tinygrad.apps.language.chat.conversation import Conversation, LoadedModel, ReplyOptions
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate
from tinygrad.apps.language.cli.arguments import devices_from, parse_arguments
from tinygrad.apps.language.cli.benchmark import benchmark
from tinygrad.apps.language.cli.terminal import talk, write
from tinygrad.apps.language.files.catalogue import CATALOGUE, locate, short_name
from tinygrad.apps.language.generation.grammar import ANY_OBJECT, Grammar, GrammarError, Grammars
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.model.replicas import load_model
from tinygrad.apps.language.server.serve import serve
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer
from tinygrad.dtype import to_dtype
from tinygrad.settings import DEBUG

DONE, FAILED, INTERRUPTED = 0, 1, 130
# what goes wrong for reasons that are not ours; ShardingError and TokenizerError are ValueErrors
ERRORS = (ValueError, OSError, ImportError, RuntimeError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the arguments, by default those of the process, say; returns the exit status."""
    wanted = parse_arguments(arguments)
    _replace_unencodable()
    try:
        run(wanted)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # who read our output has enough, as `head` does; Python itself would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except ERRORS as error:
        if DEBUG:
            raise
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return FAILED
    return DONE


def _replace_unencodable() -> None:
    """Characters that the encoding of the output lacks are shown as question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _one_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def run(wanted: argparse.Namespace) -> None:
    """Does what was asked for. Raises one of `ERRORS`."""
    if wanted.list:
        for name, source in CATALOGUE.items():
            print(f"{name:18} {source.shown}")
        return
    sampling = Sampling(
        temperature=wanted.temperature,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        repetition_penalty=wanted.repetition_penalty,
        seed=wanted.seed,
    )
    loaded = load(wanted)
    if wanted.benchmark is not None:
        batches = tuple(sorted({1, wanted.parallel}))
        for line in benchmark(loaded.model, wanted.benchmark, batches):
            print(line, flush=True)
    elif wanted.serve is not None:
        serve(loaded, wanted, sampling)
    else:
        grammar = None if wanted.json is None else _grammar(wanted.json, loaded)
        options = ReplyOptions(sampling, wanted.max_tokens, tuple(wanted.stop), grammar)
        _talk(Conversation(loaded, options, wanted.system), wanted)


def load(wanted: argparse.Namespace) -> LoadedModel:
    """The model that was asked for, with its tokenizer and template."""
    path = locate(wanted.model)
    started = time.perf_counter()
    devices = devices_from(wanted)
    cache_dtype = to_dtype(wanted.cache_dtype)
    model, metadata = load_model(path, wanted.max_context, devices, cache_dtype)
    tokenizer = SimpleTokenizer.from_gguf_kv(metadata)
    name = short_name(wanted.model)
    talks = not wanted.raw and wanted.benchmark is None
    template = _template(name, metadata, tokenizer) if talks else None
    elapsed_s = time.perf_counter() - started
    if sys.stderr.isatty():
        print(f"{name} loaded in {elapsed_s:.1f} s", file=sys.stderr)
    return LoadedModel(name, model, tokenizer, template)


def _template(
    name: str, metadata: Mapping[str, Any], tokenizer: SimpleTokenizer
) -> ChatTemplate | None:
    """The template of a file; without one, says so and goes on, as texts can be continued."""
    try:
        return ChatTemplate.from_gguf_kv(metadata, tokenizer)
    except ChatError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def _grammar(path: str, loaded: LoadedModel) -> Grammar:
    """The grammar of JSON, of the schema in a file if there is one."""
    schema: Any = ANY_OBJECT
    if path:
        try:
            schema = json.loads(Path(path).read_bytes())
        except ValueError as error:
            raise GrammarError(f"{path} is no JSON schema: {error}") from error
    return Grammars(loaded.tokenizer, loaded.model.vocab_size).of_schema(schema)


def _talk(conversation: Conversation, wanted: argparse.Namespace) -> None:
    if wanted.prompt is None:
        conversation.loaded.required_template()
        talk(conversation)
        return
    text = sys.stdin.read() if wanted.prompt == "-" else wanted.prompt
    write(conversation.continuation(text) if wanted.raw else conversation.reply(text))
