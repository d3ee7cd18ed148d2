"""Requests of OpenAI's API, parsed and validated.

Input: the body of a request. Output: a `ChatRequest` or a `CompletionRequest`. Invariant: any body
gives one of these or an `ApiError` that names the parameter; see `parameters`.
The API: https://platform.openai.com/docs/api-reference
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.server.parameters import CHAT, COMPLETION, check_names
from tinygrad.apps.language.server.request_fields import (
    ApiError,
    Fields,
    Structure,
    forced_call_of,
    json_type,
    messages_of,
    nested_json,
    structure_of,
    tools_of,
)

MAX_CHOICES = 8
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_TEMPERATURE = 2
MAX_BIASES = 1024
MAX_BIAS = 100
MAX_PENALTY = 2
# what the server itself gives to chat templates, or to the function that renders them
TOKENIZE = {
    *("model", "content", "add_special", "parse_special", "with_pieces"),
    *("prompt", "add_special_tokens"),
}
RESERVED_VARIABLES = {"self", "messages", "tools", "add_generation_prompt"}


@dataclass(frozen=True)
class RequestOptions:
    """The parameters that both kinds of requests have.

    `max_tokens` is None for the rest of the context. A reply ends before a token of `stop_tokens`,
    and before the end tokens of the model, unless it `ignores_ends`, but after `min_tokens`.
    `structure` is what the reply must match.
    `logprobs` is the number of likeliest tokens to return for each token, None for no
    log-probabilities.
    """

    model: str | None
    sampling: Sampling
    max_tokens: int | None
    stops: tuple[str, ...]
    choices: int
    stream: bool
    include_usage: bool
    logprobs: int | None
    structure: Structure
    min_tokens: int = 0
    ignores_ends: bool = False
    stop_tokens: frozenset[int] = frozenset()

    def sampling_of(self, choice: int) -> Sampling:
        """The sampling parameters of one choice, which has a seed of its own."""
        if self.sampling.seed is None:
            return self.sampling
        return replace(self.sampling, seed=self.sampling.seed + choice)


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to reply to; `variables` are passed to the chat template.

    `forced_call` is the tool that must be called: its name, "" for any, None without one. Without
    `has_parallel_calls`, a reply has one tool call at most.
    """

    options: RequestOptions
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    variables: dict[str, Any]
    forced_call: str | None = None
    has_parallel_calls: bool = True


@dataclass(frozen=True)
class CompletionRequest:
    """Texts, or token ids, to continue; with `echo`, the replies begin with them."""

    options: RequestOptions
    prompts: list[str | list[int]]
    echo: bool = False


def parse_json(body: bytes) -> Mapping[str, Any]:
    """The JSON object in the body of a request. Raises ApiError.

    >>> parse_json(b'{"stream": true}')
    {'stream': True}
    """
    try:
        parsed = nested_json(body)
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON that can be read: {error}") from error
    if not isinstance(parsed, dict):
        raise ApiError(400, f"the body must be a JSON object, not {json_type(parsed)}")
    return parsed


def chat_request(body: Mapping[str, Any], defaults: Sampling) -> ChatRequest:
    """The request of a body for `/v1/chat/completions`. Raises ApiError."""
    fields = Fields(body)
    check_names(fields.body, CHAT)
    flag = fields.boolean("logprobs", False)
    top = fields.integer("top_logprobs", 0, MAX_LOGPROBS)
    if top is not None and not flag:
        raise ApiError(400, "top_logprobs needs logprobs to be true", "top_logprobs")
    options = _request_options(fields, defaults, None, (top or 0) if flag else None)
    variables = _template_variables(fields)
    if effort := fields.text("reasoning_effort"):
        variables["reasoning_effort"] = effort
    tools = tools_of(fields)
    forced_call = forced_call_of(fields, tools)
    parallel = fields.boolean("parallel_tool_calls", True)
    return ChatRequest(options, messages_of(fields), tools, variables, forced_call, parallel)


def _template_variables(fields: Fields) -> dict[str, Any]:
    variables = dict(fields.object("chat_template_kwargs"))
    for name in variables:
        if name in RESERVED_VARIABLES or not name.isidentifier():
            path = f"chat_template_kwargs.{name:.80}"
            raise ApiError(400, f"{path} is not a variable that can be set", path)
    return variables


def completion_request(body: Mapping[str, Any], defaults: Sampling) -> CompletionRequest:
    """The request of a body for `/v1/completions`. Raises ApiError."""
    fields = Fields(body)
    check_names(fields.body, COMPLETION)
    logprobs = fields.integer("logprobs", 0, MAX_LOGPROBS)
    echo = fields.boolean("echo", False)
    options = _request_options(fields, defaults, 16, logprobs, allows_none=echo)
    prompts = _prompts(fields.body.get("prompt"))
    if len(prompts) * options.choices > MAX_CHOICES:
        raise ApiError(400, f"at most {MAX_CHOICES} texts are generated at once", "prompt")
    return CompletionRequest(options, prompts, echo)


@dataclass(frozen=True)
class TokenizeRequest:
    """A text to tokenise: with `special`, the texts of control tokens become these; with
    `adds_bos`, BOS is put before it where the model has it.
    """

    text: str
    special: bool
    adds_bos: bool
    shows_pieces: bool


def tokenize_request(body: Mapping[str, Any]) -> TokenizeRequest:
    """The request of a body for `/tokenize`, with llama.cpp's names or vLLM's. Raises ApiError."""
    fields = Fields(body)
    fields.only(TOKENIZE)
    is_prompt = "prompt" in fields.body
    text = fields.text("prompt" if is_prompt else "content")
    if text is None:
        raise fields.wrong("content", "a text")
    added = fields.boolean("add_special_tokens" if is_prompt else "add_special", is_prompt)
    special, pieces = fields.boolean("parse_special", True), fields.boolean("with_pieces", False)
    return TokenizeRequest(text, special, added, pieces)


def detokenize_request(body: Mapping[str, Any]) -> list[int]:
    """The tokens of a body for `/detokenize`. Raises ApiError."""
    fields = Fields(body)
    fields.only({"model", "tokens"})
    tokens = fields.body.get("tokens", [])
    if not isinstance(tokens, list) or not all(type(one) is int for one in tokens):
        raise fields.wrong("tokens", "a list of tokens")
    return tokens


def _request_options(
    fields: Fields,
    defaults: Sampling,
    max_tokens: int | None,
    logprobs: int | None,
    allows_none: bool = False,
) -> RequestOptions:
    """The options; `max_tokens` is the default, and may be 0 if it `allows_none`.

    An echo without anything else shows the log-probabilities of a text.
    """
    stream_options = Fields(fields.object("stream_options"), "stream_options.")
    limit = _max_tokens(fields, max_tokens, int(not allows_none))
    min_tokens = fields.integer("min_tokens", 0, 2**31) or 0
    if limit is not None and min_tokens > limit:
        raise ApiError(400, f"min_tokens is above the maximum length, {limit}", "min_tokens")
    return RequestOptions(
        model=fields.text("model"),
        sampling=_sampling(fields, defaults, logprobs or 0),
        max_tokens=limit,
        stops=_stops(fields),
        choices=fields.integer("n", 1, MAX_CHOICES) or 1,
        stream=fields.boolean("stream", False),
        include_usage=stream_options.boolean("include_usage", False),
        logprobs=logprobs,
        structure=structure_of(fields),
        min_tokens=min_tokens,
        ignores_ends=fields.boolean("ignore_eos", False),
        stop_tokens=_stop_tokens(fields),
    )


def _max_tokens(fields: Fields, default: int | None, minimum: int) -> int | None:
    """The maximum length; -1 is that of the context, as for llama.cpp's server."""
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        if name in fields.body:
            is_context = fields.body[name] == -1
            return None if is_context else fields.integer(name, minimum, 2**31)
    return default


def _stop_tokens(fields: Fields) -> frozenset[int]:
    tokens = fields.body.get("stop_token_ids", [])
    if not isinstance(tokens, list) or not all(type(one) is int and one >= 0 for one in tokens):
        raise fields.wrong("stop_token_ids", "a list of tokens")
    return frozenset(tokens)


def _sampling(fields: Fields, defaults: Sampling, logprobs: int) -> Sampling:
    seed = fields.integer("seed", -(2**63), 2**63)
    given = {
        "temperature": fields.number("temperature", 0, MAX_TEMPERATURE),
        # vLLM and transformers write -1 for all
        "top_k": None if (top_k := fields.integer("top_k", -1, 2**31)) is None else max(top_k, 0),
        "top_p": fields.number("top_p", math.ulp(0.0), 1),
        "min_p": fields.number("min_p", 0, 1),
        "repetition_penalty": _repetition_penalty(fields),
        "presence_penalty": fields.number("presence_penalty", -MAX_PENALTY, MAX_PENALTY),
        "frequency_penalty": fields.number("frequency_penalty", -MAX_PENALTY, MAX_PENALTY),
        # generators take no negative seeds
        "seed": None if seed is None else seed % 2**64,
    }
    found = {name: value for name, value in given.items() if value is not None}
    biases = _logit_bias(fields)
    return replace(defaults, **found, logit_bias=biases, logprobs=logprobs)  # type: ignore[arg-type]


def _repetition_penalty(fields: Fields) -> float | None:
    """The penalty under its name in vLLM, or in llama.cpp."""
    names = ("repetition_penalty", "repeat_penalty")
    found = [fields.number(name, math.ulp(0.0), 100) for name in names]
    return found[1] if found[0] is None else found[0]


def _logit_bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    """Pairs of a token and the number that is added to its logit."""
    given = fields.object("logit_bias")
    if len(given) > MAX_BIASES:
        raise ApiError(400, f"logit_bias has more than {MAX_BIASES} tokens", "logit_bias")
    values = Fields(given, "logit_bias.")
    biases = []
    for name in values.body:
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise ApiError(400, f"{name!r:.80} in logit_bias is not a token number", "logit_bias")
        bias = values.number(name, -MAX_BIAS, MAX_BIAS)
        biases.append((int(name), float(bias or 0)))
    return tuple(biases)


def _stops(fields: Fields) -> tuple[str, ...]:
    stop = fields.body.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
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
