"""Structured output: replies that must be JSON of a schema, or a tool call.

Input: a chat template, which knows the format of the model's tool calls, whether the prompt ends
inside of reasoning (`thinking`), tools and a schema. Output: a `ReplyFormat`: the start of the
reply and a grammar for the rest. Invariant: a reply that completes the grammar is parsed by
`reply_parser` as the requested JSON or tool call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.apps.language.chat.reply_parser import CLOSE_REASONING
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.chat.tool_calls import CALL, MISTRAL, Tool
from tinygrad.apps.language.generation.grammar import (
    ANY_OBJECT,
    Rules,
    json_rule,
    json_rules,
    text_rule,
)


@dataclass(frozen=True)
class ReplyFormat:
    """The start of a reply, which is appended to the prompt, and grammar rules for the rest."""

    start: str
    rules: Rules


@dataclass(frozen=True)
class ToolCallSyntax:
    """The format of a tool call: a mark, the text after it, the key of the arguments, the end."""

    mark: str
    gap: str
    key: str
    end: str = ""


def tool_call_syntax(template: ChatTemplate) -> ToolCallSyntax:
    """The tool call format of the model that a template belongs to."""
    if template.call_mark == CALL:
        return ToolCallSyntax(CALL, "\n", "arguments")
    if template.call_mark == MISTRAL:
        return ToolCallSyntax(MISTRAL, "[", "arguments", "]")
    return ToolCallSyntax("", "", "parameters")


def tool_call_format(
    template: ChatTemplate, thinking: bool, tools: Sequence[Tool], name: str
) -> ReplyFormat:
    """The format of a call of the tool `name`, or of any tool if it is empty."""
    syntax = tool_call_syntax(template)
    start = f'{_after_reasoning(thinking)}{syntax.mark}{syntax.gap}{{"name":'
    if not name:
        return ReplyFormat(start, Rules("start: " + _calls(syntax, tools)))
    tool = next(tool for tool in tools if tool["function"]["name"] == name)
    rules = Rules("start: " + _arguments(syntax, tool))
    return ReplyFormat(start + _named(syntax, tool), rules)


def grammar_reply_format(thinking: bool, grammar: Rules) -> ReplyFormat:
    """The format of a reply by a grammar."""
    return ReplyFormat(_after_reasoning(thinking), grammar)


def json_reply_format(
    template: ChatTemplate,
    thinking: bool,
    tools: Sequence[Tool],
    schema: Mapping[str, Any],
    control: Mapping[str, int],
) -> ReplyFormat:
    """The format of JSON by a schema, or a tool call if there are tools.

    The mark of tool calls may be one of the `control` tokens.
    """
    start = _after_reasoning(thinking)
    if not tools:
        return ReplyFormat(start, json_rules(schema))
    syntax = tool_call_syntax(template)
    calls = [_call_schema(syntax, tool, number) for number, tool in enumerate(tools)]
    if not syntax.mark:
        # two rules with the same first character would be decided at that character
        either = {"anyOf": [{"$id": "reply", **schema}, *calls]}
        return ReplyFormat(start, json_rules(either))
    mark = f"<[{control[syntax.mark]}]>" if syntax.mark in control else text_rule(syntax.mark)
    call = json_rule({"anyOf": calls}, is_lenient=True)
    rule = f"{mark} {text_rule(syntax.gap)} {call} {text_rule(syntax.end)}"
    return ReplyFormat(start, Rules(f"start: {json_rule(schema)} | {rule}"))


def _after_reasoning(thinking: bool) -> str:
    """The text that closes the reasoning that a prompt opened."""
    return CLOSE_REASONING if thinking else ""


def _calls(syntax: ToolCallSyntax, tools: Sequence[Tool]) -> str:
    """The rest of a tool call, from the name of the tool."""
    return " | ".join(
        f"{text_rule(_named(syntax, tool))} {_arguments(syntax, tool)}" for tool in tools
    )


def _named(syntax: ToolCallSyntax, tool: Tool) -> str:
    return f' {json.dumps(tool["function"]["name"])}, "{syntax.key}":'


def _arguments(syntax: ToolCallSyntax, tool: Tool) -> str:
    # keywords of tool schemas that are not supported are hints to the model, not guarantees
    json_ = json_rule(_parameters(tool), is_lenient=True)
    return f'" " {json_} {text_rule("}" + syntax.end)}'


def _call_schema(syntax: ToolCallSyntax, tool: Tool, number: int) -> Mapping[str, Any]:
    """The schema of a tool call; `$id` keeps references in that of the arguments local."""
    arguments = {"$id": f"tool-{number}", **_parameters(tool)}
    return {
        "type": "object",
        "properties": {"name": {"const": tool["function"]["name"]}, syntax.key: arguments},
        "required": ["name", syntax.key],
        "additionalProperties": False,
    }


def _parameters(tool: Tool) -> Mapping[str, Any]:
    return {**ANY_OBJECT, **tool["function"]["parameters"]}
