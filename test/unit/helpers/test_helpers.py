"""The functions of `tinygrad.helpers`, and the counters and timers that it re-exports."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad import Variable, helpers
from tinygrad.helpers import (
    Context,
    GlobalCounters,
    Profiling,
    Timing,
    all_int,
    all_same,
    ansilen,
    ansistrip,
    argfix,
    argsort,
    cdiv,
    ceildiv,
    cmod,
    colored,
    dedup,
    diskcache,
    diskcache_clear,
    diskcache_get,
    diskcache_put,
    flatten,
    fully_flatten,
    get_child,
    make_tuple,
    merge_dicts,
    next_power2,
    partition,
    polyN,
    prod,
    round_down,
    round_up,
    strip_parens,
    temp,
    to_function_name,
    unwrap,
    word_wrap,
)
from tinygrad.uop.ops import sym_infer


@pytest.mark.parametrize("name", helpers.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(helpers, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'tinygrad.helpers' has no attribute 'absent'"):
        _ = helpers.absent


ONLY_HELPERS = """
import sys, types
# the package itself hands out everything, so it is left out here
package = types.ModuleType("tinygrad")
package.__path__ = ["tinygrad"]
sys.modules["tinygrad"] = package
import tinygrad.helpers
"""


@pytest.mark.parametrize(
    ("program", "absent"),
    [(ONLY_HELPERS, ("tqdm", "tinygrad.fetch", "numpy")), ("import tinygrad", ("tqdm", "numpy"))],
)
def test_what_is_imported_only_when_used(program: str, absent: tuple[str, ...]) -> None:
    program = f"{program}\nimport sys\nprint([x for x in {absent} if x in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "[]\n"


# ---- sequences ----


def test_prod_of_nothing_is_one():
    assert prod(()) == 1
    assert prod((2, 3, 4)) == 24


def test_dedup_keeps_the_first_of_each():
    assert dedup([3, 1, 3, 2, 1]) == [3, 1, 2]


def test_flatten_removes_one_level():
    assert flatten([[1, [2]], (3,)]) == [1, [2], 3]


def test_fully_flatten_reaches_the_leaves_of_lists_and_arrays():
    assert fully_flatten([[1, (2, [3])], np.array([[4], [5]]), np.array(6), "seven"]) == [
        *range(1, 7),
        "seven",
    ]


def test_argfix_takes_one_sequence_or_separate_values():
    assert argfix(1, 2) == argfix((1, 2)) == argfix([1, 2]) == (1, 2)
    assert argfix() == ()
    with pytest.raises(ValueError, match="either one sequence or separate values"):
        argfix((1, 2), 3)


@given(st.permutations(range(6)))
def test_argsort_of_a_permutation_is_its_inverse(order: list[int]):
    inverse = argsort(tuple(order))
    assert isinstance(inverse, tuple)
    assert [order[i] for i in inverse] == list(range(6))


def test_argsort_keeps_equal_items_in_order():
    assert argsort([2, 1, 2, 1]) == [1, 3, 0, 2]


def test_all_same_and_all_int():
    assert all_same([])
    assert all_same([1, 1])
    assert not all_same([1, 2])
    assert all_int((1, 2))
    assert not all_int((1, 2.0))


def test_make_tuple_repeats_an_int_and_keeps_a_sequence():
    assert make_tuple(3, 2) == (3, 3)
    assert make_tuple([1, 2, 3], 2) == (1, 2, 3)


def test_partition_keeps_the_order_on_both_sides():
    assert partition(range(5), lambda x: x % 2) == ([1, 3], [0, 2, 4])


def test_merge_dicts_refuses_to_choose_between_values():
    assert merge_dicts([{"a": 1}, {"b": 2, "a": 1}]) == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="cannot merge: 'a' is both 1 and 2"):
        merge_dicts([{"a": 1}, {"a": 2}])


def test_get_child_follows_attributes_keys_and_positions():
    model = SimpleNamespace(layers=[{"weight": 5}])
    assert get_child(model, "layers.0.weight") == 5


def test_unwrap_refuses_none():
    assert unwrap(0) == 0
    with pytest.raises(AssertionError):
        unwrap(None)


# ---- arithmetic ----

POSITIVE = st.integers(1, 1000)


@given(st.integers(-1000, 1000), POSITIVE)
def test_rounding_to_multiples(number: int, amount: int):
    assert round_up(number, amount) == math.ceil(number / amount) * amount
    assert round_down(number, amount) == math.floor(number / amount) * amount
    assert ceildiv(number, amount) == math.ceil(number / amount)


def test_floats_round_to_integers():
    assert [repr(ceildiv(x, 2)) for x in (7.0, -7.0, 8.5)] == ["4", "-3", "5"]
    assert [round_up(x, 2) for x in (6.5, -6.5)] == [8, -6]


@given(st.integers(-30, 30), st.integers(0, 30), st.integers(-9, 9).filter(bool))
def test_symbolic_sizes_round_like_integers(low: int, span: int, amount: int):
    size = Variable("size", low, low + span)
    rounded = {f: f(size, amount) for f in (ceildiv, round_up, round_down)}
    for number in range(low, low + span + 1):
        for function, expression in rounded.items():
            assert sym_infer(expression, {"size": number}) == function(number, amount)


@given(st.integers(-30, 30), st.integers(1, 9))
def test_a_number_over_a_symbolic_size_is_rounded_up(number: int, low: int):
    quotient = ceildiv(number, Variable("size", low, low + 5))
    for size in range(low, low + 6):
        assert sym_infer(quotient, {"size": size}) == ceildiv(number, size)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_division_truncates_as_in_c(x: int, y: int):
    assert cdiv(x, y) == math.trunc(x / y)
    assert cmod(x, y) == math.fmod(x, y)


def test_division_by_zero_gives_zero():
    assert cdiv(5, 0) == 0
    assert cmod(5, 0) == 5


@pytest.mark.parametrize(("x", "expected"), [(0, 1), (1, 1), (2, 2), (3, 4), (64, 64), (65, 128)])
def test_next_power2(x, expected):
    assert next_power2(x) == expected


def test_polynomial_has_its_highest_power_first():
    assert polyN(2.0, [1.0, 2.0, 3.0]) == 1 * 4 + 2 * 2 + 3


# ---- text ----


def test_colours_can_be_removed():
    with Context(NO_COLOR=""):
        assert colored("x", "red") == "\x1b[31mx\x1b[0m"
        assert colored("x", "RED") == "\x1b[91mx\x1b[0m"
        assert colored("x", "red", background=True) == "\x1b[41mx\x1b[0m"
        assert ansistrip(colored("text", "green")) == "text"
        assert ansilen(colored("text", "green")) == 4
        assert colored("x", None) == "x"


def test_no_color_turns_colours_off():
    with Context(NO_COLOR="1"):
        assert colored("x", "red") == "x"


@given(st.text("ab \n", max_size=40), st.integers(1, 10))
def test_word_wrap_only_adds_line_ends(text: str, width: int):
    wrapped = word_wrap(text, width)
    assert all(len(line) <= width for line in wrapped.split("\n"))
    assert re.sub(r"\n", "", wrapped) == re.sub(r"\n", "", text)


def test_word_wrap_does_not_count_colours():
    with Context(NO_COLOR=""):
        assert word_wrap(colored("abcd", "red"), 4) == colored("abcd", "red")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("(a+b)", "a+b"), ("(a)+(b)", "(a)+(b)"), ("((a)+(b))", "(a)+(b)"), ("a", "a"), ("", "")],
)
def test_strip_parens_removes_only_a_matching_pair(text, expected):
    assert strip_parens(text) == expected


def test_function_name_is_an_identifier():
    assert to_function_name("r_4x8") == "r_4x8"
    assert to_function_name(colored("E", "red") + " é") == "E20E9"
    assert to_function_name("a-b").isidentifier()


def test_temp_is_a_path_of_that_name():
    assert Path(temp("example.bin")).name == "example.bin"
    assert Path(temp("example", append_user=True)).name.startswith("example.")


# ---- measuring ----


def test_reset_clears_counts_and_keeps_the_memory_in_use(monkeypatch):
    for name in ("global_ops", "global_mem", "kernel_count", "bytes_moved", "mem_used"):
        monkeypatch.setattr(GlobalCounters, name, 5)
    monkeypatch.setattr(GlobalCounters, "bytes_moved_per_device", {"CPU": 5})
    GlobalCounters.reset()
    assert GlobalCounters.global_ops == GlobalCounters.global_mem == 0
    assert GlobalCounters.kernel_count == GlobalCounters.bytes_moved == 0
    assert GlobalCounters.time_sum_s == 0.0
    assert not GlobalCounters.bytes_moved_per_device
    assert GlobalCounters.mem_used == 5


def test_timing_prints_milliseconds_and_the_result_of_on_exit(capsys):
    with Timing("load: ", on_exit=lambda ns: f", {ns > 0}") as timing:
        pass
    assert re.fullmatch(r"load: +\d+\.\d\d ms, True\n", capsys.readouterr().out)
    assert timing.et > 0


def test_timing_can_be_silent(capsys):
    with Timing(enabled=False):
        pass
    assert capsys.readouterr().out == ""


def test_profiling_prints_the_functions_that_ran(capsys, tmp_path):
    with Profiling(frac=1.0, fn=str(tmp_path / "saved")):
        sorted([3, 1, 2])
    assert "sorted" in capsys.readouterr().out
    assert (tmp_path / "saved").stat().st_size > 0


def test_profiling_can_be_off(capsys):
    with Profiling(enabled=False):
        pass
    assert capsys.readouterr().out == ""


def test_progress_bar_yields_every_item():
    assert list(helpers.tqdm([1, 2, 3], disable=True)) == [1, 2, 3]
    assert list(helpers.trange(3, disable=True)) == [0, 1, 2]


# ---- the disk cache ----


@pytest.mark.usefixtures("empty_cache")
def test_python_values_are_cached():
    key = {"name": "example", "size": 3}
    assert diskcache_get("example", key) is None
    assert diskcache_put("example", key, (1, b"two")) == (1, b"two")
    assert diskcache_get("example", key) == (1, b"two")
    assert diskcache_get("example", "other") is None
    diskcache_clear()
    assert diskcache_get("example", key) is None


@pytest.mark.usefixtures("empty_cache")
def test_cache_level_zero_stores_nothing():
    with Context(CACHELEVEL=0):
        diskcache_put("example", "key", 1)
    assert diskcache_get("example", "key") is None
    diskcache_put("example", "key", 1)
    with Context(CACHELEVEL=0):
        assert diskcache_get("example", "key") is None


@pytest.mark.usefixtures("empty_cache")
def test_decorated_function_runs_once_for_each_argument():
    calls = []

    @diskcache
    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    assert [double(1), double(1), double(2)] == [2, 2, 4]
    assert calls == [1, 2]
