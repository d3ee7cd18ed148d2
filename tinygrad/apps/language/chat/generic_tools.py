"""Tools for models whose chat template does not know them: described by a text.

Input: normalized messages, and tools. Output: messages of systems, users and assistants alone, with
calls in the format of `tool_calls.CALL`, which the text asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tinygrad.apps.language.chat.tool_calls import CALL, END_CALL, Tool

Message = Mapping[str, Any]

RESULT, END_RESULT = "<tool_response>", "</tool_response>"


def tool_prompt(tools: Sequence[Tool]) -> str:
    """The text that tells a model which tools there are, and how they are called."""
    described = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return (
        f"You can call these functions, each described by a JSON object:\n{described}\n\n"
        "If a function helps, call it: write its name and its arguments as a JSON object between "
        f"{CALL} and {END_CALL}, as in\n"
        f'{CALL}\n{{"name": "some_function", "arguments": {{"some_parameter": 1}}}}\n{END_CALL}\n'
        f"Its result is then given to you between {RESULT} and {END_RESULT}."
    )


def with_system_text(messages: Sequence[Message], text: str) -> list[Message]:
    """Messages with a text at the end of the system prompt.

    >>> with_system_text([{"role": "user", "content": "a"}], "b")
    [{'role': 'system', 'content': 'b'}, {'role': 'user', 'content': 'a'}]
    """
    if messages and messages[0]["role"] == "system":
        first, *rest = messages
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *rest]
    return [{"role": "system", "content": text}, *messages]


def with_user_text(messages: Sequence[Message], text: str) -> list[Message]:
    """Messages with a text before that of the first user.

    >>> with_user_text([{"role": "user", "content": "a"}], "b")
    [{'role': 'user', 'content': 'b\\n\\na'}]
    """
    roles = [message["role"] for message in messages]
    if "user" not in roles:
        return [*messages, {"role": "user", "content": text}]
    place = roles.index("user")
    first = {**messages[place], "content": f"{text}\n\n{messages[place]['content']}"}
    return [*messages[:place], first, *messages[place + 1 :]]


def tool_messages_as_text(messages: Sequence[Message]) -> list[Message]:
    """Messages whose tool calls are a part of their text, and whose results are a user's.

    A result is in one message with those beside it and with what the user says next, as many
    templates want roles to alternate.

    >>> tool_messages_as_text([{"role": "tool", "content": "3"}])
    [{'role': 'user', 'content': '<tool_response>\\n3\\n</tool_response>'}]
    """
    found: list[Message] = []
    after_result = False
    for message in messages:
        is_result = message.get("role") == "tool"
        plain = _result_as_text(message) if is_result else _calls_as_text(message)
        if after_result and plain.get("role") == "user":
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n{plain['content']}"}
        else:
            found.append(plain)
        after_result = is_result
    return found


def _result_as_text(message: Message) -> Message:
    return {"role": "user", "content": f"{RESULT}\n{message['content']}\n{END_RESULT}"}


def _calls_as_text(message: Message) -> Message:
    calls = [_call_as_text(call["function"]) for call in message.get("tool_calls") or ()]
    if not calls:
        return message
    parts = [message["content"], *calls] if message.get("content") else calls
    plain = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**plain, "content": "\n".join(parts)}


def _call_as_text(function: Mapping[str, Any]) -> str:
    # a model may have generated arguments that are no object
    name, arguments = json.dumps(function["name"], ensure_ascii=False), function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'{CALL}\n{{"name": {name}, "arguments": {text}}}\n{END_CALL}'
