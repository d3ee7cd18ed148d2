"""Models split into several files, `name-00001-of-00003.gguf` and so on.

Input: the path or URL of one of them, or of a model in one file. Output: those of all. Invariants:
the first file has the metadata, and each weight is in one of them.
"""

from __future__ import annotations

import re

PART = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf($|\?))")


def names_of_parts(name: str) -> list[str]:
    """The names of all files of a model, of which `name` is one.

    Raises ValueError for the number of a part that is out of range.

    >>> names_of_parts("llm.gguf"), names_of_parts("llm-00002-of-00002.gguf")
    (['llm.gguf'], ['llm-00001-of-00002.gguf', 'llm-00002-of-00002.gguf'])
    """
    found = PART.search(name)
    if found is None:
        return [name]
    number, count = int(found[1]), int(found[2])
    if not 1 <= number <= count:
        raise ValueError(f"{name} is part {number} of {count}; there is no such part")
    before, after = name[: found.start()], name[found.end() :]
    return [f"{before}-{part:05}-of-{found[2]}{after}" for part in range(1, count + 1)]
