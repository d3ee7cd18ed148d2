"""Answers of OpenAI's interface: what came of a request, as JSON.

In: `ChoiceUpdate`s of the replies. Out: objects for one answer, or for the chunks of a stream.
The interface: https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygrad.apps.language.chat.reply_parser import Delta, ToolCall
from tinygrad.apps.language.generation.sampling import Generated
from tinygrad.apps.language.server.request_fields import ApiError
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

Json = dict[str, Any]

# JSON has no infinity
MIN_LOGPROB = -9999.0


@dataclass
class Usage:
    """Counts of tokens; `cached` ones of the prompts had been read before."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def json(self) -> Json:
        """As answers have it."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


@dataclass
class ChoiceUpdate:
    """What is new in one of the replies; `finish_reason` if it is its end."""

    choice: int
    deltas: list[Delta]
    tokens: list[Generated]
    finish_reason: str | None = None


def error_json(error: ApiError) -> Json:
    """An error as clients expect it.

    >>> error_json(ApiError(404, "no such model", "model", "model_not_found"))["error"]["code"]
    'model_not_found'
    """
    return {
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": error.param,
            "code": error.code,
        }
    }


def model_json(name: str, created: int) -> Json:
    """A model as `/v1/models` lists it."""
    return {"id": name, "object": "model", "created": created, "owned_by": "tinygrad"}


class ApiResponse(ABC):
    """What all answers to one request have: a number, the time and the model."""

    prefix: ClassVar[str]
    chunk_object: ClassVar[str]
    whole_object: ClassVar[str]

    def __init__(self, model: str, tokenizer: SimpleTokenizer, shows_logprobs: bool) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.shows_logprobs = shows_logprobs
        self.id = secrets.token_hex(12)
        self.created = int(time.time())
        # how many calls each reply has
        self._calls: dict[int, int] = {}

    def _enveloped(self, kind: str, choices: Sequence[Json], usage: Usage | None) -> Json:
        found: Json = {
            "id": f"{self.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }
        return found if usage is None else found | {"usage": usage.json()}

    def start(self, choice: int) -> list[Json]:
        """The chunks before the first step of a reply."""
        return []

    @abstractmethod
    def chunk(self, step: ChoiceUpdate) -> list[Json]:
        """The chunks that a step gives."""

    def usage_chunk(self, usage: Usage) -> Json:
        """The chunk after all replies."""
        return self._enveloped(self.chunk_object, [], usage)

    def whole(self, steps: Sequence[ChoiceUpdate], choices: int, usage: Usage) -> Json:
        """One answer from all steps of all replies."""
        found = []
        for choice in range(choices):
            own = [step for step in steps if step.choice == choice]
            deltas = [delta for step in own for delta in step.deltas]
            tokens = [token for step in own for token in step.tokens]
            found.append(self._choice(ChoiceUpdate(choice, deltas, tokens, own[-1].finish_reason)))
        return self._enveloped(self.whole_object, found, usage)

    @abstractmethod
    def _choice(self, step: ChoiceUpdate) -> Json:
        """A whole reply."""

    def _text(self, token: int) -> str:
        return self.tokenizer.piece(token, special=True).decode("utf-8", "replace")


class ChatResponse(ApiResponse):
    """Answers of `/v1/chat/completions`."""

    prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def start(self, choice: int) -> list[Json]:
        return [self._delta(choice, {"role": "assistant", "content": ""})]

    def chunk(self, step: ChoiceUpdate) -> list[Json]:
        parts = [self._part(step.choice, delta) for delta in step.deltas]
        if not parts and self.shows_logprobs and step.tokens:
            # of a token whose text is held back
            parts = [{"content": ""}]
        chunks = [self._delta(step.choice, part) for part in parts]
        if chunks and self.shows_logprobs:
            chunks[0]["choices"][0]["logprobs"] = self._logprobs(step.tokens)
        if step.finish_reason is not None:
            chunks.append(self._delta(step.choice, {}, step.finish_reason))
        return chunks

    def _delta(self, choice: int, delta: Json, finish_reason: str | None = None) -> Json:
        found = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._enveloped(self.chunk_object, [found], None)

    def _part(self, choice: int, delta: Delta) -> Json:
        if delta.call:
            number = self._calls.get(choice, 0)
            self._calls[choice] = number + 1
            return {"tool_calls": [{"index": number, **_call_json(delta.call)}]}
        if delta.reasoning:
            return {"reasoning_content": delta.reasoning}
        return {"content": delta.content}

    def _choice(self, step: ChoiceUpdate) -> Json:
        content = "".join(delta.content for delta in step.deltas)
        reasoning = "".join(delta.reasoning for delta in step.deltas)
        calls = [_call_json(delta.call) for delta in step.deltas if delta.call]
        message: Json = {"role": "assistant", "content": content, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message |= {"tool_calls": calls, "content": content or None}
        return {
            "index": step.choice,
            "message": message,
            "logprobs": self._logprobs(step.tokens) if self.shows_logprobs else None,
            "finish_reason": step.finish_reason,
        }

    def _logprobs(self, tokens: Sequence[Generated]) -> Json:
        return {
            "content": [
                self._likely(one.token, one.logprob)
                | {"top_logprobs": [self._likely(*likely) for likely in one.top or ()]}
                for one in tokens
            ],
            "refusal": None,
        }

    def _likely(self, token: int, logprob: float) -> Json:
        data = self.tokenizer.piece(token, special=True)
        likely = max(logprob, MIN_LOGPROB)
        return {"token": self._text(token), "logprob": likely, "bytes": list(data)}


class CompletionResponse(ApiResponse):
    """Answers of `/v1/completions`."""

    prefix = "cmpl"
    chunk_object = whole_object = "text_completion"

    def chunk(self, step: ChoiceUpdate) -> list[Json]:
        return [self._enveloped(self.chunk_object, [self._choice(step)], None)]

    def _choice(self, step: ChoiceUpdate) -> Json:
        return {
            "index": step.choice,
            "text": "".join(delta.content for delta in step.deltas),
            "logprobs": self._logprobs(step.tokens) if self.shows_logprobs else None,
            "finish_reason": step.finish_reason,
        }

    def _logprobs(self, tokens: Sequence[Generated]) -> Json:
        texts = [self._text(one.token) for one in tokens]
        return {
            "tokens": texts,
            "token_logprobs": [max(one.logprob, MIN_LOGPROB) for one in tokens],
            "top_logprobs": [
                {self._text(token): max(found, MIN_LOGPROB) for token, found in one.top or ()}
                for one in tokens
            ],
            "text_offset": [sum(map(len, texts[:place])) for place in range(len(texts))],
        }


def _call_json(call: ToolCall) -> Json:
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
