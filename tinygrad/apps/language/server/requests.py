"""Requests of OpenAI's API, parsed and validated.

Input: the body of a request. Output: a `ChatRequest` or a `CompletionRequest`. Invariant: any body
gives one of these or an `ApiError` that names the parameter. Unsupported parameters that would
change the response are errors; unknown ones are ignored.
The API: https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.server.request_fields import (
    ApiError,
    Fields,
    forced_call_of,
    json_type,
    messages_of,
    schema_of,
    tools_of,
)

MAX_CHOICES = 8
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_TEMPERATURE = 2
# unsupported parameters, and the values that would not change the response
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "functions": ([],),
}


@dataclass(frozen=True)
class RequestOptions:
    """The parameters that both kinds of requests have.

    `max_tokens` is None for the rest of the context. `schema` is the JSON schema of the reply, None
    for plain text. `logprobs` is the number of likeliest tokens to return for each token, None for
    no log-probabilities.
    """

    model: str | None
    sampling: Sampling
    max_tokens: int | None
    stops: tuple[str, ...]
    choices: int
    stream: bool
    include_usage: bool
    logprobs: int | None
    schema: Mapping[str, Any] | None = None

    def sampling_of(self, choice: int) -> Sampling:
        """The sampling parameters of one choice, which has a seed of its own."""
        if self.sampling.seed is None:
            return self.sampling
        return replace(self.sampling, seed=self.sampling.seed + choice)


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to reply to; `variables` are passed to the chat template.

    `forced_call` is the tool that must be called: its name, "" for any, None without one.
    """

    options: RequestOptions
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    variables: dict[str, Any]
    forced_call: str | None = None


@dataclass(frozen=True)
class CompletionRequest:
    """Texts, or token ids, to continue."""

    options: RequestOptions
    prompts: list[str | list[int]]


def parse_json(body: bytes) -> Mapping[str, Any]:
    """The JSON object in the body of a request. Raises ApiError.

    >>> parse_json(b'{"stream": true}')
    {'stream': True}
    """
    try:
        parsed = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is no JSON that can be read: {error}") from error
    if not isinstance(parsed, dict):
        raise ApiError(400, f"the body must be a JSON object, not {json_type(parsed)}")
    return parsed


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def chat_request(body: Mapping[str, Any], defaults: Sampling) -> ChatRequest:
    """The request of a body for `/v1/chat/completions`. Raises ApiError."""
    fields = Fields(body)
    flag = fields.boolean("logprobs", False)
    top = fields.integer("top_logprobs", 0, MAX_LOGPROBS)
    if top is not None and not flag:
        raise ApiError(400, "top_logprobs needs logprobs to be true", "top_logprobs")
    limit = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
    options = _request_options(fields, defaults, limit, None, (top or 0) if flag else None)
    variables = dict(fields.object("chat_template_kwargs"))
    if effort := fields.text("reasoning_effort"):
        variables["reasoning_effort"] = effort
    tools = tools_of(fields)
    forced_call = forced_call_of(fields, tools)
    return ChatRequest(options, messages_of(fields), tools, variables, forced_call)


def completion_request(body: Mapping[str, Any], defaults: Sampling) -> CompletionRequest:
    """The request of a body for `/v1/completions`. Raises ApiError."""
    fields = Fields(body)
    logprobs = fields.integer("logprobs", 0, MAX_LOGPROBS)
    options = _request_options(fields, defaults, "max_tokens", 16, logprobs)
    prompts = _prompts(body.get("prompt"))
    if len(prompts) * options.choices > MAX_CHOICES:
        raise ApiError(400, f"at most {MAX_CHOICES} texts are generated at once", "prompt")
    return CompletionRequest(options, prompts)


def _request_options(
    fields: Fields, defaults: Sampling, limit: str, default: int | None, logprobs: int | None
) -> RequestOptions:
    for name, neutral in UNSUPPORTED.items():
        value = fields.body.get(name)
        if value is not None and value not in neutral:
            raise ApiError(400, f"{name} is not supported", name, "unsupported_parameter")
    stream_options = Fields(fields.object("stream_options"), "stream_options.")
    found_limit = fields.integer(limit, 1, 2**31)
    return RequestOptions(
        model=fields.text("model"),
        sampling=_sampling(fields, defaults, logprobs or 0),
        max_tokens=default if found_limit is None else found_limit,
        stops=_stops(fields),
        choices=fields.integer("n", 1, MAX_CHOICES) or 1,
        stream=fields.boolean("stream", False),
        include_usage=stream_options.boolean("include_usage", False),
        logprobs=logprobs,
        schema=schema_of(fields),
    )


def _sampling(fields: Fields, defaults: Sampling, logprobs: int) -> Sampling:
    given = {
        "temperature": fields.number("temperature", 0, MAX_TEMPERATURE),
        "top_k": fields.integer("top_k", 0, 2**31),
        "top_p": fields.number("top_p", math.ulp(0.0), 1),
        "min_p": fields.number("min_p", 0, 1),
        "repetition_penalty": fields.number("repetition_penalty", math.ulp(0.0), 100),
        "seed": fields.integer("seed", -(2**63), 2**63),
    }
    if given["seed"] is not None:
        # generators take no negative seeds
        given["seed"] %= 2**64
    found = {name: value for name, value in given.items() if value is not None}
    return replace(defaults, **found, logprobs=logprobs)  # type: ignore[arg-type]


def _stops(fields: Fields) -> tuple[str, ...]:
    stop = fields.body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise ApiError(400, "stop must be a text, or a list of texts that are not empty", "stop")
    if len(stops) > MAX_STOPS:
        raise ApiError(400, f"stop has {len(stops)} texts; at most {MAX_STOPS} are taken", "stop")
    return tuple(stops)


def _prompts(prompt: Any) -> list[str | list[int]]:
    """The prompts: one or several, each a text or a list of token ids."""
    if isinstance(prompt, str) or (isinstance(prompt, list) and _are_tokens(prompt)):
        return [prompt]
    is_list = isinstance(prompt, list) and bool(prompt)
    if not is_list or not all(isinstance(one, str) or _are_tokens(one) for one in prompt):
        raise ApiError(400, "prompt must be a text, a list of tokens, or a list of these", "prompt")
    return list(prompt)


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)
