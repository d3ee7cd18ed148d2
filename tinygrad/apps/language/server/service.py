"""What a server does with a request: prompts for the engine, and what comes of them.

In: checked requests. Out: `ChoiceUpdate`s of the replies, as they come. What stays true: who stops
listening ends its sequences.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tinygrad.apps.language.chat.reply_reader import ReplyReader, reply_parser_for
from tinygrad.apps.language.chat.structured_output import json_reply_format, tool_call_format
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate, normalized_messages
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
    """What is to be continued, and how each of the replies is read. `param` is where it came in."""

    param: str
    wanted: RequestOptions
    tokens: list[list[int]]
    reader: Callable[[], ReplyReader]
    grammar: Grammar | None = None


@dataclass(frozen=True)
class Service:
    """A model with what it takes to talk to it. `template` is None if it only continues text.

    `max_tokens` bounds every reply, `defaults` are for what a request leaves open.
    """

    name: str
    engine: Engine
    tokenizer: SimpleTokenizer
    template: ChatTemplate | None
    defaults: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None

    def prepare_chat(self, request: ChatRequest) -> PreparedRequest:
        """The prompt of a prepare_chat. Raises ApiError."""
        self._check_model(request.wanted)
        template = self.template
        if template is None:
            raise ApiError(
                400, "this model has no chat template; use /v1/completions", code="no_template"
            )
        try:
            text = template.render(
                normalized_messages(request.messages), request.tools, **request.variables
            )
        except ChatError as error:
            raise ApiError(400, str(error), "messages") from error
        start, grammar = self._reply_format(request, template, text)
        tokens = self.tokenizer.encode_template(text + start, add_bos=self.tokenizer.adds_bos)

        def reader() -> ReplyReader:
            parser = reply_parser_for(template, text, bool(request.tools))
            parser.push(start)
            return ReplyReader(self.tokenizer, request.wanted.stops, parser)

        return PreparedRequest("messages", request.wanted, [tokens], reader, grammar)

    def _reply_format(
        self, request: ChatRequest, template: ChatTemplate, prompt: str
    ) -> tuple[str, Grammar | None]:
        """How the reply to a prompt starts, and what the rest of it must follow."""
        name, schema = request.forced_call, request.wanted.schema
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
        """The prompts of prepare_completion to continue. Raises ApiError."""
        self._check_model(request.wanted)
        encode = partial(self.tokenizer.encode, add_bos=self.tokenizer.adds_bos)
        tokens = [encode(one) if isinstance(one, str) else one for one in request.prompts]
        reader = partial(ReplyReader, self.tokenizer, request.wanted.stops)
        schema = request.wanted.schema
        grammar = None if schema is None else self._grammar(f"start: {json_rule(schema)}", FORMAT)
        return PreparedRequest("prompt", request.wanted, tokens, reader, grammar)

    def _check_model(self, wanted: RequestOptions) -> None:
        if wanted.model not in (None, self.name):
            raise ApiError(
                404,
                f"there is no model {wanted.model!r:.80} here, only {self.name!r}",
                "model",
                "model_not_found",
            )

    def start(self, prompts: PreparedRequest) -> ChoiceStream:
        """Starts to write, in an event loop. Raises ApiError."""
        limits = [self.engine.model.max_context, self.max_tokens, prompts.wanted.max_tokens]
        most = min(limit for limit in limits if limit is not None)
        end_ids = self.tokenizer.end_ids
        requests = [
            GenerationRequest(
                tokens, prompts.wanted.sampling_of(choice), most, end_ids, prompts.grammar
            )
            for tokens in prompts.tokens
            for choice in range(prompts.wanted.choices)
        ]
        try:
            return ChoiceStream(self.engine, requests, prompts)
        except ValueError as error:
            too_long = isinstance(error, ContextOverflowError)
            code = "context_length_exceeded" if too_long else None
            raise ApiError(400, str(error), prompts.param, code) from error
        except QueueFullError as error:
            raise ApiError(429, str(error), code="queue_full", kind="rate_limit_error") from error
        except EngineClosedError as error:
            raise ApiError(503, str(error), kind="server_error") from error


class ChoiceStream:
    """Replies that are being written; `steps` gives them, `cancel` ends them."""

    def __init__(
        self, engine: Engine, requests: Sequence[GenerationRequest], prompts: PreparedRequest
    ) -> None:
        """To be made in an event loop. Raises what `Engine.submit` does."""
        self._readers = [prompts.reader() for _ in requests]
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._generations: list[GenerationTask] = []
        self._prompt_tokens = sum(map(len, prompts.tokens))
        self._tokens = 0
        try:
            for choice, request in enumerate(requests):
                self._generations.append(engine.submit(request, partial(self._deliver, choice)))
        except Exception:
            self.cancel()
            raise

    def _deliver(self, choice: int, event: Generated | Finished) -> None:
        """On the engine's thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, (choice, event))

    def cancel(self) -> None:
        """Ends all that is still being written."""
        for generation in self._generations:
            generation.cancel()

    @property
    def choices(self) -> int:
        """How many replies there are."""
        return len(self._generations)

    @property
    def usage(self) -> Usage:
        """Counts up to now."""
        cached = sum(generation.cached_tokens for generation in self._generations)
        # several replies to one prompt count it once
        return Usage(self._prompt_tokens, self._tokens, min(cached, self._prompt_tokens))

    async def steps(self) -> AsyncIterator[ChoiceUpdate]:
        """What is new in the replies, until all have ended. Raises ApiError if the model fails."""
        open_ = set(range(self.choices))
        try:
            while open_:
                choice, event = await self._events.get()
                if choice not in open_:
                    continue
                step = self._update(choice, event)
                if step.finish_reason is not None:
                    open_.discard(choice)
                    self._generations[choice].cancel()
                yield step
        finally:
            self.cancel()

    def _update(self, choice: int, event: Generated | Finished) -> ChoiceUpdate:
        reader = self._readers[choice]
        if isinstance(event, Generated):
            self._tokens += 1
            step = ChoiceUpdate(choice, reader.push(event), [event])
            if reader.stopped:
                step.deltas += reader.finish()
                step.finish_reason = reader.finish_reason(FinishReason.STOP)
            return step
        if event.reason in (FinishReason.ERROR, FinishReason.CANCELLED):
            raise _failure(event)
        deltas = reader.finish()
        return ChoiceUpdate(choice, deltas, [], reader.finish_reason(event.reason))


def _failure(event: Finished) -> ApiError:
    if isinstance(event.error, EngineClosedError):
        return ApiError(503, str(event.error), kind="server_error")
    return ApiError(500, f"the model failed: {event.error}", kind="server_error")
