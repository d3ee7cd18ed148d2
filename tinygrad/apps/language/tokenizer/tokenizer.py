"""Text to token ids and back, by the vocabulary of a GGUF file.

Input: the metadata of a file (`tokenizer.ggml.*`) with a byte-level BPE (`gpt2`) or a SentencePiece
(`llama`) vocabulary. Output: a `SimpleTokenizer`, and a `TextStream` that decodes token by token.
Invariant: decoding what was encoded gives the text back, and text that went through
`SimpleTokenizer.as_plain` never becomes a control token.

Text between special tokens is encoded by the `tokenizers` package (see `encoders`), which is
imported when a tokenizer is made. Two things are done here. Special tokens are found, as the
package cannot tell those of a template from those that users write. Tokens are decoded by a table
of bytes, as the text that the package gives has lost the bytes of incomplete characters.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tinygrad.apps.language.tokenizer.encoders import (
    Encode,
    byte_level_encoder,
    bytes_of_sentence_piece,
    bytes_of_spelling,
    ranked_encoder,
    sentence_piece_encoder,
)
from tinygrad.apps.language.tokenizer.vocabulary import TokenizerError, TokenType, Vocabulary

# a noncharacter of Unicode, inserted into the texts of control tokens that users wrote
PLAIN_MARK = "\ufdd0"
# control tokens that end a turn or a text, whatever the metadata says
END_TEXTS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>"),
    *("<end_of_turn>", "<|end|>", "</s>", "<eos>", "<|END_OF_TURN_TOKEN|>"),
    *("<|end_of_turn|>", "<｜end▁of▁sentence｜>"),
)


class SimpleTokenizer:
    """Encodes and decodes text.

    `normal_tokens` are the pieces of a byte-level BPE vocabulary, in GPT-2's spelling of bytes,
    with their ids, in whose order they merge; `special_tokens` are control tokens; `preset` is the
    name of a pre-tokenizer. `from_gguf_kv` makes a tokenizer from a file's metadata. Raises
    ValueError for an unknown preset, ImportError without `tokenizers`.

    >>> tokenizer = SimpleTokenizer({"a": 0, "b": 1, "ab": 2}, {"<end>": 3})
    >>> tokenizer.encode("abb"), tokenizer.encode("ab<end>")
    ([2, 1], [2, 3])
    >>> tokenizer.decode([2, 1, 3])
    'abb<end>'
    """

    def __init__(
        self,
        normal_tokens: Mapping[str, int],
        special_tokens: Mapping[str, int],
        preset: str = "llama3",
    ) -> None:
        encode = ranked_encoder(normal_tokens, preset)
        self._set(encode, normal_tokens, bytes_of_spelling, special_tokens, {})

    def _set(
        self,
        encode_text: Encode,
        ids: Mapping[str, int],
        bytes_of: Callable[[str], bytes],
        control: Mapping[str, int],
        user_defined: Mapping[str, int],
    ) -> None:
        self._encode_text = encode_text
        # an empty text would be found everywhere
        self.control = {text: number for text, number in control.items() if text}
        self.user_defined = {text: number for text, number in user_defined.items() if text}
        # the bytes of a token are computed when they are asked for
        self._pieces = {number: piece for piece, number in ids.items()}
        self._bytes_of = bytes_of
        self._bytes = {number: text.encode() for text, number in user_defined.items()}
        self._control_texts = {number: text for text, number in control.items()}
        self._special = self.control | self.user_defined
        self._find_special = _finder(self._special)
        self._find_user_defined = _finder(self.user_defined)
        self._find_control = _finder(self.control)
        self._space_prefix = False
        self.bos_id: int | None = None
        self.eos_id: int | None = None
        self.adds_bos = self.adds_eos = False
        self.end_ids = frozenset(control[text] for text in END_TEXTS if text in control)

    @classmethod
    def from_gguf_kv(cls, kv: Mapping[str, Any]) -> SimpleTokenizer:
        """The tokenizer of a GGUF file, from its metadata.

        Raises TokenizerError, a ValueError, if it is missing, not valid or not supported.

        >>> kv = {"model": "gpt2", "tokens": ["a", "b", "ab"], "merges": ["a b"]}
        >>> kv = {f"tokenizer.ggml.{key}": value for key, value in kv.items()}
        >>> SimpleTokenizer.from_gguf_kv(kv).encode("abba")
        [2, 1, 0]
        """
        vocabulary = Vocabulary.from_gguf_kv(kv)
        self = cls.__new__(cls)
        control = vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)
        user_defined = vocabulary.of_type(TokenType.USER_DEFINED)
        if vocabulary.model == "gpt2":
            ids = vocabulary.of_type(TokenType.NORMAL, TokenType.BYTE)
            encode = byte_level_encoder(ids, vocabulary.merge_pairs(), vocabulary.pre)
            self._set(encode, ids, bytes_of_spelling, control, user_defined)
        else:
            ids, byte_ids = vocabulary.of_type(TokenType.NORMAL), vocabulary.byte_tokens()
            encode = sentence_piece_encoder(ids, vocabulary.scores, byte_ids, vocabulary.unknown_id)
            self._set(encode, ids, bytes_of_sentence_piece, control, user_defined)
            self._bytes |= {number: bytes([byte]) for byte, number in byte_ids.items()}
        self._space_prefix = vocabulary.space_prefix
        self.bos_id, self.eos_id = vocabulary.bos_id, vocabulary.eos_id
        self.adds_bos, self.adds_eos = vocabulary.adds_bos, vocabulary.adds_eos
        self.end_ids |= vocabulary.end_ids
        return self

    def encode(
        self, text: str, special: bool = True, add_bos: bool = False, starts_text: bool = True
    ) -> list[int]:
        """The token ids of a text; `starts_text` unless it continues another.

        The texts of control tokens, such as `<|im_end|>`, are plain text unless `special`.
        `add_bos` prepends the BOS token, if the vocabulary has one and the text does not start with
        it.

        >>> SimpleTokenizer({"a": 0}, {"<a>": 1}).encode("a<a>")
        [0, 1]
        """
        table = self._special if special else self.user_defined
        parts = (self._find_special if special else self._find_user_defined)(text)
        return self._with_bos(self._encode_parts(parts, table, starts_text=starts_text), add_bos)

    def encode_template(self, text: str, add_bos: bool = False) -> list[int]:
        """The token ids of the output of a chat template, which got its texts from `as_plain`.

        >>> tokenizer = SimpleTokenizer({"<": 0, "a": 1, ">": 2}, {"<a>": 3})
        >>> tokenizer.encode_template("<a>" + tokenizer.as_plain("<a>"))
        [3, 0, 1, 2]
        """
        parts = self._find_special(text)
        return self._with_bos(self._encode_parts(parts, self._special, PLAIN_MARK), add_bos)

    def as_plain(self, text: str) -> str:
        """`text` for a chat template, so that `encode_template` finds no control tokens in it."""
        parts = self._find_control(text.replace(PLAIN_MARK, ""))
        return "".join(
            part[:1] + PLAIN_MARK + part[1:] if part in self.control else part for part in parts
        )

    def _encode_parts(
        self,
        parts: Iterable[str],
        table: Mapping[str, int],
        mark: str | None = None,
        starts_text: bool = True,
    ) -> list[int]:
        """The token ids of parts: tokens of `table`, or text, from which `mark` is removed."""
        tokens: list[int] = []
        plain = self._space_prefix and starts_text
        for part in parts:
            if part in table:
                tokens.append(table[part])
            else:
                words = part if mark is None else part.replace(mark, "")
                tokens += self._encode_text(" " + words if plain else words)
            plain = self._space_prefix and part in self.control
        return tokens

    def _with_bos(self, tokens: list[int], add_bos: bool) -> list[int]:
        if not add_bos or self.bos_id is None or tokens[:1] == [self.bos_id]:
            return tokens
        return [self.bos_id, *tokens]

    def decode(self, ids: Iterable[int], special: bool = True) -> str:
        """The text of token ids, with U+FFFD for bytes that are not UTF-8.

        Control tokens are left out unless `special`. Raises TokenizerError for an unknown id.

        >>> SimpleTokenizer({"a": 0, "b": 1}, {"<end>": 2}).decode([0, 1, 2], special=False)
        'ab'
        """
        stream = self.stream(special, starts_text=True)
        return "".join([stream.push(number) for number in ids] + [stream.finish()])

    def stream(
        self, special: bool | Collection[str] = False, starts_text: bool = False
    ) -> TextStream:
        """A streaming decoder; `starts_text` unless the tokens continue others.

        Control tokens are left out, except those in `special`.

        >>> stream = SimpleTokenizer({"Ã": 0, "¤": 1}, {}).stream()
        >>> stream.push(0), stream.push(1)
        ('', 'ä')
        """
        spelled = functools.partial(self.piece, special=special)
        return TextStream(spelled, starts_text and self._space_prefix)

    def piece(self, number: int, special: bool | Collection[str] = False) -> bytes:
        """The bytes of a token; none for a control token that is not in `special`.

        Raises TokenizerError for an unknown id.

        >>> SimpleTokenizer({"Ġa": 0}, {}).piece(0)
        b' a'
        """
        control = self._control_texts.get(number)
        if control is not None:
            shown = special if isinstance(special, bool) else control in special
            return control.encode() if shown else b""
        if number in self._bytes:
            return self._bytes[number]
        if number not in self._pieces:
            raise TokenizerError(f"{number} is not a token of this vocabulary")
        return self._bytes_of(self._pieces[number])


class TextStream:
    """Decodes tokens one by one; a character is returned with its last byte."""

    def __init__(self, piece: Callable[[int], bytes], drops_space: bool) -> None:
        self._piece = piece
        self._drops_space = drops_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, number: int) -> str:
        """The characters that this token completes."""
        return self._without_space(self._decoder.decode(self._piece(number)))

    def finish(self) -> str:
        """U+FFFD if the last character is incomplete, else nothing."""
        return self._without_space(self._decoder.decode(b"", final=True))

    def _without_space(self, text: str) -> str:
        """Removes the space that SentencePiece adds before a text."""
        if text and self._drops_space:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


def _finder(special: Mapping[str, int]) -> Callable[[str], list[str]]:
    """A function that cuts text at special tokens, longest first, into parts that are not empty."""
    if not special:
        return lambda text: [text] if text else []
    longest_first = sorted(special, key=len, reverse=True)
    expression = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
    return lambda text: [part for part in expression.split(text) if part]
