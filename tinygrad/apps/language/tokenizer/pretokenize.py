"""How text is cut into words before byte-pair merging, as each family of models was trained.

Input: the name that a GGUF file has under `tokenizer.ggml.pre`. Output: a pre-tokenizer of the
`tokenizers` package. Invariant: the words, put together, are the text.

The expressions are those that the models' publishers give, in the notation of the package:
`\\p{L}` is a Unicode category.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

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


def pre_tokenizer(preset: str) -> PreTokenizer:
    """What cuts text into words as the pre-tokenizer `preset` does.

    Raises ValueError, with all names, for one that is not known, ImportError without `tokenizers`.

    >>> words = pre_tokenizer("gpt-2").pre_tokenize_str("Hello  world1")
    >>> [word for word, _ in words]
    ['Hello', ' ', ' world', '1']
    """
    if preset not in EXPRESSIONS:
        known = ", ".join(sorted(EXPRESSIONS))
        raise ValueError(f"the pre-tokenizer {preset!r} is not supported; these are: {known}")
    from tokenizers import Regex, pre_tokenizers

    cuts = [pre_tokenizers.Split(Regex(one), "isolated") for one in EXPRESSIONS[preset]]
    return pre_tokenizers.Sequence(cuts)
