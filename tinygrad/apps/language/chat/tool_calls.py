"""Tool calls in the text of a reply.

Input: the text after the mark that opens tool calls, while it grows, and the tools of the request.
Output: `ToolCall`s, and where they end. Invariant: a call is decoded before its end mark is looked
for, so that no mark inside a string ends it. Four formats are read:
`<tool_call>{"name": ..., "arguments": ...}</tool_call>` (Hermes, Qwen), the same with
`<function=name><parameter=key>value</parameter></function>` inside (Qwen3-Coder),
`[TOOL_CALLS]` with a list, or with `name[ARGS]{...}` (Mistral), and an object with `name` and
`parameters`, without a mark or after `<|python_tag|>` (Llama 3).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Tool = Mapping[str, Any]

CALL, END_CALL = "<tool_call>", "</tool_call>"
MISTRAL, MISTRAL_ID, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
PYTHON_TAG = "<|python_tag|>"
# of a reply that starts with the object itself
NO_MARK = ""

WHITESPACE = " \t\r\n"
FUNCTION, END_FUNCTION = "<function=", "</function>"
FUNCTIONS_END = re.compile(rf"{END_FUNCTION}\s*(?:{END_CALL}|(\Z))")
NEXT_FUNCTION = re.compile(rf"{END_FUNCTION}\s*(?={FUNCTION})")
FUNCTION_PARTS = re.compile(rf"{FUNCTION}([^>\s]+)>\s*(.*)", re.DOTALL)
# a value may hold the mark itself: the one that ends it is before another parameter, or the last
PARAMETER_END = re.compile(r"</parameter>\s*(?=<parameter=[^>\s]+>|\Z)")
PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?", re.DOTALL)
MISTRAL_NAME = re.compile(
    rf"([^\s\[{{]+)\s*(?:{re.escape(MISTRAL_ID)}[^\[{{]*)?(?:{re.escape(MISTRAL_ARGUMENTS)})?\s*"
)
PARTIAL_MISTRAL_NAME = re.compile(r"[^\s\[{]+\s*(\[[^\[{]*){0,2}")

# what moves the nesting of a JSON text outside of strings, and inside
OUTSIDE, INSIDE = re.compile(r'["\[\]{}]'), re.compile(r'\\.|"', re.DOTALL)
JSON_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"} | {
    list: "array", dict: "object", type(None): "null"
}  # fmt: skip
# end marks that a function may have as text, each of which is tried
MAX_REJECTED = 16
# spellings of models that write Python
PYTHON_WORDS = {"True": True, "False": False, "None": None}


@dataclass(frozen=True)
class ToolCall:
    """A tool call; `arguments` is the JSON of an object."""

    name: str
    arguments: str


class CallReader:
    """Reads the calls after one mark; of an object without a mark, only calls of known tools.

    >>> reader = CallReader(CALL, [])
    >>> text = '{"name": "say", "arguments": {"a": "</tool_call>"}}</tool_call> done'
    >>> reader.end(text[:60]), text[reader.end(text) :], reader.calls
    (None, ' done', [ToolCall(name='say', arguments='{"a": "</tool_call>"}')])
    """

    def __init__(self, mark: str, tools: Sequence[Tool]) -> None:
        self.mark = mark
        self.calls: list[ToolCall] = []
        self._schemas = {
            tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in tools
        }
        self._value = _JsonEnd()
        # where the last call ends, and where the end of functions is looked for
        self._read = self._sought = 0
        self._rejected = 0

    def end(self, text: str, is_whole: bool = False) -> int | None:
        """Where the calls end in the text after the mark; None if that takes more text.

        `calls` has them then; none if the text is no call. `text` starts with that of the last
        use; if it `is_whole`, there is an answer.
        """
        try:
            return self._end(text, is_whole)
        except _IncompleteError:
            return self._read if is_whole else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return self._read

    def _end(self, text: str, is_whole: bool) -> int:
        while True:
            start = _skip(text, self._read, WHITESPACE + ";," if self.calls else WHITESPACE)
            if start == len(text):
                raise _IncompleteError
            if text[start] in "[{":
                value, end = self._json(text, start)
                self._add(value if isinstance(value, list) else [value], end)
            elif self.calls:
                return self._closed(text, start)
            elif self.mark == CALL:
                return self._functions(text, start, is_whole)
            elif self.mark == MISTRAL:
                self._named(text, start)
            else:
                raise ValueError("no object")

    def _closed(self, text: str, start: int) -> int:
        """The end of calls: after their end mark, if the format has one and the model wrote it."""
        if self.mark == CALL and _starts(text, start, END_CALL):
            return start + len(END_CALL)
        return self._read

    def _json(self, text: str, start: int) -> tuple[Any, int]:
        end = self._value.find(text, start)
        return _decoded(text[start:end]), end

    def _add(self, items: Sequence[Any], end: int) -> None:
        calls = [self._call_of(item) for item in items]
        if not calls:
            raise ValueError("an empty list")
        self.calls += calls
        self._read = end

    def _call_of(self, item: dict[str, Any]) -> ToolCall:
        name = item["name"]
        arguments = item.get("arguments", item.get("parameters")) or {}
        if isinstance(arguments, str):
            arguments = _decoded(arguments)
        # what may be the reply itself is a call only if it has all that a call has
        is_known = name in self._schemas and not item.keys().isdisjoint({"arguments", "parameters"})
        if not isinstance(arguments, dict) or (self.mark == NO_MARK and not is_known):
            raise ValueError(f"{item!r:.60} is not a tool call")
        return _call(name, arguments)

    def _named(self, text: str, start: int) -> None:
        """A call of Mistral's format: a name, and the object of its arguments."""
        brace = text.find("{", start)
        if brace < 0:
            raise _IncompleteError if PARTIAL_MISTRAL_NAME.fullmatch(text, start) else ValueError
        name = MISTRAL_NAME.fullmatch(text, start, brace)
        arguments, end = self._json(text, brace)
        if not name:
            raise ValueError("no name before the object")
        self.calls.append(_call(name[1], arguments))
        self._read = end

    def _functions(self, text: str, start: int, is_whole: bool) -> int:
        """The end of functions with parameters in tags."""
        if not _starts(text, start, FUNCTION):
            raise ValueError("neither an object nor a function")
        for mark in FUNCTIONS_END.finditer(text, max(start, self._sought)):
            if mark[1] is not None and not is_whole:
                break
            try:
                parts = NEXT_FUNCTION.split(text[start : mark.start()])
                self.calls = list(map(self._function, parts))
                return mark.end()
            except ValueError:
                self._sought, self._rejected = mark.end(), self._rejected + 1
            if self._rejected == MAX_REJECTED:
                raise ValueError("no function before any of the end marks")
        # the start of an end mark is looked at again
        last = text.rfind(END_FUNCTION, self._sought)
        self._sought = max(self._sought, last if last >= 0 else len(text) - len(END_FUNCTION))
        raise _IncompleteError

    def _function(self, text: str) -> ToolCall:
        head = FUNCTION_PARTS.fullmatch(text)
        if head is None:
            raise ValueError("no name of a function")
        name, body = head.groups()
        *parts, rest = PARAMETER_END.split(body)
        parameters = [PARAMETER.fullmatch(part) for part in parts]
        if rest or not all(parameters):
            raise ValueError("not only parameters")
        schema = self._schemas.get(name, {})
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        others = schema.get("additionalProperties")
        found = [(one[1], one[2]) for one in parameters if one]
        return _call(name, {k: typed(v, known.get(k, others), schema) for k, v in found})


def typed(text: str, schema: Any, root: Any) -> Any:
    """The value that a text without quotes means, by its schema, which is a part of `root`.

    A text that the schema does not describe is JSON if it is valid, else a string.

    >>> typed("12", {"type": "string"}, {}), typed("12", {"type": "integer"}, {})
    ('12', 12)
    """
    kinds, options = _allowed(schema, root, set())
    try:
        value: Any = PYTHON_WORDS[text] if text in PYTHON_WORDS and kinds else _decoded(text)
    except ValueError:
        return text
    kind = JSON_KINDS[type(value)]
    if kind == "number" and value.is_integer() and "integer" in kinds and "number" not in kinds:
        return int(value)
    fits = kind in kinds or (kind == "integer" and "number" in kinds)
    is_text = text in options or ("string" in kinds and (kind == "string" or not fits))
    return text if is_text else value


def _allowed(schema: Any, root: Any, followed: set[str]) -> tuple[set[str], list[Any]]:
    """The types of JSON that a schema allows, none if it does not say, and its listed values."""
    if not isinstance(schema, Mapping):
        return set(), []
    if isinstance(path := schema.get("$ref"), str):
        target = None if path in followed else root
        for key in path.split("/")[1:]:
            target = target.get(key) if isinstance(target, Mapping) else None
        return _allowed(target, root, followed | {path})
    options = schema.get("enum", [schema["const"]] if "const" in schema else [])
    options = options if isinstance(options, list) else []
    given = schema.get("type", [JSON_KINDS.get(type(one)) for one in options])
    kinds = {one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)}
    for key in ("anyOf", "oneOf", "allOf"):
        for one in schema[key] if isinstance(schema.get(key), list) else []:
            more, others = _allowed(one, root, followed)
            kinds, options = kinds | more, options + others
    return kinds, options


class _IncompleteError(Exception):
    """More text is needed."""


class _JsonEnd:
    """Finds where an object or a list ends, in a text that grows; reads each character once."""

    def __init__(self) -> None:
        self._start = -1
        self._at = self._depth = 0
        self._in_string = False

    def find(self, text: str, start: int) -> int:
        """The end of the value at `start`. Raises _IncompleteError."""
        if start != self._start:
            self._start = self._at = start
            self._depth, self._in_string = 0, False
        while found := (INSIDE if self._in_string else OUTSIDE).search(text, self._at):
            self._at, mark = found.end(), found[0]
            if mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "[{" else -1
                if not self._depth:
                    return self._at
        # a backslash belongs to the character after it
        self._at = max(self._at, len(text) - text.endswith("\\"))
        raise _IncompleteError


def _starts(text: str, start: int, mark: str) -> bool:
    """Whether `mark` is at a place of a text. Raises _IncompleteError if it may yet be."""
    rest = text[start : start + len(mark)]
    if rest != mark and mark.startswith(rest):
        raise _IncompleteError
    return rest == mark


def _skip(text: str, start: int, characters: str) -> int:
    while start < len(text) and text[start] in characters:
        start += 1
    return start


def _call(name: Any, arguments: Any) -> ToolCall:
    if not (isinstance(name, str) and isinstance(arguments, dict)):
        raise ValueError(f"{name!r:.60} is not the name of a tool, or has no arguments")
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def _decoded(text: str) -> Any:
    """The value of a JSON text, in whose strings models may break lines. Raises ValueError."""
    return json.loads(text, strict=False, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    """A number, which JSON can spell. Raises ValueError."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a JSON number")
    return value
