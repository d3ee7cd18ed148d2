"""The entry point of `python -m tinygrad.apps.llm`.

Input: command line arguments. Output: an exit status: 0, 1 for a failure, with one line that says
why, 2 for wrong arguments, 130 for an interrupt.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tinygrad import ranks
from tinygrad.apps.language.chat.conversation import Conversation, LoadedModel, ReplyOptions
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate
from tinygrad.apps.language.cli.arguments import (
    devices_from,
    parse_arguments,
    sampling_from,
    sequences_of,
)
from tinygrad.apps.language.cli.benchmark import benchmark
from tinygrad.apps.language.cli.terminal import talk, write
from tinygrad.apps.language.files.catalogue import CATALOGUE, locate, short_name
from tinygrad.apps.language.generation.generate import LanguageModel
from tinygrad.apps.language.generation.grammar import ANY_OBJECT, Grammar, GrammarError, Grammars
from tinygrad.apps.language.generation.recommended import recommended_sampling
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.model.followers import follow, leading
from tinygrad.apps.language.model.replicas import Replicas, load_model
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.apps.language.server.serve import serve
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer
from tinygrad.dtype import to_dtype
from tinygrad.interrupt import report_interrupt
from tinygrad.settings import DEBUG
from tinygrad.text import drop_output

DONE, FAILED, INTERRUPTED = 0, 1, 130
# errors of the user or the machine; ShardingError and TokenizerError are ValueErrors
ERRORS = (ValueError, OSError, ImportError, RuntimeError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program, by default with the arguments of the process; returns the exit status."""
    options = parse_arguments(arguments)
    _replace_unencodable()
    try:
        run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        report_interrupt()
        return INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return FAILED
    except ERRORS as error:
        if DEBUG:
            raise
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return FAILED
    return DONE


def _replace_unencodable() -> None:
    """Write characters that the encoding of the output lacks as question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _one_line(error: BaseException) -> str:
    """The message of an error in one line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def run(options: argparse.Namespace) -> None:
    """Run the action that the options name. Raises one of `ERRORS`."""
    if options.list:
        for name, source in CATALOGUE.items():
            print(f"{name:18} {source.shown}")
        return
    if options.json:
        # fail before a model is loaded
        _schema(options.json)
    if options.shard or options.mesh:
        ranks.join()
    if ranks.size() == 1:
        _act(load(options), options)
        return
    try:
        loaded = load(options)
        assert isinstance(loaded.model, Transformer | Replicas)
        if ranks.rank():
            follow(loaded.model)
            return
    except ERRORS as error:
        ranks.end_all(_one_line(error))
        raise
    with leading(loaded.model) as model:
        _act(replace(loaded, model=model), options)


def _act(loaded: LoadedModel, options: argparse.Namespace) -> None:
    """Do what the options say with a loaded model."""
    sampling = replace(loaded.sampling, **sampling_from(options))
    if options.benchmark is not None:
        batches = tuple(sorted({1, options.parallel}))
        for line in benchmark(loaded.model, options.benchmark, batches):
            print(line, flush=True)
    elif options.serve is not None:
        serve(loaded, options, sampling)
    else:
        grammar = None if options.json is None else _grammar(options.json, loaded)
        reply_options = ReplyOptions(
            sampling, options.max_tokens, tuple(options.stop), grammar, options.drop_oldest
        )
        _talk(Conversation(loaded, reply_options, options.system), options)


def load(options: argparse.Namespace) -> LoadedModel:
    """The model of the options, with its tokenizer and chat template."""
    path = locate(options.model)
    started = time.perf_counter()
    devices = devices_from(options)
    cache_dtype = None if options.cache_dtype is None else to_dtype(options.cache_dtype)
    sequences = 1 if options.serve is None and options.benchmark is None else sequences_of(options)
    model, metadata = load_model(path, options.max_context, devices, cache_dtype, sequences)
    tokenizer = SimpleTokenizer.from_gguf_kv(metadata)
    name = short_name(options.model)
    is_chat = not options.raw and options.benchmark is None
    template = _template(name, metadata, tokenizer) if is_chat else None
    elapsed_s = time.perf_counter() - started
    if sys.stderr.isatty():
        context = f"with a context of {model.max_context} tokens"
        print(f"{name} loaded in {elapsed_s:.1f} s, {context}", file=sys.stderr)
    _report_context(name, model, is_default=options.max_context is None)
    sampling = Sampling(**recommended_sampling(metadata, name))  # type: ignore[arg-type]
    return LoadedModel(name, model, tokenizer, template, sampling)


def _report_context(name: str, model: LanguageModel, is_default: bool) -> None:
    """Say so if the context is not the one that a model was trained for."""
    context, trained = model.max_context, model.trained_context
    if context > trained:
        message = (
            f"{name} was trained for contexts of {trained} tokens; beyond that, replies may make "
            "no sense"
        )
    elif context < trained and is_default:
        message = (
            f"{name} has a context of {context} of its {trained} tokens here, so that the memory "
            "holds several; --max-context sets another"
        )
    else:
        return
    if not ranks.rank():
        print(message, file=sys.stderr)


def _template(
    name: str, metadata: Mapping[str, Any], tokenizer: SimpleTokenizer
) -> ChatTemplate | None:
    """The chat template of a file; without one, a warning, as text completion still works."""
    try:
        return ChatTemplate.from_gguf_kv(metadata, tokenizer)
    except ChatError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None


def _grammar(path: str, loaded: LoadedModel) -> Grammar:
    """The grammar of a JSON schema in a file, or of any JSON object."""
    schema = _schema(path) if path else ANY_OBJECT
    return Grammars(loaded.tokenizer, loaded.model.vocab_size).of_schema(schema)


def _schema(path: str) -> Any:
    """The JSON schema in a file. Raises OSError, GrammarError."""
    try:
        return json.loads(Path(path).read_bytes())
    except ValueError as error:
        raise GrammarError(f"{path} is not a JSON schema: {error}") from error


def _talk(conversation: Conversation, options: argparse.Namespace) -> None:
    if options.prompt is None:
        conversation.loaded.required_template()
        failed = talk(conversation)
        if failed and not sys.stdin.isatty():
            raise ChatError(f"{failed} of the messages got no whole reply")
        return
    text = sys.stdin.read() if options.prompt == "-" else options.prompt
    write(conversation.continuation(text) if options.raw else conversation.reply(text))
