"""The service of one model: validated requests to prompts for the engine, and results to updates.

Input: validated requests. Output: `ChoiceUpdate`s, as tokens are generated. Invariant: the
sequences of a request end when its client stops listening.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tinygrad.apps.language.chat.reply_parser import Delta
from tinygrad.apps.language.chat.reply_reader import BegunReply, ReplyReader, reply_parser_for
from tinygrad.apps.language.chat.structured_output import (
    grammar_reply_format,
    json_reply_format,
    tool_call_format,
)
from tinygrad.apps.language.chat.template import (
    ChatError,
    ChatTemplate,
    normalize_messages,
    split_begun_reply,
)
from tinygrad.apps.language.generation.engine import (
    Engine,
    EngineClosedError,
    Finished,
    FinishReason,
    GenerationRequest,
    GenerationTask,
    QueueFullError,
)
from tinygrad.apps.language.generation.grammar import (
    Grammar,
    GrammarError,
    Rules,
    VocabularyBytes,
    json_rules,
)
from tinygrad.apps.language.generation.grammar_compiler import GrammarCompiler
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError, prompt_overflow
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.server.request_fields import ApiError
from tinygrad.apps.language.server.requests import (
    ChatRequest,
    CompletionRequest,
    RequestOptions,
    TokenizeRequest,
)
from tinygrad.apps.language.server.responses import ChoiceUpdate, Usage
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer
from tinygrad.apps.language.tokenizer.vocabulary import TokenizerError

Event = tuple[int, Generated | Finished]


@dataclass(frozen=True)
class PreparedRequest:
    """The prompts of a request, and how replies are parsed. `param` is the field of the prompts.

    `rules`, of the field `rules_param`, are to be compiled to the `grammar` of the replies. `echo`
    gives the start of the replies to a prompt by its number.
    """

    param: str
    options: RequestOptions
    tokens: list[list[int]]
    reader: Callable[[], ReplyReader]
    rules: Rules | None = None
    rules_param: str | None = None
    grammar: Grammar | None = None
    echo: Callable[[int], Echo] | None = None


@dataclass
class Echo:
    """A prompt as the start of a reply: its text, and its tokens; `missing` ones are unscored."""

    text: str
    tokens: list[Generated]
    missing: int


@dataclass(frozen=True)
class Service:
    """An engine with the tokenizer and chat template of its model; None for a model without one.

    `max_tokens` limits every reply, `defaults` are the sampling parameters that a request can
    override.
    """

    name: str
    engine: Engine
    tokenizer: SimpleTokenizer
    template: ChatTemplate | None
    defaults: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None

    def prepare_chat(self, request: ChatRequest) -> PreparedRequest:
        """The prompt of a conversation. Raises ApiError."""
        self._check_model(request.options)
        template = self.template
        if template is None:
            raise ApiError(
                400, "this model has no chat template; use /v1/completions", code="no_template"
            )
        try:
            messages, last = split_begun_reply(normalize_messages(request.messages))
            # rendering takes as long as reading
            length = sum(len(message["content"]) for message in (*messages, last))
            self._check_length(length, "messages")
            text = template.render(messages, request.tools, **request.variables)
        except ChatError as error:
            raise ApiError(400, str(error), "messages") from error
        self._check_length(len(text), "messages")
        begun = BegunReply.of_message(text, last, self.tokenizer.as_plain)
        start, rules, source = self._reply_format(request, template, begun.thinking)
        prompt = text + begun.text + start
        tokens = self.tokenizer.encode_template(prompt, add_bos=self.tokenizer.adds_bos)

        def reader() -> ReplyReader:
            # a forced call starts a part of its own
            forced = request.forced_call is not None
            before = BegunReply(thinking=begun.thinking) if forced else begun
            parser = reply_parser_for(template, before, request.tools)
            parser.push(start)
            single = not request.has_parallel_calls
            return ReplyReader(self.tokenizer, request.options.stops, parser, single)

        return PreparedRequest("messages", request.options, [tokens], reader, rules, source)

    def _reply_format(
        self, request: ChatRequest, template: ChatTemplate, thinking: bool
    ) -> tuple[str, Rules | None, str | None]:
        """The forced start of the reply, the rules of the rest, and their field."""
        name, structure = request.forced_call, request.options.structure
        if name is not None:
            found = tool_call_format(template, thinking, request.tools, name)
            source: str | None = "tools"
        elif structure.schema is not None:
            control, source = self.tokenizer.control, structure.field
            found = json_reply_format(template, thinking, request.tools, structure.schema, control)
        elif structure.grammar is not None:
            found, source = grammar_reply_format(thinking, structure.grammar), structure.field
        else:
            return "", None, None
        return found.start, found.rules, source

    async def with_grammar(self, prepared: PreparedRequest) -> PreparedRequest:
        """The request with its rules compiled, while others are served. Raises ApiError."""
        if prepared.rules is None:
            return prepared
        loop = asyncio.get_running_loop()
        try:
            grammar = await loop.run_in_executor(
                self.compiler.thread, self.compiler.compile, prepared.rules
            )
        except GrammarError as error:
            message = f"the schema or grammar cannot be followed: {error}"
            raise ApiError(400, message, prepared.rules_param) from error
        except ImportError as error:
            raise ApiError(501, str(error), prepared.rules_param, kind="server_error") from error
        return replace(prepared, grammar=grammar)

    @functools.cached_property
    def compiler(self) -> GrammarCompiler:
        """Compiles the grammars of requests."""
        return GrammarCompiler(self.tokenizer, self.engine.model.vocab_size)

    def _check_length(self, length: int, param: str) -> None:
        """Raise ApiError for a text that is longer than any that fits, before it is encoded."""
        model = self.engine.model
        if length > model.max_context * self._longest_token:
            message = prompt_overflow(
                f"{length} characters", model.max_context, model.trained_context
            )
            raise ApiError(400, message, param, "context_length_exceeded")

    @functools.cached_property
    def _longest_token(self) -> int:
        """The number of bytes of the longest token."""
        return max(map(len, VocabularyBytes(self.tokenizer, self.engine.model.vocab_size).tokens))

    def close(self) -> None:
        """End the engine, and the thread that compiles grammars."""
        self.engine.close()
        if "compiler" in vars(self):
            self.compiler.close()

    def prepare_completion(self, request: CompletionRequest) -> PreparedRequest:
        """The prompts of a completion. Raises ApiError."""
        self._check_model(request.options)
        for one in request.prompts:
            if isinstance(one, str):
                self._check_length(len(one), "prompt")
        encode = partial(self.tokenizer.encode, add_bos=self.tokenizer.adds_bos)
        tokens = [encode(one) if isinstance(one, str) else one for one in request.prompts]
        reader = partial(ReplyReader, self.tokenizer, request.options.stops)
        options = request.options
        rules, source = options.structure.grammar, options.structure.field
        if options.structure.schema is not None:
            rules = json_rules(options.structure.schema)
        echo = partial(self._echo, request, tokens) if request.echo else None
        return PreparedRequest("prompt", options, tokens, reader, rules, source, echo=echo)

    def tokens_of(self, request: TokenizeRequest) -> list[int]:
        """The tokens of a text. Raises ApiError for one that no context has room for."""
        self._check_length(len(request.text), "content")
        add_bos = request.adds_bos and self.tokenizer.adds_bos
        return self.tokenizer.encode(request.text, request.special, add_bos)

    def text_of(self, tokens: Sequence[int]) -> str:
        """The text of tokens, with that of control tokens. Raises ApiError for an unknown one."""
        self._check_tokens(tokens, "tokens")
        try:
            return self.tokenizer.decode(tokens)
        except TokenizerError as error:
            raise ApiError(400, str(error), "tokens") from error

    def _echo(self, request: CompletionRequest, tokens: list[list[int]], number: int) -> Echo:
        prompt, own = request.prompts[number], tokens[number]
        text = self.tokenizer.decode(own) if isinstance(prompt, list) else prompt
        if request.options.logprobs is None:
            return Echo(text, [], 0)
        # BOS was added, so it is no part of the text
        is_bos = isinstance(prompt, str) and self.tokenizer.adds_bos
        return Echo(text, [] if is_bos else [Generated(own[0], math.nan)], len(own) - 1)

    def _check_model(self, options: RequestOptions) -> None:
        if options.model not in (None, self.name):
            raise ApiError(
                404,
                f"there is no model {options.model!r:.80} here, only {self.name!r}",
                "model",
                "model_not_found",
            )

    def _check_tokens(self, tokens: Iterable[int], param: str) -> None:
        for token in tokens:
            if not 0 <= token < self.engine.model.vocab_size:
                raise ApiError(400, f"{token} in {param} is not a token", param)

    def start(self, prepared: PreparedRequest) -> ChoiceStream:
        """Submit all choices; called in an event loop. Raises ApiError."""
        limits = [self.engine.model.max_context, self.max_tokens, prepared.options.max_tokens]
        max_tokens = min(limit for limit in limits if limit is not None)
        ends, options = self.tokenizer.end_ids, prepared.options
        self._check_tokens(dict(options.sampling.logit_bias), "logit_bias")
        self._check_tokens(options.stop_tokens, "stop_token_ids")
        requests = [
            GenerationRequest(
                tokens,
                options.sampling_of(choice),
                max_tokens,
                options.stop_tokens if options.ignores_ends else ends | options.stop_tokens,
                prepared.grammar,
                scores_prompt=prepared.echo is not None and options.logprobs is not None,
                min_tokens=options.min_tokens,
                barred_ids=ends if options.ignores_ends else frozenset(),
            )
            for tokens in prepared.tokens
            for choice in range(options.choices)
        ]
        try:
            return ChoiceStream(self.engine, requests, prepared)
        except ValueError as error:
            too_long = isinstance(error, ContextOverflowError)
            code = "context_length_exceeded" if too_long else None
            raise ApiError(400, str(error), prepared.param, code) from error
        except QueueFullError as error:
            raise ApiError(
                429, str(error), code="queue_full", kind="rate_limit_error", retry_after_s=1
            ) from error
        except EngineClosedError as error:
            raise ApiError(503, str(error), kind="server_error") from error


class ChoiceStream:
    """The choices of a request while they are generated; `updates` yields, `cancel` ends them.

    `started` and `first_token` are times of the monotonic clock, in seconds.
    """

    def __init__(
        self, engine: Engine, requests: Sequence[GenerationRequest], prepared: PreparedRequest
    ) -> None:
        """Must be created in an event loop. Raises as `Engine.submit`."""
        self._readers = [prepared.reader() for _ in requests]
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._tasks: list[GenerationTask] = []
        self._prompt_tokens = sum(map(len, prepared.tokens))
        self._choices_per_prompt = prepared.options.choices
        self._tokens = 0
        self.started = time.monotonic()
        self.first_token: float | None = None
        try:
            for choice, request in enumerate(requests):
                self._tasks.append(engine.submit(request, partial(self._deliver, choice)))
        except Exception:
            self.cancel()
            raise
        echo, replies = prepared.echo, self._choices_per_prompt
        self._echoes = {c: echo(c // replies) for c in range(len(requests))} if echo else {}

    def _deliver(self, choice: int, event: Generated | Finished) -> None:
        """Called on the engine's thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, (choice, event))

    def cancel(self) -> None:
        """End all choices that are still being generated."""
        for task in self._tasks:
            task.cancel()

    @property
    def choices(self) -> int:
        """The number of choices."""
        return len(self._tasks)

    @property
    def usage(self) -> Usage:
        """Token counts up to now."""
        cached, count = 0, self._choices_per_prompt
        for at in range(0, len(self._tasks), count):
            # several choices of one prompt count it once: what the first of them found
            choices = self._tasks[at : at + count]
            cached += min((task.cached_tokens for task in choices if task.has_started), default=0)
        return Usage(self._prompt_tokens, self._tokens, cached)

    async def updates(self) -> AsyncIterator[ChoiceUpdate]:
        """The updates of all choices until they end. Raises ApiError if the model fails."""
        open_ = set(range(self.choices))
        try:
            while open_:
                choice, event = await self._events.get()
                if choice not in open_:
                    continue
                echo = self._echoes.get(choice)
                if echo is not None and echo.missing and isinstance(event, Generated):
                    echo.missing -= 1
                    echo.tokens.append(event)
                    continue
                update = self._update(choice, event)
                if echo is not None:
                    del self._echoes[choice]
                    update.deltas = [Delta(content=echo.text), *update.deltas]
                    update.tokens = [*echo.tokens, *update.tokens]
                    update.echoed = len(echo.tokens)
                if update.finish_reason is not None:
                    open_.discard(choice)
                    self._tasks[choice].cancel()
                yield update
        finally:
            self.cancel()

    def _update(self, choice: int, event: Generated | Finished) -> ChoiceUpdate:
        reader = self._readers[choice]
        if isinstance(event, Generated):
            self._tokens += 1
            self.first_token = self.first_token or time.monotonic()
            update = ChoiceUpdate(choice, reader.push(event), [event])
            if reader.stopped:
                update.deltas += reader.finish()
                update.finish_reason = reader.finish_reason(FinishReason.STOP)
            return update
        if event.reason in (FinishReason.ERROR, FinishReason.CANCELLED):
            raise _failure(event)
        deltas = reader.finish()
        return ChoiceUpdate(choice, deltas, [], reader.finish_reason(event.reason))


def _failure(event: Finished) -> ApiError:
    if isinstance(event.error, EngineClosedError):
        return ApiError(503, str(event.error), kind="server_error")
    if isinstance(event.error, GrammarError):
        return ApiError(400, str(event.error))
    return ApiError(500, f"the model failed: {event.error}", kind="server_error")
