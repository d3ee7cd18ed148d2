"""How text is cut into words before byte-pair merging, as each family of models was trained.

In: the name that a GGUF file has under `tokenizer.ggml.pre`. Out: a function from text to words.
What stays true: the words, put together, are the text.

The expressions are those that the models' publishers give, in their notation: `\\p{L}` is a Unicode
category, which Python's `re` does not know, so categories are written out as ranges.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT = r"\p{N}"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORD_OR_SIGNS = rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
LLAMA3 = WORD_OR_SIGNS % r"\p{N}{1,3}" + "|" + SPACES
QWEN2 = WORD_OR_SIGNS % r"\p{N}" + "|" + SPACES

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE_WORD = r"[^\r\n\p{L}\p{N}]?"
CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def _cased(after_word: str, digits: str) -> str:
    """Words that end where small letters are followed by a capital."""
    words = (
        f"{BEFORE_WORD}{UPPER}*{LOWER}+{after_word}",
        f"{BEFORE_WORD}{UPPER}+{LOWER}*{after_word}",
    )
    return "|".join((*words, digits, CASED_SIGNS, SPACES))


GPT4O = _cased(CONTRACTION + "?", r"\p{N}{1,3}")
TEKKEN = _cased("", r"\p{N}")

DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|" + SPACES,
)

# each expression cuts what those before it left
EXPRESSIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("default", "gpt-2", "olmo", "mpt", "phi-2", "jais", "roberta-bpe"), (GPT2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), (DIGIT, GPT2)),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), (LLAMA3,)
    ),
    **dict.fromkeys(("qwen2", "stablelm2", "hunyuan", "deepseek-r1-qwen", "megrez"), (QWEN2,)),
    **dict.fromkeys(("gpt-4o", "llama4"), (GPT4O,)),
    "tekken": (TEKKEN,),
    "deepseek-v3": DEEPSEEK3,
}
# a word that is a token is that token, even where merging would give others
WHOLE_WORDS_FIRST = frozenset({"llama3", "llama-v3", "llama-bpe", "tekken", "gpt-4o", "llama4"})

# Unicode's White_Space; Python's \s also has four separators of files and records
WHITE_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
ITEM = re.compile(r"\\p\{(?P<category>\w+)\}|\\(?P<space>[sS])|\\.|(?P<bracket>[\[\]])")


def splitter(name: str) -> Callable[[str], list[str]]:
    """The function that cuts text into words as the pre-tokenizer `name` does.

    Raises ValueError, with all names, for one that is not known.

    >>> splitter("gpt-2")("Hello  world1")
    ['Hello', ' ', ' world', '1']
    """
    if name not in EXPRESSIONS:
        known = ", ".join(sorted(EXPRESSIONS))
        raise ValueError(f"the pre-tokenizer {name!r} is not supported; these are: {known}")
    return functools.partial(_split, tuple(map(_compiled, EXPRESSIONS[name])))


def _split(expressions: tuple[re.Pattern[str], ...], text: str) -> list[str]:
    words = [text] if text else []
    for expression in expressions:
        words = [part for word in words for part in _cut(expression, word)]
    return words


def _cut(expression: re.Pattern[str], text: str) -> Iterator[str]:
    """The matches of an expression, and what is between them."""
    end = 0
    for match in expression.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        yield match[0]
        end = match.end()
    if end < len(text):
        yield text[end:]


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    """An expression with its Unicode categories and spaces written as ranges."""
    inside = False

    def written(item: re.Match[str]) -> str:
        nonlocal inside
        if item["bracket"]:
            inside = item["bracket"] == "["
            return item[0]
        if not (item["category"] or item["space"]):
            return item[0]
        ranges = _ranges(item["category"]) if item["category"] else WHITE_SPACE
        if inside:
            return ranges
        return f"[^{ranges}]" if item["space"] == "S" else f"[{ranges}]"

    return re.compile(ITEM.sub(written, expression))


def _ranges(category: str) -> str:
    """The characters of a Unicode category (`Lu`, or `L` for all that start so) for a class."""
    runs = (run for name, found in _runs_of_categories().items() for run in found
            if name.startswith(category))  # fmt: skip
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in runs)


@functools.cache
def _runs_of_categories() -> dict[str, list[tuple[int, int]]]:
    """Of each Unicode category, the first and last of the characters that follow one another."""
    runs: dict[str, list[tuple[int, int]]] = {}
    first = 0
    for category, group in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        last = first + sum(1 for _ in group) - 1
        runs.setdefault(category, []).append((first, last))
        first = last + 1
    return runs
