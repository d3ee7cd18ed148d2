"""Text to token ids by the `tokenizers` package, for text in which no token is special.

Input: the pieces of a vocabulary with their ids, and the order in which they merge. Output: a
function from text to ids. Invariant: the ids are those of llama.cpp, so the pieces, put together,
are the text, but for bytes that the vocabulary has no token for: SmolLM2's lacks some bytes of rare
characters, which are left out, as models were trained.

The package needs a list of merges with a rank for each. GGUF files of byte-level BPE have one; for
vocabularies with a score or rank for each piece it is made here. Three things that the package
cannot do are done here:

- It cannot merge the leftmost of several pairs of equal rank. Vocabularies with equal scores, as
  some converters write them, are merged by `merging.py`. So are those whose list of merges would be
  very long: for Gemma's 262,144 pieces, making it takes longer than encoding most prompts.
- It rejects merges into pieces without a token. Such pieces have ids past the end of the vocabulary
  here, which are replaced by the ids of their characters.
- It replaces unknown characters before it merges. Those of SentencePiece have such ids too, so that
  they stay between their neighbours.

Special tokens are found by `tokenizer.py`: the package cannot turn them off for one call.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from tinygrad.apps.language.tokenizer.merging import merge_symbols
from tinygrad.apps.language.tokenizer.pretokenize import WHOLE_WORDS_FIRST, pre_tokenizer
from tinygrad.apps.language.tokenizer.vocabulary import TokenizerError

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.pre_tokenizers import PreTokenizer

SPACE_MARK = "\u2581"
# no merges make it
UNKNOWN = "<unknown character>"
# limits for making a list of merges, in time and memory
MAX_PIECE_LENGTH = 256
MAX_SPLITS = 1 << 19
REMEMBERED_WORDS = 1 << 16

Encode: TypeAlias = Callable[[str], list[int]]
Merges: TypeAlias = Sequence[tuple[str, str]]


def byte_level_encoder(ids: Mapping[str, int], merges: Merges, preset: str) -> Encode:
    """Byte-level BPE: cuts text into words, and merges the bytes of each in the order of `merges`.

    `ids` are those of pieces in GPT-2's spelling of bytes, `preset` is the pre-tokenizer's name.
    Raises ValueError for a preset that is not known, ImportError without `tokenizers`.
    """
    words = _words(preset)
    pieces = _Pieces(ids, lambda piece: [ids[character] for character in piece])
    known = []
    for left, right in merges:
        if left in ids and right in ids and left + right in ids:
            known.append((left, right))
        # characters without a token are left out before any merge
        elif all(character in ids for character in left + right):
            known.append((left, right))
            pieces.add_missing((left, right, left + right))
    tokenizer = pieces.tokenizer(known, ignore_merges=preset in WHOLE_WORDS_FIRST)
    tokenizer.pre_tokenizer = words
    return pieces.encoder(tokenizer)


def ranked_encoder(ids: Mapping[str, int], preset: str) -> Encode:
    """Byte-level BPE in which pieces merge in the order of their ids. Raises as above."""
    costs = {piece: float(number) for piece, number in ids.items() if len(piece) > 1}
    merges = merges_by_cost(costs)
    if merges is not None:
        return byte_level_encoder(ids, merges, preset)
    words = _words(preset)

    @functools.lru_cache(REMEMBERED_WORDS)
    def ids_of_word(word: str) -> list[int]:
        if preset in WHOLE_WORDS_FIRST and word in ids:
            return [ids[word]]
        known = [character for character in word if character in ids]
        return [ids[piece] for piece in merge_symbols(known, lambda l, r: costs.get(l + r))]

    def by_hand(text: str) -> list[int]:
        found = words.pre_tokenize_str(replace_surrogates(text))
        return [number for word, _ in found for number in ids_of_word(word)]

    return by_hand


def _words(preset: str) -> PreTokenizer:
    """What cuts text into words, in GPT-2's spelling of bytes."""
    _import()
    from tokenizers import pre_tokenizers

    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizer(preset), bytes_])


def sentence_piece_encoder(
    ids: Mapping[str, int],
    scores: Mapping[int, float],
    byte_ids: Mapping[int, int],
    unknown_id: int | None,
) -> Encode:
    """SentencePiece BPE: merges characters to the pieces of highest score; others become bytes.

    Where a byte of a character has no token, the character is `unknown_id`, or left out. Raises
    ImportError without `tokenizers`.
    """
    costs = {piece: -scores[number] for piece, number in ids.items()}
    unknown = [] if unknown_id is None else [unknown_id]

    def fallback(character: str) -> list[int]:
        data = bytes_of_sentence_piece(character)
        if all(byte in byte_ids for byte in data):
            return [byte_ids[byte] for byte in data]
        return unknown

    def by_hand(text: str) -> list[int]:
        found = merge_symbols(_mark_spaces(text), lambda left, right: costs.get(left + right))
        return [
            number
            for piece in found
            for number in ([ids[piece]] if piece in ids else fallback(piece))
        ]

    merges = merges_by_cost(costs)
    if merges is None:
        return by_hand
    _import()
    pieces = _Pieces(ids, lambda piece: unknown if piece == UNKNOWN else fallback(piece))
    pieces.add_missing({character for pair in merges for character in chain(*pair)})
    pieces.add_missing([UNKNOWN])
    pieces.ids |= {f"<0x{byte:02X}>": number for byte, number in byte_ids.items()}
    tokenizer = pieces.tokenizer(merges, unk_token=UNKNOWN, byte_fallback=bool(byte_ids))
    encode = pieces.encoder(tokenizer)
    return lambda text: encode(_mark_spaces(text))


def merges_by_cost(costs: Mapping[str, float]) -> list[tuple[str, str]] | None:
    """The pairs that merge into a piece, by the cost of the piece.

    A piece that merges at all does so from one pair: that of the last merge of its own text. The
    order of several pairs for one piece is therefore of no importance, and they can have ranks of
    their own. None if two pieces cost the same, or if there are too many pairs to list.

    >>> merges_by_cost({"a": 0.0, "b": 1.0, "ab": 2.0})
    [('a', 'b')]
    """
    longer = [piece for piece in costs if len(piece) > 1]
    lengths = Counter(map(len, longer))
    splits = sum((length - 1) * count for length, count in lengths.items())
    if max(lengths, default=0) > MAX_PIECE_LENGTH or splits > MAX_SPLITS:
        return None
    longer.sort(key=costs.__getitem__)
    merges: list[tuple[str, str]] = []
    last_cost: float | None = None
    for piece in longer:
        pairs = list(_pairs(piece, costs))
        if not pairs:
            continue
        if costs[piece] == last_cost:
            return None
        merges += pairs
        last_cost = costs[piece]
    return merges


def _pairs(piece: str, costs: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The ways to cut a piece into two that are characters or pieces."""
    end = len(piece)
    for cut in range(1, end):
        left, right = piece[:cut], piece[cut:]
        if (cut == 1 or left in costs) and (cut == end - 1 or right in costs):
            yield left, right


class _Pieces:
    """The vocabulary for the package: `ids`, and pieces without a token, with ids past the end.

    `ids_of` gives the ids that stand for a piece without a token.
    """

    def __init__(self, ids: Mapping[str, int], ids_of: Callable[[str], list[int]]) -> None:
        self.ids = dict(ids)
        self._ids_of = ids_of
        self._missing: dict[int, str] = {}
        self._next = max(ids.values(), default=-1) + 1

    def add_missing(self, pieces: Iterable[str]) -> None:
        """Give ids to those of the pieces that have no token."""
        for piece in pieces:
            if piece not in self.ids:
                self.ids[piece] = self._next
                self._missing[self._next] = piece
                self._next += 1

    def tokenizer(
        self,
        merges: Merges,
        unk_token: str | None = None,
        byte_fallback: bool = False,
        ignore_merges: bool = False,
    ) -> tokenizers.Tokenizer:
        """The package's tokenizer. Raises TokenizerError if it refuses the vocabulary."""
        from tokenizers import Tokenizer, models

        try:
            model = models.BPE(
                vocab=self.ids,
                merges=list(merges),
                unk_token=unk_token,
                byte_fallback=byte_fallback,
                ignore_merges=ignore_merges,
            )
        except Exception as error:
            raise TokenizerError(f"the vocabulary cannot be used: {error}") from error
        return Tokenizer(model)

    def encoder(self, tokenizer: tokenizers.Tokenizer) -> Encode:
        """Text to ids of the vocabulary."""
        missing, ids_of = self._missing, self._ids_of

        def encode(text: str) -> list[int]:
            found: list[int] = tokenizer.encode(
                replace_surrogates(text), add_special_tokens=False
            ).ids
            if missing.keys().isdisjoint(found):
                return found
            parts = (ids_of(missing[one]) if one in missing else [one] for one in found)
            return list(chain.from_iterable(parts))

        return encode


def _import() -> None:
    """Raises ImportError with what to install."""
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "tokenizers of language models need the package tokenizers: "
            "pip install 'tinygrad-sharding[llm]'"
        ) from error


def replace_surrogates(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _mark_spaces(text: str) -> str:
    """Text as SentencePiece spells it."""
    return replace_surrogates(text).replace(" ", SPACE_MARK)


@functools.cache
def _bytes_by_character() -> dict[str, int]:
    """The bytes by GPT-2's printable character: that of Latin-1, or one from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    hidden = sorted(set(range(256)) - set(shown))
    return {chr(byte): byte for byte in shown} | {
        chr(256 + place): byte for place, byte in enumerate(hidden)
    }


def bytes_of_spelling(piece: str) -> bytes:
    """The bytes of a piece in GPT-2's spelling; what is not in it is taken as text.

    >>> bytes_of_spelling("Ġa")
    b' a'
    """
    spelled = _bytes_by_character()
    try:
        return bytes([spelled[character] for character in piece])
    except KeyError:
        return piece.encode()


def bytes_of_sentence_piece(piece: str) -> bytes:
    """The bytes of a piece in SentencePiece's spelling.

    >>> bytes_of_sentence_piece("\u2581a")
    b' a'
    """
    return piece.replace(SPACE_MARK, " ").encode()
