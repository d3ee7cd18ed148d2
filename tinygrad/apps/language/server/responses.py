"""Responses of OpenAI's API as JSON, whole or as the chunks of a stream.

Input: the `ChoiceUpdate`s of a request. Output: JSON objects.
The API: https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import math
import secrets
import string
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygrad.apps.language.chat.reply_parser import Delta
from tinygrad.apps.language.chat.tool_calls import ToolCall
from tinygrad.apps.language.generation.generate import LanguageModel
from tinygrad.apps.language.generation.sampling import Generated
from tinygrad.apps.language.server.request_fields import ApiError
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer, TextStream

Json = dict[str, Any]

ID_CHARACTERS = string.ascii_letters + string.digits
# JSON has no infinity
MIN_LOGPROB = -9999.0


@dataclass
class Usage:
    """Token counts; `cached` tokens of the prompts were in a KV cache already."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def json(self) -> Json:
        """The `usage` object."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


@dataclass
class ChoiceUpdate:
    """New parts and tokens of one choice, with a `finish_reason` at its end.

    The first `echoed` tokens are those of the prompt.
    """

    choice: int
    deltas: list[Delta]
    tokens: list[Generated]
    finish_reason: str | None = None
    echoed: int = 0


def error_json(error: ApiError) -> Json:
    """The error object of OpenAI's API.

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


def model_json(name: str, created: int, model: LanguageModel) -> Json:
    """A model in the list of `/v1/models`; its context has the names of vLLM and of llama.cpp."""
    sizes = {
        "n_ctx": model.max_context,
        "n_ctx_train": model.trained_context,
        "n_vocab": model.vocab_size,
    }
    found = {"id": name, "object": "model", "created": created, "owned_by": "tinygrad"}
    return found | {"max_model_len": model.max_context, "meta": sizes}


def tokens_json(tokens: Sequence[int], tokenizer: SimpleTokenizer | None) -> Json:
    """The response of `/tokenize`; with a tokenizer, each token has its text, or its bytes."""
    shown: list[Any] = list(tokens)
    if tokenizer is not None:
        pieces = [tokenizer.piece(token, special=True) for token in tokens]
        shown = [{"id": t, "piece": _piece(one)} for t, one in zip(tokens, pieces, strict=True)]
    return {"tokens": shown, "count": len(shown)}


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


class ApiResponse(ABC):
    """Builds the response to one request, with its id, time and model."""

    prefix: ClassVar[str]
    chunk_object: ClassVar[str]
    whole_object: ClassVar[str]

    def __init__(self, model: str, tokenizer: SimpleTokenizer, shows_logprobs: bool) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.shows_logprobs = shows_logprobs
        self.id = secrets.token_hex(12)
        self.created = int(time.time())
        # the number of tool calls of each choice
        self._calls: dict[int, int] = {}

    def _envelope(self, kind: str, choices: Sequence[Json], usage: Usage | None) -> Json:
        found: Json = {
            "id": f"{self.prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }
        return found if usage is None else found | {"usage": usage.json()}

    def start(self, choice: int) -> list[Json]:
        """The chunks before the first update of a choice."""
        return []

    @abstractmethod
    def chunk(self, update: ChoiceUpdate) -> list[Json]:
        """The chunks of an update."""

    def usage_chunk(self, usage: Usage) -> Json:
        """The chunk after all choices."""
        return self._envelope(self.chunk_object, [], usage)

    def whole(self, updates: Sequence[ChoiceUpdate], choices: int, usage: Usage) -> Json:
        """The whole response from all updates of all choices."""
        found = []
        for choice in range(choices):
            own = [update for update in updates if update.choice == choice]
            deltas = [delta for update in own for delta in update.deltas]
            tokens = [token for update in own for token in update.tokens]
            echoed = sum(update.echoed for update in own)
            whole = ChoiceUpdate(choice, deltas, tokens, own[-1].finish_reason, echoed)
            found.append(self._choice(whole))
        return self._envelope(self.whole_object, found, usage)

    @abstractmethod
    def _choice(self, update: ChoiceUpdate) -> Json:
        """A whole choice."""


class ChatResponse(ApiResponse):
    """Responses of `/v1/chat/completions`."""

    prefix = "chatcmpl"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def start(self, choice: int) -> list[Json]:
        return [self._delta(choice, {"role": "assistant", "content": ""})]

    def chunk(self, update: ChoiceUpdate) -> list[Json]:
        parts = [self._part(update.choice, delta) for delta in update.deltas]
        if not parts and self.shows_logprobs and update.tokens:
            # a token whose text is held back has log-probabilities all the same
            parts = [{"content": ""}]
        chunks = [self._delta(update.choice, part) for part in parts]
        if chunks and self.shows_logprobs:
            chunks[0]["choices"][0]["logprobs"] = self._logprobs(update.tokens)
        if update.finish_reason is not None:
            chunks.append(self._delta(update.choice, {}, update.finish_reason))
        return chunks

    def _delta(self, choice: int, delta: Json, finish_reason: str | None = None) -> Json:
        found = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._envelope(self.chunk_object, [found], None)

    def _part(self, choice: int, delta: Delta) -> Json:
        if delta.call:
            number = self._calls.get(choice, 0)
            self._calls[choice] = number + 1
            return {"tool_calls": [{"index": number, **_call_json(delta.call)}]}
        if delta.reasoning:
            return {"reasoning_content": delta.reasoning}
        return {"content": delta.content}

    def _choice(self, update: ChoiceUpdate) -> Json:
        content = "".join(delta.content for delta in update.deltas)
        reasoning = "".join(delta.reasoning for delta in update.deltas)
        calls = [_call_json(delta.call) for delta in update.deltas if delta.call]
        message: Json = {"role": "assistant", "content": content, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message |= {"tool_calls": calls, "content": content or None}
        return {
            "index": update.choice,
            "message": message,
            "logprobs": self._logprobs(update.tokens) if self.shows_logprobs else None,
            "finish_reason": update.finish_reason,
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
        text = data.decode("utf-8", "replace")
        return {"token": text, "logprob": likely, "bytes": list(data)}


class CompletionResponse(ApiResponse):
    """Responses of `/v1/completions`."""

    prefix = "cmpl"
    chunk_object = whole_object = "text_completion"

    def __init__(self, model: str, tokenizer: SimpleTokenizer, shows_logprobs: bool) -> None:
        super().__init__(model, tokenizer, shows_logprobs)
        # the number of characters of each choice before its next token
        self._offsets: dict[int, int] = {}
        self._streams: dict[int, TextStream] = {}

    def chunk(self, update: ChoiceUpdate) -> list[Json]:
        return [self._envelope(self.chunk_object, [self._choice(update)], None)]

    def _choice(self, update: ChoiceUpdate) -> Json:
        return {
            "index": update.choice,
            "text": "".join(delta.content for delta in update.deltas),
            "logprobs": self._logprobs(update) if self.shows_logprobs else None,
            "finish_reason": update.finish_reason,
        }

    def _logprobs(self, update: ChoiceUpdate) -> Json:
        tokens = update.tokens
        return {
            "tokens": [self._name(one.token) for one in tokens],
            # nothing is before the first token of an echoed text, so it has none
            "token_logprobs": [
                None if math.isnan(one.logprob) else max(one.logprob, MIN_LOGPROB) for one in tokens
            ],
            "top_logprobs": [
                None if math.isnan(one.logprob) else self._likeliest(one.top or ())
                for one in tokens
            ],
            "text_offset": self._text_offsets(update),
        }

    def _name(self, token: int) -> str:
        """The text of a token, or its bytes if they are no text, as OpenAI's API spells them.

        Different bytes have different names.
        """
        data = self.tokenizer.piece(token, special=True)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _likeliest(self, top: Sequence[tuple[int, float]]) -> Json:
        """The log-probabilities of tokens, likeliest first, by name; of equal names, the first."""
        found: Json = {}
        for token, logprob in top:
            found.setdefault(self._name(token), max(logprob, MIN_LOGPROB))
        return found

    def _text_offsets(self, update: ChoiceUpdate) -> list[int]:
        """Where the tokens of an update start in the text of its choice."""
        choice, found = update.choice, []
        for place, one in enumerate(update.tokens):
            echoes = place < update.echoed
            offset = self._offsets.setdefault(choice, 0)
            if choice not in self._streams or place == update.echoed > 0:
                # the text of a prompt has its control tokens, and that of a reply does not
                ended = self._streams.get(choice)
                offset += len(ended.finish()) if ended else 0
                self._streams[choice] = self.tokenizer.stream(special=echoes, starts_text=echoes)
            found.append(offset)
            self._offsets[choice] = offset + len(self._streams[choice].push(one.token))
        return found


def _call_json(call: ToolCall) -> Json:
    return {
        # templates of Mistral take ids of nine letters and digits alone
        "id": "".join(secrets.choice(ID_CHARACTERS) for _ in range(9)),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
