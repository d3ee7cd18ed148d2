"""Text to tokens, where no token has a meaning of its own: byte-level BPE and SentencePiece.

In: text, and the numbers of pieces with what it costs to merge two. Out: numbers. What stays true:
the pieces, put together, are the text, but for what the vocabulary has no token for: SmolLM2's
lacks some bytes of rare characters. That is left out, as models were trained.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from itertools import chain

from tinygrad.apps.language.tokenizer.merging import merged
from tinygrad.apps.language.tokenizer.pretokenize import WHOLE_WORDS_FIRST, splitter

REMEMBERED_WORDS = 1 << 16
SPACE_MARK = "\u2581"


class BytePairEncoder:
    """Cuts text into words, and merges the bytes of each by the order of a list of pairs."""

    def __init__(
        self,
        numbers: Mapping[str, int],
        cost: Callable[[str, str], float | None],
        pre: str,
    ) -> None:
        self.numbers = dict(numbers)
        self._cost = cost
        self._words = splitter(pre)
        self._whole_words_first = pre in WHOLE_WORDS_FIRST
        self._word = functools.lru_cache(REMEMBERED_WORDS)(self._encode_word)

    def __call__(self, text: str) -> list[int]:
        # half of a surrogate pair is no text that UTF-8 can hold
        return list(chain.from_iterable(map(self._word, self._words(valid(text)))))

    def _encode_word(self, word: str) -> tuple[int, ...]:
        spelled = spelling_of_bytes(word.encode())
        if self._whole_words_first and spelled in self.numbers:
            return (self.numbers[spelled],)
        tokens: list[int] = []
        # bytes that a vocabulary lacks are left out before their neighbours merge
        for piece in merged([part for part in spelled if part in self.numbers], self._cost):
            # it may also lack the result of a merge
            parts = [piece] if piece in self.numbers else piece
            tokens += [self.numbers[part] for part in parts]
        return tuple(tokens)


class SentencePieceEncoder:
    """Merges characters to the pieces of highest score; others become bytes."""

    def __init__(
        self,
        numbers: Mapping[str, int],
        scores: Mapping[int, float],
        byte_tokens: Mapping[int, int],
        unknown_id: int | None,
    ) -> None:
        self.numbers = dict(numbers)
        self.byte_tokens = dict(byte_tokens)
        self._scores = scores
        self._unknown_id = unknown_id

    def __call__(self, text: str) -> list[int]:
        tokens: list[int] = []
        for piece in merged(valid(text).replace(" ", SPACE_MARK), self._cost):
            if piece in self.numbers:
                tokens.append(self.numbers[piece])
            else:
                tokens += self._bytes(piece)
        return tokens

    def _cost(self, left: str, right: str) -> float | None:
        number = self.numbers.get(left + right)
        return None if number is None else -self._scores[number]

    def _bytes(self, piece: str) -> list[int]:
        data = piece.replace(SPACE_MARK, " ").encode()
        if all(byte in self.byte_tokens for byte in data):
            return [self.byte_tokens[byte] for byte in data]
        return [] if self._unknown_id is None else [self._unknown_id]


def valid(text: str) -> str:
    """`text` with U+FFFD for each half of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


@functools.cache
def _spelling() -> dict[int, str]:
    """GPT-2's printable character for each byte: itself, or one from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
    hidden = sorted(set(range(256)) - set(shown))
    return {byte: chr(byte) for byte in shown} | {
        byte: chr(256 + place) for place, byte in enumerate(hidden)
    }


def spelling_of_bytes(data: bytes) -> str:
    """Bytes in GPT-2's spelling.

    >>> spelling_of_bytes(b" a")
    'Ġa'
    """
    return data.decode("latin-1").translate(_spelling())


@functools.cache
def _bytes_spelled() -> dict[str, int]:
    return {character: byte for byte, character in _spelling().items()}


def bytes_of_spelling(piece: str) -> bytes:
    """The bytes of a piece in GPT-2's spelling; what is not in it is taken as text.

    >>> bytes_of_spelling("Ġa")
    b' a'
    """
    spelled = _bytes_spelled()
    try:
        return bytes([spelled[character] for character in piece])
    except KeyError:
        return piece.encode()
