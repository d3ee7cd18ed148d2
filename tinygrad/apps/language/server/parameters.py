"""The parameters of requests: those that work, those without effect on a reply, those refused.

Input: the body of a request. Output: `ApiError` for a parameter that does not work here; none is
ignored silently. `docs/llm.md` lists them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Set
from typing import Any

from tinygrad.apps.language.server.request_fields import ApiError

SAMPLING = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
}
STRUCTURE = {
    "response_format",
    "json_schema",
    "grammar",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
}
COMMON = {
    *SAMPLING,
    *STRUCTURE,
    "model",
    "max_tokens",
    "n_predict",
    "min_tokens",
    "ignore_eos",
    "stop",
    "stop_token_ids",
    "n",
    "stream",
    "stream_options",
    "logprobs",
}
CHAT = {
    *COMMON,
    "messages",
    "max_completion_tokens",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "chat_template_kwargs",
}
COMPLETION = {*COMMON, "prompt", "echo"}
# of accounts, billing and caches; they do not change a reply
WITHOUT_EFFECT = {
    "cache_prompt",
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
}
# what does not work here, or only at the other path, with the values that ask for nothing else than
# what is done anyway
REFUSED: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True,),
    "store": (False,),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
    "verbosity": ("medium",),
    "mirostat": (0,),
    "mirostat_tau": (),
    "mirostat_eta": (),
    "typical_p": (1,),
    "tfs_z": (1,),
}


def check_names(body: Mapping[str, Any], known: Set[str]) -> None:
    """Raise ApiError for a parameter of `body` that is not `known`, unless it changes nothing."""
    for name, value in body.items():
        if name in known or name in WITHOUT_EFFECT:
            continue
        if name in REFUSED:
            if value not in REFUSED[name]:
                raise ApiError(400, f"{name} is not supported", name, "unsupported_parameter")
            continue
        close = difflib.get_close_matches(name[:80], known, 1)
        hint = f"; is {close[0]} meant?" if close else ""
        shown = name[:80]
        raise ApiError(400, f"there is no parameter {shown!r}{hint}", shown, "unknown_parameter")
