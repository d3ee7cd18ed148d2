"""What a reply must be: JSON of a schema, or a call of a tool, in the way that its model writes it.

In: a template, which shows how its model writes calls, tools and a schema. Out: a `Demand`: how the
reply starts, and the rules for the rest of it (see `grammar`). What stays true: a reply that
follows the rules to their end is read by `replies` as what was demanded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.apps.language.chat.reply_parser import CALL, END_THINK, MISTRAL, THINK
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.generation.grammar import ANY_OBJECT, json_rule, text_rule

Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Demand:
    """The start of a reply, which its model finds there and goes on with, and rules for the rest.

    A model that finds its reply begun so cannot but go on with it.
    """

    start: str
    rules: str


@dataclass(frozen=True)
class CallForm:
    """How a model writes a call: a mark, what is behind it, the key of the arguments, and the end
    without which it is not read."""

    mark: str
    gap: str
    key: str
    end: str = ""


def form_of(template: ChatTemplate) -> CallForm:
    """How the model of a template writes calls."""
    if CALL in template.source:
        return CallForm(CALL, "\n", "arguments")
    if MISTRAL in template.source:
        return CallForm(MISTRAL, "[", "arguments", "]")
    return CallForm("", "", "parameters")


def call_demand(template: ChatTemplate, prompt: str, tools: Sequence[Tool], name: str) -> Demand:
    """A call of the tool of this name, or of any if that is empty."""
    form = form_of(template)
    start = f'{_after_reasoning(prompt)}{form.mark}{form.gap}{{"name":'
    if not name:
        return Demand(start, "start: " + _calls(form, tools))
    tool = next(tool for tool in tools if tool["function"]["name"] == name)
    return Demand(start + _named(form, tool), "start: " + _arguments(form, tool))


def reply_demand(
    template: ChatTemplate,
    prompt: str,
    tools: Sequence[Tool],
    schema: Mapping[str, Any],
    control: Mapping[str, int],
) -> Demand:
    """JSON of a schema, or a call if there are tools; the marks of some are `control` tokens."""
    start = _after_reasoning(prompt)
    if not tools:
        return Demand(start, f"start: {json_rule(schema)}")
    form = form_of(template)
    calls = [_call_schema(form, tool, number) for number, tool in enumerate(tools)]
    if not form.mark:
        # two rules that start with the same brace would be one choice, made there
        either = {"anyOf": [{"$id": "reply", **schema}, *calls]}
        return Demand(start, f"start: {json_rule(either)}")
    mark = f"<[{control[form.mark]}]>" if form.mark in control else text_rule(form.mark)
    call = json_rule({"anyOf": calls}, is_lenient=True)
    rule = f"{mark} {text_rule(form.gap)} {call} {text_rule(form.end)}"
    return Demand(start, f"start: {json_rule(schema)} | {rule}")


def _after_reasoning(prompt: str) -> str:
    """What ends the reasoning that a prompt began."""
    return f"\n{END_THINK}\n\n" if prompt.rstrip().endswith(THINK) else ""


def _calls(form: CallForm, tools: Sequence[Tool]) -> str:
    """The rest of a call, from the name of its tool on."""
    return " | ".join(f"{text_rule(_named(form, tool))} {_arguments(form, tool)}" for tool in tools)


def _named(form: CallForm, tool: Tool) -> str:
    return f' {json.dumps(tool["function"]["name"])}, "{form.key}":'


def _arguments(form: CallForm, tool: Tool) -> str:
    # what is not known of these schemas is a hint to the model, and no promise to who asks
    json_ = json_rule(_parameters(tool), is_lenient=True)
    return f'" " {json_} {text_rule("}" + form.end)}'


def _call_schema(form: CallForm, tool: Tool, number: int) -> Mapping[str, Any]:
    """The schema of a call. References within that of the arguments stay within."""
    arguments = {"$id": f"tool-{number}", **_parameters(tool)}
    return {
        "type": "object",
        "properties": {"name": {"const": tool["function"]["name"]}, form.key: arguments},
        "required": ["name", form.key],
        "additionalProperties": False,
    }


def _parameters(tool: Tool) -> Mapping[str, Any]:
    return {**ANY_OBJECT, **tool["function"]["parameters"]}
