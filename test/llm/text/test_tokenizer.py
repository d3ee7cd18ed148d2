"""Tokenizers: equality with the `tokenizers` package, round trips, and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from test.llm.vocabularies import TEXT, metadata_of, spelling_of_bytes, trained
from tinygrad.apps.language.tokenizer.pretokenize import EXPRESSIONS, pre_tokenizer
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer, TokenizerError

# parts of texts: cases, contractions, digits, spaces, punctuation, scripts, emoji
PARTS = st.sampled_from(
    [
        *"aZ 1.\n\r\t'#/{_é日本²Ⅷहि\u0301\u00a0\u2003\x1c\x85\u200bǅ",
        *("'ll", "'S", "  ", "\r\n", "hello", "World", "THE", "12345", "...", "}}"),
        *("😀", "👍🏽", "süße", "книгу", "日本語"),
    ]
)
TEXTS = st.lists(PARTS, max_size=30).map("".join) | st.text(max_size=20)
WHOLE_WORDS = ("llama-bpe", "gpt-4o")


def byte_level(pre: str) -> tuple[SimpleTokenizer, Any]:
    """A tokenizer with the pre-tokenizer `pre`, and the oracle's."""
    pytest.importorskip("tokenizers")
    from tokenizers import Regex, pre_tokenizers

    cuts = [pre_tokenizers.Split(Regex(one), "isolated") for one in EXPRESSIONS[pre]]
    oracle = trained(sentence_piece=False, pre_tokenizer=pre_tokenizers.Sequence(cuts))
    oracle.model.ignore_merges = pre in WHOLE_WORDS
    return SimpleTokenizer.from_gguf_kv(metadata_of(oracle, pre)), oracle


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o", "deepseek-v3"])
def test_byte_level_tokens_equal_the_oracle(pre: str) -> None:
    tokenizer, oracle = byte_level(pre)

    @given(TEXTS)
    def check(text: str) -> None:
        tokens = tokenizer.encode(text, special=False)
        assert tokens == oracle.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(tokens) == text

    check()
    assert tokenizer.encode(TEXT) == oracle.encode(TEXT, add_special_tokens=False).ids


def words_of(pre: str, text: str) -> list[str]:
    return [word for word, _ in pre_tokenizer(pre).pre_tokenize_str(text)]


@pytest.mark.parametrize("pre", sorted(EXPRESSIONS))
@given(text=TEXTS)
def test_pre_tokenized_words_concatenate_to_the_text(pre: str, text: str) -> None:
    assert "".join(words_of(pre, text)) == text


MIXED = "IT'S  don't 12345² 日本語。\r\n\n  x+=McY/2;  //é\u0301 …😀\t\u00a0End "


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        (
            "gpt-2",
            "IT|'|S| | don|'t| 12345²| 日本語|。|\r\n\n | x|+=|McY|/|2|;| | //|é|\u0301| …😀|\t|"
            "\u00a0|End| ",
        ),
        (
            "smollm",
            "IT|'|S| | don|'t| |1|2|3|4|5|²| 日本語|。|\r\n\n | x|+=|McY|/|2|;| | //|é|\u0301| …😀|"
            "\t|\u00a0|End| ",
        ),
        (
            "llama-bpe",
            "IT|'S| | don|'t| |123|45²| 日本語|。\r\n\n| | x|+=|McY|/|2|;| | //|é|\u0301| …😀|\t|"
            "\u00a0End| ",
        ),
        (
            "qwen2",
            "IT|'S| | don|'t| |1|2|3|4|5|²| 日本語|。\r\n\n| | x|+=|McY|/|2|;| | //|é|\u0301| …😀|"
            "\t|\u00a0End| ",
        ),
        (
            "gpt-4o",
            "IT'S| | don't| |123|45²| 日本語|。\r\n\n| | x|+=|Mc|Y|/|2|;| | //|é\u0301| …😀|\t|"
            "\u00a0End| ",
        ),
        (
            "tekken",
            "IT|'S| | don|'t| |1|2|3|4|5|²| 日本語|。\r\n\n| | x|+=|Mc|Y|/|2|;| | //|é\u0301| …😀|"
            "\t|\u00a0End| ",
        ),
        (
            "deepseek-v3",
            "IT|'S| | don|'t| |123|45²| |日本語|。\r\n\n| | x|+=|McY|/|2|;| | //|é\u0301| …😀|\t|"
            "\u00a0End| ",
        ),
    ],
)
def test_pre_tokenizers_split_words_as_in_training(pre: str, words: str) -> None:
    assert words_of(pre, MIXED) == words.split("|")


def merged_slowly(symbols: list[str], cost: Callable[[str, str], float | None]) -> list[str]:
    """The definition of merging: the leftmost pair of minimum cost, until there is none."""
    while True:
        costs = [cost(left, right) for left, right in itertools.pairwise(symbols)]
        found = [(price, at) for at, price in enumerate(costs) if price is not None]
        if not found:
            return symbols
        _, at = min(found)
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


LETTERS = st.text("abc", max_size=30)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=6), st.integers(0, 40)),
    LETTERS,
    st.booleans(),
)
def test_pieces_of_high_score_merge_first(
    scores: dict[str, int], text: str, has_unknown: bool
) -> None:
    tokens = ["<unk>", *scores]
    kv = gguf(
        model="llama",
        tokens=tokens,
        merges=None,
        token_type=[2] + [1] * len(scores),
        scores=[0.0, *(-float(score) for score in scores.values())],
        unknown_token_id=0 if has_unknown else None,
        add_space_prefix=False,
    )
    expected = merged_slowly(list(text), lambda left, right: scores.get(left + right))
    numbers = [tokens.index(piece) if piece in scores else 0 for piece in expected]
    numbers = [number for number in numbers if number or has_unknown]
    assert SimpleTokenizer.from_gguf_kv(kv).encode(text, special=False) == numbers


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=3), st.text("ab", min_size=1, max_size=3))
    ),
    st.sets(st.text("ab", min_size=1, max_size=6)),
    LETTERS,
)
def test_pairs_merge_in_their_order(
    pairs: list[tuple[str, str]], pieces: set[str], text: str
) -> None:
    tokens = sorted(pieces)
    kv = gguf(tokens=tokens, merges=[" ".join(pair) for pair in pairs])
    symbols = [letter for letter in text if letter in pieces]
    order = {pair: at for at, pair in reversed([*enumerate(pairs)])}
    found = merged_slowly(symbols, lambda left, right: order.get((left, right)))
    expected = [part for piece in found for part in ([piece] if piece in pieces else piece)]
    assert SimpleTokenizer.from_gguf_kv(kv).encode(text) == [tokens.index(one) for one in expected]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.text("ab", min_size=1, max_size=6), unique=True), st.booleans(), LETTERS)
def test_normal_tokens_merge_in_the_order_of_their_ids(
    pieces: list[str], has_long: bool, text: str
) -> None:
    # pieces of this length are merged by hand
    pieces = pieces + ["b" * 300] * has_long
    numbers = {piece: number for number, piece in enumerate(pieces)}
    symbols = [letter for letter in text if letter in numbers]
    found = merged_slowly(symbols, lambda left, right: numbers.get(left + right))
    expected = [numbers[piece] for piece in found]
    assert SimpleTokenizer(numbers, {}, "gpt-2").encode(text) == expected


def sentence_piece() -> tuple[SimpleTokenizer, Any]:
    oracle = trained(sentence_piece=True)
    return SimpleTokenizer.from_gguf_kv(metadata_of(oracle, None)), oracle


def test_sentence_piece_tokens_equal_the_oracle() -> None:
    tokenizer, oracle = sentence_piece()

    @given(TEXTS.filter(lambda text: "\u2581" not in text))
    def check(text: str) -> None:
        tokens = tokenizer.encode(text, special=False)
        expected = oracle.encode(" " + text, add_special_tokens=False).ids if text else []
        assert tokens == expected
        assert tokenizer.decode(tokens) == text

    check()


def test_a_continuation_in_sentence_piece_keeps_its_space() -> None:
    tokenizer, _ = sentence_piece()
    first, second = tokenizer.encode("the lazy", add_bos=True), tokenizer.encode("dog")
    assert first[0] == tokenizer.bos_id
    stream = tokenizer.stream()
    assert "".join(map(stream.push, second)) == " dog"
    assert tokenizer.decode(first, special=False) == "the lazy"


@pytest.mark.parametrize("text", ["x 🧮 𝔸 ኣ", "\U0001f468\u200d\U0001f469\u200d\U0001f467"])
@pytest.mark.parametrize("kind", ["byte level", "SentencePiece"])
def test_a_stream_emits_complete_characters(text: str, kind: str) -> None:
    tokenizer, _ = byte_level("gpt-2") if kind == "byte level" else sentence_piece()
    stream = tokenizer.stream(starts_text=True)
    parts = [stream.push(token) for token in tokenizer.encode(text)]
    assert "" in parts  # some characters are several tokens
    assert "".join(parts) == text
    assert all("\ufffd" not in part for part in parts)
    assert stream.finish() == ""


def test_an_incomplete_character_becomes_a_replacement_character() -> None:
    tokenizer, _ = sentence_piece()
    tokens = tokenizer.encode("é\U0001f9ff", special=False)
    assert tokenizer.decode(tokens[:-1]) == "é\ufffd"


TOY = SimpleTokenizer(
    {character: number for number, character in enumerate("abcd<|>/_im")}, {"<|im|>": 20, "": 21}
)


def test_control_tokens_are_found_in_text_unless_it_is_plain() -> None:
    assert TOY.encode("a<|im|>b") == [0, 20, 1]
    assert 20 not in TOY.encode("a<|im|>b", special=False)
    assert TOY.decode([0, 20, 1]) == "a<|im|>b"
    assert TOY.decode([0, 20, 1], special=False) == "ab"


@given(st.lists(st.sampled_from(["a", "<|im|>", "<|", "im", "|>", "<", "\ufdd0"])).map("".join))
def test_a_template_finds_no_control_token_in_plain_text(text: str) -> None:
    tokens = TOY.encode_template("<|im|>" + TOY.as_plain(text) + "<|im|>")
    assert tokens[0] == tokens[-1] == 20
    assert 20 not in tokens[1:-1]
    assert TOY.decode(tokens[1:-1]) == text.replace("\ufdd0", "")


def test_half_of_a_surrogate_pair_becomes_a_replacement_character() -> None:
    tokenizer, _ = byte_level("gpt-2")
    assert tokenizer.decode(tokenizer.encode("a\ud83d")) == "a\ufffd\ufffd\ufffd"


def test_a_long_repetition_of_one_character_takes_no_quadratic_time() -> None:
    tokenizer, oracle = byte_level("gpt-2")
    text = "a" * 50_000
    assert tokenizer.encode(text) == oracle.encode(text).ids


def gguf(**changes: Any) -> dict[str, Any]:
    """Metadata of a vocabulary of three tokens; a value of None omits a key."""
    values = {"model": "gpt2", "tokens": ["a", "b", "ab"], "merges": ["a b"]} | changes
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "no tokenizer.ggml.model"),
        ({"model": "t5"}, "'t5'.*'gpt2' .*'llama' .* are supported"),
        ({"tokens": None}, "no tokenizer.ggml.tokens"),
        ({"tokens": [1]}, "holds 1, not only str"),
        ({"tokens": "abc"}, "is 'abc', not list"),
        ({"token_type": [1]}, "has 1 entries for 3 tokens"),
        ({"merges": ["ab"]}, r"merges\[0\] is 'ab', not two pieces"),
        ({"eos_token_id": 3}, "is 3, but there are 3 tokens"),
        ({"add_bos_token": 1}, "is 1, not bool"),
        ({"pre": "unheard-of"}, "'unheard-of' is not supported; these are: .*qwen2"),
        ({"model": "llama", "token_type": [1, 1, 6]}, "'ab' is of type byte, but names none"),
    ],
)
def test_an_invalid_vocabulary_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimpleTokenizer.from_gguf_kv(gguf(**changes))


def test_characters_without_a_token_are_left_out() -> None:
    assert SimpleTokenizer.from_gguf_kv(gguf()).encode("abcb") == [2, 1]
    pieces = {"model": "llama", "tokens": ["a", "\u2581"], "merges": None}
    assert SimpleTokenizer.from_gguf_kv(gguf(**pieces)).encode("ab") == [1, 0]
    unknown = gguf(**pieces, unknown_token_id=1)
    assert SimpleTokenizer.from_gguf_kv(unknown).encode("ab") == [1, 0, 1]


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize(
    ("text", "named", "is_end"),
    [
        ("<|im_end|>", False, True),
        ("<end_of_turn>", False, True),
        ("<｜end▁of▁sentence｜>", False, True),
        ("</s>", True, True),
        ("[EOS]", True, True),
        ("<|im_start|>", False, False),
    ],
)
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_a_control_token_is_one_whatever_type_a_file_gives_it(
    text: str, named: bool, is_end: bool, kind: int, model: str
) -> None:
    letters = sorted({*"ab", *text})
    merges = [] if model == "gpt2" else None
    values = {"tokens": [*letters, text], "token_type": [1] * len(letters) + [kind]}
    number = len(letters)
    eos = {"eos_token_id": number} if named else {}
    tokenizer = SimpleTokenizer.from_gguf_kv(gguf(model=model, merges=merges, **values, **eos))
    assert tokenizer.control == {text: number}
    assert (number in tokenizer.end_ids) == is_end
    assert tokenizer.encode(f"a{text}")[-1] == number
    assert number not in tokenizer.encode(f"a{text}b", special=False)
    tokens = tokenizer.encode_template(f"{tokenizer.as_plain(f'a{text}b')}{text}")
    assert tokens.index(number) == len(tokens) - 1
    assert tokenizer.decode([number], special=False) == ""


@pytest.mark.parametrize("text", ["</s>", "<table>", "a", "[INST]", "<||>", "<| |>"])
def test_a_user_defined_token_that_looks_like_text_stays_one(text: str) -> None:
    letters = sorted({*"<|>/table s[INST]"} - {text})
    values = {"tokens": [*letters, text], "token_type": [1] * len(letters) + [4]}
    # an end that is a letter stays one too
    eos = {"eos_token_id": len(letters)} if text == "a" else {}
    tokenizer = SimpleTokenizer.from_gguf_kv(gguf(merges=[], **values, **eos))
    assert tokenizer.control == {}
    assert tokenizer.encode(text, special=False) == [len(letters)]


def test_an_unknown_id_is_named() -> None:
    tokenizer = SimpleTokenizer.from_gguf_kv(gguf())
    with pytest.raises(TokenizerError, match="3 is not a token"):
        tokenizer.decode([0, 3])


def test_the_maximum_uint32_is_no_token() -> None:
    tokenizer = SimpleTokenizer.from_gguf_kv(gguf(bos_token_id=2**32 - 1, eos_token_id=2))
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.end_ids) == (None, 2, {2})


@pytest.mark.slow
def test_tokens_of_a_real_vocabulary_equal_the_oracle() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, pre_tokenizers

    from tinygrad.apps.language.files.catalogue import locate
    from tinygrad.fetch import DownloadError
    from tinygrad.nn.state.gguf import gguf_load_metadata

    try:
        _, metadata, _ = gguf_load_metadata(str(locate("smollm2:135m")))
    except DownloadError as error:
        pytest.skip(str(error))
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in metadata["tokenizer.ggml.merges"]]
    numbers = {token: number for number, token in enumerate(tokens)}
    oracle = tokenizers.Tokenizer(models.BPE(vocab=numbers, merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    oracle.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer = SimpleTokenizer.from_gguf_kv(metadata)

    @settings(max_examples=1000)
    @example("/\x06{")
    @given(TEXTS)
    def check(text: str) -> None:
        found = tokenizer.encode(text, special=False)
        assert found == oracle.encode(text, add_special_tokens=False).ids
        if all(character in numbers for character in spelling_of_bytes(text.encode())):
            assert tokenizer.decode(found) == text

    check()
    assert tokenizer.encode("<|im_start|>user\nHello, world 123!<|im_end|>") == [
        *(1, 4093, 198, 19556, 28, 905, 216, 33, 34, 35, 17, 2),
    ]
