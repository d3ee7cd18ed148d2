"""Validation of request fields: numbers, texts, messages, tools and schemas.

Input: JSON. Output: checked values; of messages and tools, only the fields that templates and
grammars use. Raises `ApiError`, which names the field, such as `messages[1].content`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple, NoReturn

from tinygrad.apps.language.generation.grammar import ANY_OBJECT, Rules, text_rule

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_TOOLS = 128
# levels of objects and lists in a request: schemas and templates are read recursively
MAX_DEPTH = 64
JSON_TYPES = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


class ApiError(Exception):
    """An error response: a message, the HTTP status, and the fields of OpenAI's errors."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        kind: str = "invalid_request_error",
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.status, self.message = status, message
        self.param, self.code, self.kind = param, code, kind


class Fields:
    """The fields of a JSON object, each checked when it is read. A null counts as missing.

    >>> Fields({"n": 2, "stop": None}).integer("n", 1, 4)
    2
    """

    def __init__(self, body: Mapping[str, Any], where: str = "") -> None:
        self.body = {name: value for name, value in body.items() if value is not None}
        self.where = where

    def wrong(self, name: str, wanted: str) -> ApiError:
        """The error for a field of another type or value."""
        found = self.body.get(name)
        shown = f"{found!r:.60}" if isinstance(found, int | float | str) else json_type(found)
        path = self.where + name
        return ApiError(400, f"{path} must be {wanted}, not {shown}", path, "invalid_type")

    def only(self, known: Set[str]) -> None:
        """Raise ApiError for a field that is not `known`."""
        if unknown := self.body.keys() - known:
            path = self.where + min(unknown)[:80]
            message = f"there is no {path}; there are {', '.join(sorted(known))}"
            raise ApiError(400, message, path, "unknown_parameter")

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        return bool(self._value(name, bool, default))

    def text(self, name: str) -> str | None:
        """A text, or None if it is missing."""
        found: str | None = self._value(name, str, None)
        return found

    def required_text(self, name: str) -> str:
        """A text that is not empty. Raises ApiError if it is missing."""
        found = self.text(name)
        if not found:
            raise self.wrong(name, "a text that is not empty")
        return found

    def object(self, name: str) -> dict[str, Any]:
        """An object, empty if it is missing."""
        found: dict[str, Any] = self._value(name, dict, {})
        return found

    def list_of_objects(self, name: str) -> list[dict[str, Any]]:
        """A list of objects, empty if it is missing."""
        found: list[dict[str, Any]] = self._value(name, list, [])
        if not all(isinstance(item, dict) for item in found):
            raise self.wrong(name, "a list of objects")
        return found

    def integer(self, name: str, low: int, high: int) -> int | None:
        """An integer from `low` to `high`, or None if it is missing."""
        found = self.number(name, low, high)
        if found is None:
            return None
        if found != int(found):
            raise self.wrong(name, "a whole number")
        return int(found)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A number from `low` to `high`, or None if it is missing."""
        found = self.body.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.wrong(name, "a number")
        if not low <= found <= high:
            start = "above 0, up" if 0 < low <= math.ulp(0.0) else f"from {low}"
            raise self.wrong(name, f"a number {start} to {high}")
        return found

    def _value(self, name: str, kind: type, default: Any) -> Any:
        found = self.body.get(name)
        if found is None:
            return default
        if not isinstance(found, kind):
            raise self.wrong(name, JSON_TYPES[kind])
        return found


def nested_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also for one nested deeper than `MAX_DEPTH`.

    >>> nested_json('{"a": [1]}')
    {'a': [1]}
    """
    too_deep = ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        parsed = json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise too_deep from error
    level = [parsed]
    for _ in range(MAX_DEPTH):
        nested = [one for one in level if isinstance(one, dict | list)]
        level = [x for one in nested for x in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return parsed
    raise too_deep


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def json_type(value: object) -> str:
    """The JSON type of a value, for messages.

    >>> json_type([])
    'a list'
    """
    if value is None:
        return "null"
    return JSON_TYPES.get(type(value), "a number")


def messages_of(fields: Fields) -> list[dict[str, Any]]:
    """The conversation of a request. Raises ApiError."""
    messages = fields.list_of_objects("messages")
    if not messages:
        raise ApiError(400, "messages must have at least one message", "messages")
    return [_message(Fields(one, f"messages[{at}].")) for at, one in enumerate(messages)]


def _message(fields: Fields) -> dict[str, Any]:
    role = fields.body.get("role")
    if role not in ROLES:
        raise fields.wrong("role", f"one of {', '.join(ROLES)}")
    message: dict[str, Any] = {"role": role, "content": _content(fields)}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (text := fields.text(name)) is not None:
            message[name] = text
    calls = fields.list_of_objects("tool_calls")
    if calls:
        place = f"{fields.where}tool_calls"
        message["tool_calls"] = [_call(Fields(c, f"{place}[{at}].")) for at, c in enumerate(calls)]
    if message["content"] is None and not (calls and role == "assistant"):
        raise fields.wrong("content", "a text, or a list of parts")
    return message


def _content(fields: Fields) -> str | None:
    content = fields.body.get("content")
    if content is None or isinstance(content, str):
        return content
    parts = fields.list_of_objects("content")
    texts = []
    for at, part in enumerate(parts):
        inner = Fields(part, f"{fields.where}content[{at}].")
        if part.get("type") not in ("text", "input_text"):
            raise inner.wrong("type", "'text': this model reads text only")
        texts.append(inner.text("text") or "")
    return "".join(texts)


def _call(fields: Fields) -> dict[str, Any]:
    """A tool call of an earlier reply; its arguments stay JSON text."""
    function = Fields(fields.object("function"), f"{fields.where}function.")
    arguments = function.body.get("arguments", "{}")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    if not isinstance(arguments, str):
        raise function.wrong("arguments", "a text with JSON")
    if arguments.count("{") + arguments.count("[") > MAX_DEPTH:
        _check_depth(arguments, f"{function.where}arguments")
    called = {"name": function.required_text("name"), "arguments": arguments}
    return {"id": fields.text("id") or "", "type": "function", "function": called}


def _check_depth(arguments: str, place: str) -> None:
    """Raise ApiError for arguments nested too deeply; a model may have generated invalid ones."""
    try:
        nested_json(arguments)
    except json.JSONDecodeError:
        return
    except ValueError as error:
        raise ApiError(400, f"{place}: {error}", place) from error


def tools_of(fields: Fields) -> list[dict[str, Any]]:
    """The tools of a request that the model may call. Raises ApiError."""
    tools = fields.list_of_objects("tools")
    if len(tools) > MAX_TOOLS:
        raise ApiError(400, f"there are {len(tools)} tools; at most {MAX_TOOLS} are taken", "tools")
    checked = [_tool(Fields(tool, f"tools[{at}].")) for at, tool in enumerate(tools)]
    return [] if fields.body.get("tool_choice") == "none" else checked


def forced_call_of(fields: Fields, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """The tool that must be called: its name, "" for any, None without one. Raises ApiError."""
    choice = fields.body.get("tool_choice")
    if choice in (None, "auto", "none"):
        return None
    names = [tool["function"]["name"] for tool in tools]
    if choice == "required" and names:
        return names[0] if len(names) == 1 else ""
    if isinstance(choice, dict):
        function = Fields(Fields(choice, "tool_choice.").object("function"), "tool_choice.")
        if (name := function.text("name")) in names:
            return name
    known = ", ".join(names) or "and there are none"
    raise fields.wrong("tool_choice", f"auto, none, required or one of the tools ({known})")


def schema_of(fields: Fields) -> Mapping[str, Any] | None:
    """The JSON schema of `response_format`; None for plain text. Raises ApiError.

    The schema is that of `json_schema`, as in OpenAI's API, or stands beside the type, as
    llama.cpp's server takes it.
    """
    wanted = Fields(fields.object("response_format"), "response_format.")
    wanted.only({"type", "json_schema", "schema"})
    kind = wanted.body.get("type", "text")
    if kind not in ("text", "json_object", "json_schema"):
        raise wanted.wrong("type", "text, json_object or json_schema")
    described = Fields(wanted.object("json_schema"), "response_format.json_schema.")
    owners = [owner for owner in (described, wanted) if "schema" in owner.body]
    if len(owners) > 1 or (owners and kind == "text"):
        raise owners[-1].wrong("schema", "given once, for JSON")
    if owners:
        return owners[0].object("schema")
    if kind == "json_schema":
        raise described.wrong("schema", "an object")
    return ANY_OBJECT if kind == "json_object" else None


class Structure(NamedTuple):
    """What a reply must match: a JSON schema, or the rules of one that is no JSON, and the field
    that has it; all None for plain text.
    """

    schema: Mapping[str, Any] | None = None
    grammar: Rules | None = None
    field: str | None = None


def structure_of(fields: Fields) -> Structure:
    """What a reply must match. Raises ApiError.

    The names beside OpenAI's `response_format` are those of llama.cpp and of vLLM.
    """
    nested = Fields(fields.object("structured_outputs"), "structured_outputs.")
    nested.only({"json", "regex", "choice", "grammar"})
    found = [Structure(schema=schema_of(fields), field="response_format")]
    for owner, prefix in ((fields, "guided_"), (nested, "")):
        where = owner.where + prefix
        found += (
            Structure(schema=_schema(owner, prefix + "json"), field=where + "json"),
            Structure(grammar=_pattern(owner, prefix + "regex"), field=where + "regex"),
            Structure(grammar=_choice(owner, prefix + "choice"), field=where + "choice"),
            Structure(grammar=_grammar(owner, prefix + "grammar"), field=where + "grammar"),
        )
    found += (
        Structure(schema=_schema(fields, "json_schema"), field="json_schema"),
        Structure(grammar=_grammar(fields, "grammar"), field="grammar"),
    )
    given = [one for one in found if one.schema is not None or one.grammar is not None]
    if len(given) > 1:
        names = " and ".join(str(one.field) for one in given)
        raise ApiError(
            400, f"a reply can have one schema or grammar, not several: {names}", given[1].field
        )
    structure = given[0] if given else Structure()
    if structure.grammar is not None and fields.list_of_objects("tools"):
        raise ApiError(400, "a reply with a grammar cannot have tools", "tools")
    return structure


def _schema(fields: Fields, name: str) -> Mapping[str, Any] | None:
    return None if fields.body.get(name) is None else fields.object(name)


def _pattern(fields: Fields, name: str) -> Rules | None:
    text = fields.text(name)
    return None if text is None else Rules(text, "regex")


def _choice(fields: Fields, name: str) -> Rules | None:
    texts = fields.body.get(name)
    if texts is None:
        return None
    if not isinstance(texts, list) or not all(isinstance(x, str) and x for x in texts) or not texts:
        raise fields.wrong(name, "a list of texts that are not empty")
    return Rules("start: " + " | ".join(map(text_rule, texts)))


def _grammar(fields: Fields, name: str) -> Rules | None:
    text = fields.text(name)
    if not text:
        return None
    return Rules(text, "gbnf" if "::=" in text else "lark")


def _tool(fields: Fields) -> dict[str, Any]:
    if fields.body.get("type") != "function":
        raise fields.wrong("type", "'function'")
    function = Fields(fields.object("function"), f"{fields.where}function.")
    described: dict[str, Any] = {"name": function.required_text("name")}
    if (text := function.text("description")) is not None:
        described["description"] = text
    described["parameters"] = function.object("parameters")
    return {"type": "function", "function": described}
