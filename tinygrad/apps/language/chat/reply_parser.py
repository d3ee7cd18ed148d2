"""What a model writes, taken apart as it comes: reasoning, what it says, and calls of tools.

In: text in parts. Out: `Delta`s. What stays true: nothing is lost; what looks like a call and is
none comes out as the text that it is. Four ways of writing calls are read:
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

from tinygrad.apps.language.chat.stop_strings import held_back

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
MISTRAL, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
PYTHON_TAG = "<|python_tag|>"
BRACE = "{"
# control tokens in some vocabularies, which must come as text to be found
MARKERS = frozenset({THINK, END_THINK, CALL, END_CALL, MISTRAL, MISTRAL_ARGUMENTS, PYTHON_TAG})

FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A call of a tool; `arguments` is the JSON of an object."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Delta:
    """What came: of the reasoning, of the reply, or a call."""

    content: str = ""
    reasoning: str = ""
    call: Call | None = None

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if value}
        return f"Delta({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class ReplyParser:
    """Takes a reply apart. Calls are looked for if `tools`.

    `bare_json`: a reply that starts with a brace may be a call, so it comes when it is whole.
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
        # what ends the part that is being read; None while it is what the model says
        self._inside: str | None = THINK if thinking else None
        self._buffer = ""
        self._spoke = False
        self._fresh = thinking

    def push(self, text: str) -> list[Delta]:
        """What is clear now that `text` came."""
        self._buffer += text
        found: list[Delta] = []
        while (parts := self._next()) is not None:
            found += parts
        return found

    def finish(self) -> list[Delta]:
        """What was held back, now that nothing more comes."""
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
        """What the next step gives; None when it takes more text."""
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
        return self._released([END_THINK], said=False)

    def _call(self) -> list[Delta] | None:
        body, mark, rest = self._buffer.partition(END_CALL)
        if not mark:
            return None
        self._inside, self._buffer, self._fresh = None, rest, True
        calls = _calls(CALL, body)
        return calls if calls is not None else [Delta(content=CALL + body + END_CALL)]

    def _content(self) -> list[Delta] | None:
        if self._fresh:
            # lines between the parts belong to none
            self._buffer = self._buffer.lstrip("\r\n")
        text = self._buffer
        if self._bare_json and not self._spoke and text.lstrip().startswith(BRACE):
            self._inside = BRACE
            return None
        # models reason before they say anything
        reasons = not self._spoke and THINK.startswith(text.lstrip()[: len(THINK)])
        openers = [THINK] if reasons else self._call_openers
        places = [(text.find(mark), mark) for mark in openers if mark in text]
        if places:
            place, mark = min(places)
            self._inside, self._buffer = mark, text[place + len(mark) :]
            self._fresh = True
            said = text[:place].rstrip()
            self._spoke |= bool(said)
            return [Delta(content=said)] if said else []
        return self._released([THINK, *openers], said=True)

    def _released(self, markers: Sequence[str], said: bool) -> list[Delta] | None:
        """All of the buffer but what may be the start of a marker, and the spaces before it."""
        text = self._buffer[: len(self._buffer) - held_back(self._buffer, markers)].rstrip()
        if not text:
            return None
        self._buffer = self._buffer[len(text) :]
        self._fresh = False
        self._spoke |= said
        return [Delta(content=text) if said else Delta(reasoning=text)]


def _calls(opener: str, text: str) -> list[Delta] | None:
    """The calls that a part of a reply holds; None if it holds something else."""
    try:
        is_bare = opener == BRACE
        calls = list(_mistral_calls(text) if opener == MISTRAL else _json_calls(text, is_bare))
    except (ValueError, KeyError, TypeError):
        return None
    return [Delta(call=call) for call in calls] or None


def _json_calls(text: str, is_bare: bool = False) -> Iterator[Call]:
    """Objects, one or in a row, or a function with parameters in tags.

    One that is the whole reply `is_bare`, and may be JSON that was asked for: it has arguments.
    """
    if function := FUNCTION.fullmatch(text):
        yield Call(function[1], json.dumps(dict(map(_parameter, PARAMETER.findall(function[2])))))
        return
    decoder = json.JSONDecoder()
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        for item in value if isinstance(value, list) else [value]:
            yield _call_of(item, None if is_bare else {})
        text = text[end:].lstrip(" \t\r\n;,")


def _mistral_calls(text: str) -> Iterator[Call]:
    if text.lstrip().startswith(("[", "{")):
        yield from _json_calls(text)
        return
    for part in text.split(MISTRAL):
        name, brace, arguments = part.partition("{")
        name = name.replace(MISTRAL_ARGUMENTS, "").strip()
        if not (name and brace):
            raise ValueError(f"{part!r} is no name with an object")
        yield Call(name, json.dumps(json.loads(brace + arguments)))


def _call_of(item: dict[str, Any], default: Any) -> Call:
    name = item["name"]
    arguments = item.get("arguments", item.get("parameters", default))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not (isinstance(name, str) and isinstance(arguments, dict)):
        raise ValueError(f"{item!r:.60} is no call")
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _parameter(item: tuple[str, str]) -> tuple[str, Any]:
    """A parameter in tags: a text, unless it is JSON of something else."""
    key, text = item
    try:
        return key, json.loads(text)
    except ValueError:
        return key, text
