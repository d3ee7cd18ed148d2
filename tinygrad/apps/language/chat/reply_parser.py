"""Streaming parser of replies: reasoning, content and tool calls.

Input: text in parts. Output: `Delta`s. Invariants: no text is lost; text that looks like a tool
call and is not valid comes out as content. Four formats of tool calls are parsed:
`<tool_call>{"name": ..., "arguments": ...}</tool_call>` (Hermes, Qwen), the same with
`<function=name><parameter=key>value</parameter></function>` inside (Qwen3-Coder),
`[TOOL_CALLS]` with a list, or with `name[ARGS]{...}` (Mistral), and a reply that is an object with
`name` and `parameters` (Llama 3). Reasoning is between `<think>` and `</think>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.apps.language.chat.stop_strings import count_partial_marker

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
MISTRAL, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
PYTHON_TAG = "<|python_tag|>"
BRACE = "{"
# control tokens in some vocabularies, which must be decoded as text to be found
MARKERS = frozenset({THINK, END_THINK, CALL, END_CALL, MISTRAL, MISTRAL_ARGUMENTS, PYTHON_TAG})

FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """A tool call; `arguments` is the JSON of an object."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Delta:
    """A part of a reply: of its content, of its reasoning, or a tool call."""

    content: str = ""
    reasoning: str = ""
    call: ToolCall | None = None

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if value}
        return f"Delta({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class ReplyParser:
    """Parses one reply; tool calls only if `tools`.

    `bare_json`: a reply that starts with a brace may be a tool call, so it is held until its end.
    `thinking`: the prompt ended with `<think>`, so the reply starts with reasoning.

    >>> parser = ReplyParser()
    >>> parser.push("<think>one"), parser.push("</thi"), parser.push("nk>two")
    ([Delta(reasoning='one')], [], [Delta(content='two')])
    """

    def __init__(
        self, tools: bool = False, bare_json: bool = False, thinking: bool = False
    ) -> None:
        self._call_openers = (CALL, MISTRAL, PYTHON_TAG) if tools else ()
        self._bare_json = bare_json and tools
        # the marker that opened the current part; None in content
        self._inside: str | None = THINK if thinking else None
        self._buffer = ""
        self._has_content = False
        self._fresh = thinking

    def push(self, text: str) -> list[Delta]:
        """The parts that are decided after `text`."""
        self._buffer += text
        found: list[Delta] = []
        while (parts := self._next()) is not None:
            found += parts
        return found

    def finish(self) -> list[Delta]:
        """The parts that were held back, at the end of the reply."""
        rest, inside = self._buffer, self._inside
        self._buffer, self._inside = "", None
        if inside == THINK:
            return [Delta(reasoning=rest)] if rest else []
        if inside is None:
            return [Delta(content=rest)] if rest else []
        calls = _calls(inside, rest)
        opener = inside if inside in MARKERS else ""
        return calls if calls is not None else [Delta(content=opener + rest)]

    def _next(self) -> list[Delta] | None:
        """The deltas of the next step; None if it needs more text."""
        if self._inside == THINK:
            return self._reasoning()
        if self._inside == CALL:
            return self._call()
        if self._inside is not None:
            return None
        return self._content()

    def _reasoning(self) -> list[Delta] | None:
        if self._fresh:
            self._buffer = self._buffer.lstrip("\r\n")
        text, mark, rest = self._buffer.partition(END_THINK)
        if mark:
            self._inside, self._buffer, self._fresh = None, rest, True
            text = text.rstrip()
            return [Delta(reasoning=text)] if text else []
        return self._release([END_THINK], is_content=False)

    def _call(self) -> list[Delta] | None:
        body, mark, rest = self._buffer.partition(END_CALL)
        if not mark:
            return None
        self._inside, self._buffer, self._fresh = None, rest, True
        calls = _calls(CALL, body)
        return calls if calls is not None else [Delta(content=CALL + body + END_CALL)]

    def _content(self) -> list[Delta] | None:
        if self._fresh:
            # line breaks between parts belong to neither
            self._buffer = self._buffer.lstrip("\r\n")
        text = self._buffer
        if self._bare_json and not self._has_content and text.lstrip().startswith(BRACE):
            self._inside = BRACE
            return None
        # reasoning comes before any content
        reasons = not self._has_content and THINK.startswith(text.lstrip()[: len(THINK)])
        openers = [THINK] if reasons else self._call_openers
        places = [(text.find(mark), mark) for mark in openers if mark in text]
        if places:
            place, mark = min(places)
            self._inside, self._buffer = mark, text[place + len(mark) :]
            self._fresh = True
            before = text[:place].rstrip()
            self._has_content |= bool(before)
            return [Delta(content=before)] if before else []
        return self._release([THINK, *openers], is_content=True)

    def _release(self, markers: Sequence[str], is_content: bool) -> list[Delta] | None:
        """All of the buffer except a possible start of a marker, and the white space before it."""
        text = self._buffer[
            : len(self._buffer) - count_partial_marker(self._buffer, markers)
        ].rstrip()
        if not text:
            return None
        self._buffer = self._buffer[len(text) :]
        self._fresh = False
        self._has_content |= is_content
        return [Delta(content=text) if is_content else Delta(reasoning=text)]


def _calls(opener: str, text: str) -> list[Delta] | None:
    """The tool calls in a part of a reply; None if it is not valid."""
    try:
        is_bare = opener == BRACE
        calls = list(_mistral_calls(text) if opener == MISTRAL else _json_calls(text, is_bare))
    except (ValueError, KeyError, TypeError):
        return None
    return [Delta(call=call) for call in calls] or None


def _json_calls(text: str, is_bare: bool = False) -> Iterator[ToolCall]:
    """Tool calls as objects, one or several, or as a function with parameters in tags.

    A whole reply (`is_bare`) may be JSON content instead, so it needs arguments to be a call.
    """
    if function := FUNCTION.fullmatch(text):
        yield ToolCall(
            function[1], json.dumps(dict(map(_parameter, PARAMETER.findall(function[2]))))
        )
        return
    decoder = json.JSONDecoder()
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        for item in value if isinstance(value, list) else [value]:
            yield _call_of(item, None if is_bare else {})
        text = text[end:].lstrip(" \t\r\n;,")


def _mistral_calls(text: str) -> Iterator[ToolCall]:
    if text.lstrip().startswith(("[", "{")):
        yield from _json_calls(text)
        return
    for part in text.split(MISTRAL):
        name, brace, arguments = part.partition("{")
        name = name.replace(MISTRAL_ARGUMENTS, "").strip()
        if not (name and brace):
            raise ValueError(f"{part!r} is not a name followed by an object")
        yield ToolCall(name, json.dumps(json.loads(brace + arguments)))


def _call_of(item: dict[str, Any], default: Any) -> ToolCall:
    name = item["name"]
    arguments = item.get("arguments", item.get("parameters", default))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not (isinstance(name, str) and isinstance(arguments, dict)):
        raise ValueError(f"{item!r:.60} is not a tool call")
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def _parameter(item: tuple[str, str]) -> tuple[str, Any]:
    """A parameter in tags: JSON if it is valid, else text."""
    key, text = item
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text
