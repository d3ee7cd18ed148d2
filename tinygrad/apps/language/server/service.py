"""The service of one model: validated requests to prompts for the engine, and results to updates.

Input: validated requests. Output: `ChoiceUpdate`s, as tokens are generated. Invariant: the
sequences of a request end when its client stops listening.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tinygrad.apps.language.chat.reply_reader import ReplyReader, reply_parser_for
from tinygrad.apps.language.chat.structured_output import json_reply_format, tool_call_format
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate, normalize_messages
from tinygrad.apps.language.generation.engine import (
    Engine,
    EngineClosedError,
    Finished,
    FinishReason,
    GenerationRequest,
    GenerationTask,
    QueueFullError,
)
from tinygrad.apps.language.generation.grammar import Grammar, GrammarError, Grammars, json_rule
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.server.request_fields import ApiError
from tinygrad.apps.language.server.requests import ChatRequest, CompletionRequest, RequestOptions
from tinygrad.apps.language.server.responses import ChoiceUpdate, Usage
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

FORMAT = "response_format"
Event = tuple[int, Generated | Finished]


@dataclass(frozen=True)
class PreparedRequest:
    """The prompts of a request, and how replies are parsed. `param` is the field of the prompts."""

    param: str
    options: RequestOptions
    tokens: list[list[int]]
    reader: Callable[[], ReplyReader]
    grammar: Grammar | None = None


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
            text = template.render(
                normalize_messages(request.messages), request.tools, **request.variables
            )
        except ChatError as error:
            raise ApiError(400, str(error), "messages") from error
        start, grammar = self._reply_format(request, template, text)
        tokens = self.tokenizer.encode_template(text + start, add_bos=self.tokenizer.adds_bos)

        def reader() -> ReplyReader:
            parser = reply_parser_for(template, text, bool(request.tools))
            parser.push(start)
            return ReplyReader(self.tokenizer, request.options.stops, parser)

        return PreparedRequest("messages", request.options, [tokens], reader, grammar)

    def _reply_format(
        self, request: ChatRequest, template: ChatTemplate, prompt: str
    ) -> tuple[str, Grammar | None]:
        """The forced start of the reply to a prompt, and the grammar of the rest."""
        name, schema = request.forced_call, request.options.schema
        if name is not None:
            reply_format, param = tool_call_format(template, prompt, request.tools, name), "tools"
        elif schema is not None:
            control, param = self.tokenizer.control, FORMAT
            reply_format = json_reply_format(template, prompt, request.tools, schema, control)
        else:
            return "", None
        return reply_format.start, self._grammar(reply_format.rules, param)

    def _grammar(self, rules: str, param: str) -> Grammar:
        try:
            return self._grammars.of_rules(rules)
        except GrammarError as error:
            raise ApiError(400, f"the schema cannot be followed: {error}", param) from error
        except ImportError as error:
            raise ApiError(501, str(error), param, kind="server_error") from error

    @functools.cached_property
    def _grammars(self) -> Grammars:
        return Grammars(self.tokenizer, self.engine.model.vocab_size)

    def prepare_completion(self, request: CompletionRequest) -> PreparedRequest:
        """The prompts of a completion. Raises ApiError."""
        self._check_model(request.options)
        encode = partial(self.tokenizer.encode, add_bos=self.tokenizer.adds_bos)
        tokens = [encode(one) if isinstance(one, str) else one for one in request.prompts]
        reader = partial(ReplyReader, self.tokenizer, request.options.stops)
        schema = request.options.schema
        grammar = None if schema is None else self._grammar(f"start: {json_rule(schema)}", FORMAT)
        return PreparedRequest("prompt", request.options, tokens, reader, grammar)

    def _check_model(self, options: RequestOptions) -> None:
        if options.model not in (None, self.name):
            raise ApiError(
                404,
                f"there is no model {options.model!r:.80} here, only {self.name!r}",
                "model",
                "model_not_found",
            )

    def start(self, prepared: PreparedRequest) -> ChoiceStream:
        """Submit all choices; called in an event loop. Raises ApiError."""
        limits = [self.engine.model.max_context, self.max_tokens, prepared.options.max_tokens]
        max_tokens = min(limit for limit in limits if limit is not None)
        end_ids = self.tokenizer.end_ids
        requests = [
            GenerationRequest(
                tokens, prepared.options.sampling_of(choice), max_tokens, end_ids, prepared.grammar
            )
            for tokens in prepared.tokens
            for choice in range(prepared.options.choices)
        ]
        try:
            return ChoiceStream(self.engine, requests, prepared)
        except ValueError as error:
            too_long = isinstance(error, ContextOverflowError)
            code = "context_length_exceeded" if too_long else None
            raise ApiError(400, str(error), prepared.param, code) from error
        except QueueFullError as error:
            raise ApiError(429, str(error), code="queue_full", kind="rate_limit_error") from error
        except EngineClosedError as error:
            raise ApiError(503, str(error), kind="server_error") from error


class ChoiceStream:
    """The choices of a request while they are generated; `updates` yields, `cancel` ends them."""

    def __init__(
        self, engine: Engine, requests: Sequence[GenerationRequest], prepared: PreparedRequest
    ) -> None:
        """Must be created in an event loop. Raises as `Engine.submit`."""
        self._readers = [prepared.reader() for _ in requests]
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._generations: list[GenerationTask] = []
        self._prompt_tokens = sum(map(len, prepared.tokens))
        self._tokens = 0
        try:
            for choice, request in enumerate(requests):
                self._generations.append(engine.submit(request, partial(self._deliver, choice)))
        except Exception:
            self.cancel()
            raise

    def _deliver(self, choice: int, event: Generated | Finished) -> None:
        """Called on the engine's thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, (choice, event))

    def cancel(self) -> None:
        """End all choices that are still being generated."""
        for generation in self._generations:
            generation.cancel()

    @property
    def choices(self) -> int:
        """The number of choices."""
        return len(self._generations)

    @property
    def usage(self) -> Usage:
        """Token counts up to now."""
        cached = sum(generation.cached_tokens for generation in self._generations)
        # several choices of one prompt count it once
        return Usage(self._prompt_tokens, self._tokens, min(cached, self._prompt_tokens))

    async def updates(self) -> AsyncIterator[ChoiceUpdate]:
        """The updates of all choices until they end. Raises ApiError if the model fails."""
        open_ = set(range(self.choices))
        try:
            while open_:
                choice, event = await self._events.get()
                if choice not in open_:
                    continue
                update = self._update(choice, event)
                if update.finish_reason is not None:
                    open_.discard(choice)
                    self._generations[choice].cancel()
                yield update
        finally:
            self.cancel()

    def _update(self, choice: int, event: Generated | Finished) -> ChoiceUpdate:
        reader = self._readers[choice]
        if isinstance(event, Generated):
            self._tokens += 1
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
    return ApiError(500, f"the model failed: {event.error}", kind="server_error")
