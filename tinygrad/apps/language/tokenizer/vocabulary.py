"""The vocabulary in the metadata of a GGUF file, validated.

Input: metadata by key. Output: a `Vocabulary`. Invariants: every list has one entry per token,
every token id is in range, and every value has the type that the format defines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

PREFIX = "tokenizer.ggml."
MODELS = {"gpt2": "byte-level BPE", "llama": "SentencePiece"}
# keys of the tokens that end a turn or a text
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# control tokens, whatever type a file gives them: all that look so, and, of those that the metadata
# names, those that are no part of a text
CONTROL_TEXT = re.compile(r"<[|｜][^|｜\s]+[|｜]>|<(start|end)_of_turn>")
NAMED_CONTROL_TEXT = re.compile(r"<\S+>|\[\S+\]")


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class TokenizerError(ValueError):
    """A vocabulary that is not valid or not supported, or an unknown token id."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer metadata of a file; the id of a token is its index in `tokens`.

    Tokens that end a turn, or look like control tokens, are of that type: many files have another.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    scores: dict[int, float]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    end_ids: frozenset[int]
    adds_bos: bool
    adds_eos: bool
    space_prefix: bool

    @classmethod
    def from_gguf_kv(cls, kv: Mapping[str, Any]) -> Vocabulary:
        """Raises TokenizerError for metadata that is missing, not valid or not supported."""
        read = MetadataReader(kv)
        model = read.value("model", str)
        if model not in MODELS:
            known = " and ".join(f"{name!r} ({kind})" for name, kind in MODELS.items())
            raise TokenizerError(f"the vocabulary is of kind {model!r}; {known} are supported")
        tokens = read.list_of("tokens", str)
        count = len(tokens)
        types = read.list_of("token_type", int, [int(TokenType.NORMAL)] * count)
        scores = read.list_of("scores", float, [0.0] * count)
        for key, values in (("token_type", types), ("scores", scores)):
            if len(values) != count:
                raise TokenizerError(f"{PREFIX}{key} has {len(values)} entries for {count} tokens")
        sentence_piece = model == "llama"
        found = (read.token_id(key, count) for key in END_KEYS)
        ends = frozenset(number for number in found if number is not None)
        named = ends | {read.token_id("bos_token_id", count)}
        return cls(
            model=model,
            pre=read.value("pre", str, "default"),
            tokens=tokens,
            types=[
                _corrected(kind, tokens[number], number in named)
                for number, kind in enumerate(types)
            ],
            merges=[] if sentence_piece else read.list_of("merges", str),
            scores=dict(enumerate(scores)),
            bos_id=read.token_id("bos_token_id", count),
            eos_id=read.token_id("eos_token_id", count),
            unknown_id=read.token_id("unknown_token_id", count),
            end_ids=ends,
            adds_bos=read.value("add_bos_token", bool, sentence_piece),
            adds_eos=read.value("add_eos_token", bool, False),
            space_prefix=read.value("add_space_prefix", bool, sentence_piece),
        )

    def of_type(self, *types: TokenType) -> dict[str, int]:
        """The ids of the tokens of some types by text; of equal texts, the first."""
        ids = (number for number, kind in enumerate(self.types) if kind in types)
        found: dict[str, int] = {}
        for number in ids:
            found.setdefault(self.tokens[number], number)
        return found

    def merge_pairs(self) -> list[tuple[str, str]]:
        """The pairs that merge, in order, without repetitions. Raises TokenizerError."""
        pairs: dict[tuple[str, str], None] = {}
        for place, pair in enumerate(self.merges):
            # the first piece may itself start with a space in old files
            cut = pair.find(" ", 1)
            if not 0 < cut < len(pair) - 1:
                raise TokenizerError(f"{PREFIX}merges[{place}] is {pair!r}, not two pieces")
            pairs[pair[:cut], pair[cut + 1 :]] = None
        return list(pairs)

    def byte_tokens(self) -> dict[int, int]:
        """The token ids of bytes, whose texts are such as `<0x0A>`."""
        return {self._byte(text): number for text, number in self.of_type(TokenType.BYTE).items()}

    def _byte(self, text: str) -> int:
        try:
            if len(text) == len("<0x0A>") and text.startswith("<0x") and text.endswith(">"):
                return int(text[3:5], 16)
        except ValueError as error:
            raise TokenizerError(f"the token {text!r} is of type byte, but names none") from error
        raise TokenizerError(f"the token {text!r} is of type byte, but names none")


def _corrected(kind: int, text: str, is_named: bool) -> int:
    """The type of a token by its text, and by whether the metadata names it as an end or BOS."""
    looks_so = CONTROL_TEXT.fullmatch(text) or (is_named and NAMED_CONTROL_TEXT.fullmatch(text))
    is_wrong = kind in (TokenType.NORMAL, TokenType.USER_DEFINED) and looks_so
    return int(TokenType.CONTROL) if is_wrong else kind


class MetadataReader:
    """Reads values of metadata, and checks their types."""

    def __init__(self, kv: Mapping[str, Any]) -> None:
        self._kv = kv

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """A value of type `kind`, or `default` if it is missing. Raises TokenizerError."""
        found = self._kv.get(PREFIX + key, default)
        if found is None:
            raise TokenizerError(
                f"the file has no {PREFIX}{key}: it has no vocabulary, or is not a language model"
            )
        if type(found) is not kind:
            raise TokenizerError(f"{PREFIX}{key} is {found!r:.60}, not {kind.__name__}")
        return found

    def list_of(self, key: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        """A list of values of type `kind`. Raises TokenizerError."""
        found: list[Any] = self.value(key, list, default)
        wrong = next((item for item in found if type(item) is not kind), None)
        if wrong is not None:
            raise TokenizerError(f"{PREFIX}{key} holds {wrong!r:.60}, not only {kind.__name__}")
        return found

    def token_id(self, key: str, count: int) -> int | None:
        """A token id, or None if it is missing. Raises TokenizerError if it is out of range."""
        if self._kv.get(PREFIX + key) is None:
            return None
        found: int = self.value(key, int)
        # the maximum of uint32 means that there is no such token
        if found == 2**32 - 1:
            return None
        if not 0 <= found < count:
            raise TokenizerError(f"{PREFIX}{key} is {found}, but there are {count} tokens")
        return found
