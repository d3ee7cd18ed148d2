"""Requests that are made to break the server."""

from __future__ import annotations

from random import Random
from typing import Any

USER = {"role": "user", "content": "Hi"}
CHAT = "/v1/chat/completions"


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}}
    return value


def with_schema(schema: Any) -> dict[str, Any]:
    described = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"messages": [USER], "response_format": described}


def with_variables(**variables: Any) -> dict[str, Any]:
    return {"messages": [USER], "chat_template_kwargs": variables}


def called_with(arguments: str) -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}


def junk(random: Random, depth: int = 0) -> Any:
    """A random JSON value, with names and values that mean something among others."""
    kinds = [
        lambda: random.choice([None, True, False, 0, -1, 2**70, 1e308, 0.5, "", "a", "\x00", "💥"]),
        lambda: [junk(random, depth + 1) for _ in range(random.randrange(3))],
        lambda: {random.choice(NAMES): junk(random, depth + 1) for _ in range(random.randrange(4))},
    ]
    return random.choice(kinds if depth < 4 else kinds[:1])()


NAMES = [
    *("messages", "role", "content", "type", "text", "tools", "function", "name", "parameters"),
    *(
        "response_format",
        "json_schema",
        "schema",
        "properties",
        "items",
        "anyOf",
        "pattern",
        "$ref",
    ),
    *("tool_choice", "tool_calls", "arguments", "stop", "n", "stream", "logprobs", "logit_bias"),
    *("temperature", "top_p", "seed", "max_tokens", "chat_template_kwargs", "guided_choice"),
]


# what a model might write to run a script in the page
MARKUP_ATTACKS = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "[a](javascript:window.hacked=1)",
    '<a href="javascript:window.hacked=1">a</a>',
    "<javascript:window.hacked=1>",
    "[a](JaVaScRiPt:window.hacked=1)",
    "[a](java\nscript:window.hacked=1)",
    "[a](&#106;avascript:window.hacked=1)",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    '[a](https://x.y/"onmouseover="window.hacked=1)',
    '![a](https://x.y/a.png"onerror="window.hacked=1)',
    '![a"onerror="window.hacked=1](x)',
    "<svg/onload=window.hacked=1>",
    "<iframe srcdoc='<script>parent.hacked = 1</script>'></iframe>",
    "```<script>window.hacked = 1</script>\n</code></pre><script>window.hacked = 1</script>\n```",
    "`</code><script>window.hacked = 1</script>`",
    "https://x.y/<script>window.hacked=1</script>",
    "[x]: javascript:window.hacked=1\n\n[x]",
    "<details open ontoggle=window.hacked=1>",
    "<style>* { display: none }</style>",
]
