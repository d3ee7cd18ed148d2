"""Chat templates: conversations to the prompt that a model continues.

Input: messages in the format of OpenAI's API, and tools. Output: text for
`SimpleTokenizer.encode_template`. Invariants: a template comes from an untrusted file, and can only
produce text; the texts of messages never become control tokens.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from tinygrad.apps.language.chat.generic_tools import (
    Message,
    tool_messages_as_text,
    tool_prompt,
    with_system_text,
    with_user_text,
)
from tinygrad.apps.language.chat.tool_calls import CALL, MISTRAL, NO_MARK
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

if TYPE_CHECKING:
    from jinja2.nodes import Node
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE_KEY = "tokenizer.chat_template"
# another template, for conversations with tools
TOOL_TEMPLATE_KEY = "tokenizer.chat_template.tool_use"

# the name of a tool that no message has
PROBE = "probe_of_calls"
# templates for files without one, by a control token of their vocabulary
CHATML = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA3 = """{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content }}<|eot_id|>{% endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
GEMMA = """{% for message in messages %}<start_of_turn>
{{- 'model' if message.role == 'assistant' else 'user' }}
{{ message.content }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
TEMPLATES_BY_TOKEN = {
    "<|im_start|>": CHATML,
    "<|start_header_id|>": LLAMA3,
    "<start_of_turn>": GEMMA,
}


class ChatError(ValueError):
    """A conversation that the template of the model rejects, or a template that fails."""


class NoText(str):
    """The content of a message without one. Templates may join it, or test whether it is none."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is None or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class CallArguments(dict[str, Any]):
    """The arguments of a tool call. Templates may read them, or join the JSON that they were.

    >>> 'f(' + CallArguments({"a": 1}, '{"a":1}') + ')'
    'f({"a":1})'
    """

    def __init__(self, values: Mapping[str, Any], text: str) -> None:
        super().__init__(values)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


class ChatTemplate:
    """The chat template of a model.

    `source` is a Jinja template, `tool_source` that for conversations with tools if there is
    another, `tokenizer` the model's. Raises ChatError for a syntax error, ImportError without
    jinja2.

    >>> tokenizer = SimpleTokenizer({"a": 0, "b": 1}, {"<e>": 2})
    >>> template = ChatTemplate("{% for m in messages %}{{ m.content }}<e>{% endfor %}", tokenizer)
    >>> template.encode([{"role": "user", "content": "ab"}])
    [0, 1, 2]
    """

    def __init__(
        self, source: str, tokenizer: SimpleTokenizer, tool_source: str | None = None
    ) -> None:
        self.source = source
        self._tool_source = tool_source or source
        self._tokenizer = tokenizer
        self._compiled = {text: _compile(text) for text in (source, self._tool_source)}
        self._knows_tools = "tools" in _variables(self._tool_source)
        # by source, once it is known
        self._drops_calls: dict[str, bool] = {}

    @classmethod
    def from_gguf_kv(cls, kv: Mapping[str, Any], tokenizer: SimpleTokenizer) -> ChatTemplate:
        """The template of a file, or the usual one for its control tokens.

        Raises ChatError if there is neither.
        """
        source, tool_source = kv.get(TEMPLATE_KEY), kv.get(TOOL_TEMPLATE_KEY)
        tool_source = tool_source if isinstance(tool_source, str) else None
        if isinstance(source, str) and source:
            return cls(source, tokenizer, tool_source)
        for token, known in TEMPLATES_BY_TOKEN.items():
            if token in tokenizer.control:
                return cls(known, tokenizer, tool_source)
        raise ChatError(
            "the file has no chat template: it is a model that continues text; give it a text "
            "(--prompt with --raw, or /v1/completions) instead of a conversation"
        )

    @property
    def call_mark(self) -> str:
        """The mark before the tool calls of the model; `NO_MARK` if it writes objects alone."""
        if not self._knows_tools:
            return CALL
        return next((mark for mark in (CALL, MISTRAL) if mark in self._tool_source), NO_MARK)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt text of a conversation, up to the start of the reply.

        `variables` are further variables of the template, such as `enable_thinking`. What a
        template does not know of tools is told by a text. Raises ChatError with the message of a
        template that rejects the conversation.
        """
        variables["add_generation_prompt"] = add_generation_prompt
        if tools and not self._knows_tools:
            return self._render_described(tool_messages_as_text(messages), tools, variables)
        source = self._tool_source if tools else self.source
        if "tool_calls" not in source:
            messages = tool_messages_as_text(messages)
        elif any(map(_has_calls_beside_text, messages)) and self._drops_calls_beside_text(source):
            messages = _with_calls_apart(messages)
        return self._render(source, messages, tools, variables)

    def _drops_calls_beside_text(self, source: str) -> bool:
        """Whether a template shows tool calls only of messages without a content."""
        if source not in self._drops_calls:
            apart, beside = (self._shows_call(source, content) for content in (NoText(), "text"))
            self._drops_calls[source] = apart and not beside
        return self._drops_calls[source]

    def _shows_call(self, source: str, content: str) -> bool:
        """Whether a template shows the call in a message with a content."""
        # some templates want ids of nine characters
        function = {"name": PROBE, "arguments": CallArguments({}, "{}")}
        call = {"id": "probe0000", "type": "function", "function": function}
        messages: list[Message] = [
            {"role": "user", "content": "text"},
            {"role": "assistant", "content": content, "tool_calls": [call]},
            {"role": "tool", "content": "text", "tool_call_id": call["id"]},
        ]
        try:
            return PROBE in self._render(source, messages, None, {"add_generation_prompt": True})
        except ChatError:
            return False

    def _render_described(
        self, messages: Sequence[Message], tools: Sequence[Message], variables: Mapping[str, Any]
    ) -> str:
        """The prompt with a text about tools, where the template shows it. Raises ChatError."""
        text = tool_prompt(tools)
        error = ChatError("this model does not support tools: its chat template shows none")
        for placed in (with_system_text, with_user_text):
            try:
                prompt = self._render(self.source, placed(messages, text), None, variables)
            except ChatError as rejected:
                error = rejected
                continue
            if self._tokenizer.as_plain(text) in prompt:
                return prompt
        raise error

    def _render(
        self,
        source: str,
        messages: Sequence[Message],
        tools: Sequence[Message] | None,
        variables: Mapping[str, Any],
    ) -> str:
        from jinja2.exceptions import TemplateError

        spelled = functools.partial(self._tokenizer.decode, special=True)
        bos, eos = self._tokenizer.bos_id, self._tokenizer.eos_id
        known = {
            "messages": self._plain(list(messages)),
            "tools": self._plain(list(tools)) if tools else None,
            "bos_token": "" if bos is None else spelled([bos]),
            "eos_token": "" if eos is None else spelled([eos]),
            "raise_exception": _refuse,
            "strftime_now": _now,
        }
        try:
            return self._compiled[source](**(self._plain(variables) | known))
        except ChatError:
            raise
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise ChatError(f"the model's chat template failed: {error}") from error

    def encode(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[int]:
        """The tokens of `render`. Raises ChatError."""
        text = self.render(messages, tools, add_generation_prompt, **variables)
        return self._tokenizer.encode_template(text, add_bos=self._tokenizer.adds_bos)

    def _plain(self, value: Any) -> Any:
        """A value whose texts are protected from becoming control tokens."""
        if isinstance(value, NoText):
            return value
        if isinstance(value, str):
            return self._tokenizer.as_plain(value)
        if isinstance(value, Mapping):
            plain = {self._plain(key): self._plain(item) for key, item in value.items()}
            is_call = isinstance(value, CallArguments)
            return CallArguments(plain, self._plain(str(value))) if is_call else plain
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        return value


def normalize_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of OpenAI's API in the form that templates expect.

    The parts of a content are joined, `developer` becomes `system`, and the arguments of a tool
    call become `CallArguments` instead of JSON text. The content of a message that only has tool
    calls is `NoText`.

    >>> normalize_messages([{"role": "user", "content": [{"type": "text", "text": "a"}]}])
    [{'role': 'user', 'content': 'a'}]
    """
    return [_normalize_message(message) for message in messages]


def split_begun_reply(
    messages: Sequence[dict[str, Any]],
) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    """Normalized messages without a last one of the assistant, which is to be continued, and it.

    >>> question = {"role": "user", "content": "Name a colour."}
    >>> split_begun_reply([question, {"role": "assistant", "content": "I like "}])[1]["content"]
    'I like '
    """
    *before, last = messages
    if before and last["role"] == "assistant" and not last.get("tool_calls"):
        return before, last
    return messages, {"role": "assistant", "content": ""}


def _has_calls_beside_text(message: Message) -> bool:
    return bool(message.get("content") and message.get("tool_calls"))


def _with_calls_apart(messages: Sequence[Message]) -> list[Message]:
    """Messages whose tool calls are in messages without a content."""
    found: list[Message] = []
    for message in messages:
        if _has_calls_beside_text(message):
            found.append({name: one for name, one in message.items() if name != "tool_calls"})
            message = {**message, "content": NoText()}
        found.append(message)
    return found


def _normalize_message(message: Message) -> dict[str, Any]:
    ready = dict(message)
    if ready["role"] == "developer":
        ready["role"] = "system"
    content = ready.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    ready["content"] = content or (NoText() if ready.get("tool_calls") else "")
    if ready.get("tool_calls"):
        ready["tool_calls"] = [_parse_arguments(call) for call in ready["tool_calls"]]
    return ready


def _parse_arguments(call: Message) -> dict[str, Any]:
    """A tool call whose arguments are an object, if that is what their JSON is."""
    function = dict(call["function"])
    text = function.get("arguments") or "{}"
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    # a model may have generated others, and gets them back unchanged
    arguments = CallArguments(values, text) if isinstance(values, dict) else text
    return {**call, "function": {**function, "arguments": arguments}}


def _compile(source: str) -> Callable[..., str]:
    try:
        from jinja2.exceptions import TemplateSyntaxError
    except ImportError as error:
        raise ImportError(
            "chat templates need the package jinja2: pip install 'tinygrad-sharding[llm]'"
        ) from error
    try:
        return template_environment().from_string(source).render
    except TemplateSyntaxError as error:
        raise ChatError(f"line {error.lineno} of the chat template: {error.message}") from error


@functools.cache
def template_environment() -> ImmutableSandboxedEnvironment:
    """The sandbox for templates, which are code from untrusted files."""
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class GenerationBlock(Extension):
        """`{% generation %}` marks the text of the assistant for training; its body is kept."""

        tags: set[str] = {"generation"}  # noqa: RUF012 (Jinja declares it so)

        def parse(self, parser: Parser) -> list[Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", GenerationBlock],
    )
    environment.filters["tojson"] = _to_json
    environment.tests["none"] = lambda value: value is None or isinstance(value, NoText)
    return environment


def _variables(source: str) -> set[str]:
    """The variables that a template expects to be given."""
    from jinja2.meta import find_undeclared_variables

    return find_undeclared_variables(template_environment().parse(source))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it; the filter of Jinja escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    """`raise_exception` of templates: rejects a conversation."""
    raise ChatError(f"the model's chat template rejects the conversation: {message}")


def _now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
