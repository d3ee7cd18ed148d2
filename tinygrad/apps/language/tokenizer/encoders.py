"""Text to token ids by the `tokenizers` package, for text in which no token is special.

Input: the pieces of a vocabulary with their ids, and the order in which they merge. Output: a
function from text to ids. Invariant: the ids are those of llama.cpp, so the pieces, put together,
are the text, but for bytes that the vocabulary has no token for: SmolLM2's lacks some bytes of rare
characters, which are left out, as models were trained.

The package does all byte-level BPE, and SentencePiece BPE of which each piece has a score of its
own. Three things it cannot do are done here:

- It gives each merge a rank of its own, so it cannot merge the leftmost of several pairs with one
  score. SentencePiece vocabularies with equal scores, as some converters write them, are merged by
  `merging.py`; so are those with unusually many ways to merge, which would take much memory.
- It refuses merges into pieces without a token. Such pieces have ids past the end of the vocabulary
  here, which are replaced by the ids of their characters.
- It replaces unknown characters before it merges. Those of SentencePiece have such ids too, so that
  they stay between their neighbours.

Special tokens are found by `tokenizer.py`: the package cannot turn them off for one call.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from tinygrad.apps.language.tokenizer.merging import merged
from tinygrad.apps.language.tokenizer.pretokenize import WHOLE_WORDS_FIRST, pre_tokenizer
from tinygrad.apps.language.tokenizer.vocabulary import TokenizerError

if TYPE_CHECKING:
    import tokenizers

SPACE_MARK = "\u2581"
# no merges make it
UNKNOWN = "<unknown character>"
# limits of what the package is given: above them, a file asks for much more than its own size
MAX_PIECE_LENGTH = 256
MAX_SPLITS = 1 << 22
MAX_MERGES = 1 << 20

Encode: TypeAlias = Callable[[str], list[int]]
Merges: TypeAlias = Sequence[tuple[str, str]]


def byte_level_encoder(ids: Mapping[str, int], merges: Merges, preset: str) -> Encode:
    """Byte-level BPE: cuts text into words, and merges the bytes of each in the order of `merges`.

    `ids` are those of pieces in GPT-2's spelling of bytes, `preset` is the pre-tokenizer's name.
    Raises ValueError for a preset that is not known, ImportError without `tokenizers`.
    """
    _import()
    from tokenizers import pre_tokenizers

    words = pre_tokenizer(preset)
    pieces = _Pieces(ids)
    known = []
    for left, right in merges:
        if left in ids and right in ids and left + right in ids:
            known.append((left, right))
        # characters without a token are left out before any merge
        elif all(character in ids for character in left + right):
            known.append((left, right))
            for piece in (left, right, left + right):
                pieces.add_missing(piece, [ids[character] for character in piece])
    tokenizer = pieces.tokenizer(known, ignore_merges=preset in WHOLE_WORDS_FIRST)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_])
    return pieces.encoder(tokenizer)


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

    def fallback(character: str) -> list[int]:
        data = bytes_of_sentence_piece(character)
        if all(byte in byte_ids for byte in data):
            return [byte_ids[byte] for byte in data]
        return [] if unknown_id is None else [unknown_id]

    def by_hand(text: str) -> list[int]:
        found = merged(_marked(text), lambda left, right: costs.get(left + right))
        return [
            number
            for piece in found
            for number in ([ids[piece]] if piece in ids else fallback(piece))
        ]

    merges = merges_by_cost(costs)
    if merges is None:
        return by_hand
    _import()
    pieces = _Pieces(ids)
    for character in {character for pair in merges for character in chain(*pair)}:
        pieces.add_missing(character, fallback(character))
    for byte, number in byte_ids.items():
        pieces.ids[f"<0x{byte:02X}>"] = number
    pieces.add_missing(UNKNOWN, [] if unknown_id is None else [unknown_id])
    tokenizer = pieces.tokenizer(merges, unk_token=UNKNOWN, byte_fallback=bool(byte_ids))
    encode = pieces.encoder(tokenizer)
    return lambda text: encode(_marked(text))


def merges_by_cost(costs: Mapping[str, float]) -> list[tuple[str, str]] | None:
    """The pairs that merge into a piece, by the cost of the piece.

    A piece that merges at all does so from one pair: that of the last merge of its own text. The
    order of several pairs for one piece is therefore of no importance, and they can have ranks of
    their own. None if two pieces cost the same, or for more pairs than the limits of this module.

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
        merges += pairs
        if costs[piece] == last_cost or len(merges) > MAX_MERGES:
            return None
        last_cost = costs[piece]
    return merges


def _pairs(piece: str, costs: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """The ways to cut a piece into two that are characters or pieces."""
    end = len(piece)
    for cut in range(1, end):
        left, right = piece[:cut], piece[cut:]
        if (cut == 1 or left in costs) and (cut == end - 1 or right in costs):
            yield left, right


@dataclass
class _Pieces:
    """The vocabulary that the package is given: `ids`, and pieces without a token.

    `replacements` are the ids that stand for the id of a piece without a token.
    """

    ids: dict[str, int]
    replacements: dict[int, list[int]]

    def __init__(self, ids: Mapping[str, int]) -> None:
        self.ids = dict(ids)
        self.replacements = {}
        self._next = max(ids.values(), default=-1) + 1

    def add_missing(self, piece: str, replacement: list[int]) -> None:
        """Gives a piece an id that is replaced, unless it has a token."""
        if piece not in self.ids:
            self.ids[piece] = self._next
            self.replacements[self._next] = replacement
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
        """Text to ids, of which none is past the end of the vocabulary."""
        replacements = self.replacements

        def encode(text: str) -> list[int]:
            found: list[int] = tokenizer.encode(valid(text), add_special_tokens=False).ids
            if replacements and not replacements.keys().isdisjoint(found):
                parts = (replacements.get(number, [number]) for number in found)
                return list(chain.from_iterable(parts))
            return found

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


def valid(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _marked(text: str) -> str:
    """Text as SentencePiece spells it."""
    return valid(text).replace(" ", SPACE_MARK)


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
