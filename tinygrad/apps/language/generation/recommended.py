"""The sampling parameters that a model's authors recommend.

Input: the metadata of a file, and the model's name. Output: `Sampling` parameters by name.
Invariant: what a file recommends is checked, and comes before what is known of its family.
The keys of files: https://github.com/ggml-org/llama.cpp/pull/17120
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tinygrad.apps.language.generation.sampling import Sampling

PREFIX = "general.sampling."
KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
# from the model cards, by the start of a name in lower case, without hyphens and spaces
FAMILIES: dict[str, dict[str, float]] = {
    "smollm2": {"temperature": 0.2, "top_p": 0.9},
    "llama3": {"temperature": 0.6, "top_p": 0.9},
    "qwen2.5": {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05},
    "qwen3": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "gemma": {"temperature": 1.0, "top_k": 64, "top_p": 0.95},
    "deepseekr1": {"temperature": 0.6, "top_p": 0.95},
}
OTHERS = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05}


def recommended_sampling(metadata: Mapping[str, Any], name: str) -> dict[str, float]:
    """Parameters of `Sampling` for a model. Raises ValueError for a file with invalid ones.

    >>> recommended_sampling({}, "smollm2:135m")
    {'temperature': 0.2, 'top_p': 0.9}
    >>> recommended_sampling({"general.name": "Meta Llama 3.1 8B"}, "m.Q4_K_M")["temperature"]
    0.6
    >>> recommended_sampling({"general.sampling.temp": 0.5}, "smollm2:135m")["temperature"]
    0.5
    """
    family = _family(name, metadata.get("general.basename"), metadata.get("general.name"))
    given: dict[str, float] = {}
    for key, parameter in KEYS.items():
        value = metadata.get(PREFIX + key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{PREFIX}{key} of the file is {value!r:.40}; it must be a number")
        # a float32 of the file, without the digits that it does not have
        given[parameter] = value if isinstance(value, int) else float(f"{value:.7g}")
    found = family | given
    try:
        Sampling(**found)  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{PREFIX}* of the file: {error}") from error
    return found


def _family(*names: Any) -> dict[str, float]:
    """The parameters of the family that the first of some names has, or `OTHERS`."""
    for name in (x for x in names if isinstance(x, str)):
        plain = re.sub("[-_ ]", "", name.lower()).removeprefix("meta")
        for start, known in FAMILIES.items():
            if plain.startswith(start):
                return known
    return OTHERS
