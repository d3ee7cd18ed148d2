"""Settings: values from the environment, changes by `Context`, and errors."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tinygrad.settings import (
    CACHEDIR,
    CPU_COUNT,
    CPU_LLVM,
    DEBUG,
    DEV,
    JIT,
    NOOPT,
    SHARDING,
    Context,
    ContextVar,
    SettingError,
    cache_directory,
    compiles_with_llvm,
    getenv,
    requested_device,
    settings_page,
    settings_table,
    thread_count,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch):
    """Declares a setting for one test, with this value in the environment."""

    def declaring(key: str, default: int | str, text: str, **kwargs: object) -> ContextVar:
        monkeypatch.setattr(ContextVar, "declared", {})
        monkeypatch.setenv(key, text)
        return ContextVar(key, default, **kwargs)

    return declaring


def test_the_environment_sets_an_int_setting(declare):
    assert declare("EXAMPLE", 1, "7").value == 7


def test_the_environment_sets_a_text_setting(declare):
    assert declare("EXAMPLE", "", "strict").value == "strict"


def test_empty_variable_means_the_default(declare):
    assert declare("EXAMPLE", 3, "").value == 3


def test_text_for_an_int_setting_is_an_error_that_names_it(declare):
    with pytest.raises(SettingError, match="EXAMPLE='many' in the environment is not a whole"):
        declare("EXAMPLE", 1, "many")


def test_value_outside_the_choices_is_an_error_that_lists_them(declare):
    with pytest.raises(SettingError, match="EXAMPLE='loud' .* takes '', 'strict'"):
        declare("EXAMPLE", "", "loud", choices=("", "strict"))


def test_setting_compares_and_tests_like_its_value():
    with Context(DEBUG=2, JIT=0):
        assert DEBUG >= 2
        assert DEBUG > 1
        assert DEBUG < 3
        assert DEBUG <= 2
        assert DEBUG == 2
        assert DEBUG != 1
        assert int(DEBUG) == 2
        assert DEBUG
        assert not JIT


def test_declaring_a_name_again_gives_the_same_setting():
    assert ContextVar("DEBUG", 0) is DEBUG


def test_context_changes_a_setting_for_its_block_only():
    before = DEBUG.value
    with Context(DEBUG=before + 1):
        assert DEBUG.value == before + 1
        with Context(DEBUG=before + 2, JIT=0):
            assert DEBUG.value == before + 2
        assert DEBUG.value == before + 1
    assert DEBUG.value == before


def test_context_restores_settings_when_the_block_raises():
    before = DEBUG.value
    with pytest.raises(KeyError), Context(DEBUG=before + 1):
        raise KeyError
    assert DEBUG.value == before


def test_context_decorates_recursive_functions():
    @Context(DEBUG=5)
    def levels(depth: int) -> list[int]:
        return [DEBUG.value, *(levels(depth - 1) if depth else [])]

    before = DEBUG.value
    assert levels(2) == [5, 5, 5]
    assert DEBUG.value == before


def test_context_changes_a_setting_for_its_thread_only():
    seen = {}

    def look(name):
        seen[name] = NOOPT.value

    with Context(NOOPT=1):
        copied = contextvars.copy_context()
        threads = [
            threading.Thread(target=look, args=("plain",)),
            threading.Thread(target=copied.run, args=(look, "copied")),
        ]
        for thread in threads:
            thread.start()
            thread.join()
    # threads start in a copy of the context if Python's flag says so
    inherits = getattr(sys.flags, "thread_inherit_context", 0)
    assert seen == {"plain": 1 if inherits else NOOPT.default, "copied": 1}


def test_a_decorated_function_runs_in_two_threads_at_once():
    entered, seen = threading.Barrier(2), []

    @Context(NOOPT=1)
    def look():
        entered.wait()
        seen.append(NOOPT.value)

    def run():
        look()
        seen.append(NOOPT.value)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [NOOPT.default] * 2 + [1, 1]


def test_context_with_an_unknown_name_suggests_the_nearest():
    with pytest.raises(SettingError, match="DEBG is not a setting; did you mean DEBUG"):
        Context(DEBG=1)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DEBUG", "2", "DEBUG='2' is a str; DEBUG takes a whole number"),
        ("SHARDING", 1, "SHARDING=1 is a int; SHARDING takes text"),
        ("SHARDING", "strct", "SHARDING='strct' is not a choice"),
    ],
)
def test_context_refuses_a_wrong_value_and_changes_nothing(name, value, message):
    before = DEBUG.value
    with pytest.raises(SettingError, match=message):
        Context(**{"DEBUG": before + 1, name: value})
    assert DEBUG.value == before
    assert SHARDING.value in SHARDING.choices


@pytest.mark.parametrize(
    ("text", "default", "expected"),
    [("6", 1, 6), ("0.5", 1.0, 0.5), ("tcp", "x", "tcp"), ("0", True, False), ("", 4, 4)],
)
def test_getenv_reads_in_the_type_of_the_default(monkeypatch, text, default, expected):
    name = f"EXAMPLE_{type(default).__name__}_{text}"
    monkeypatch.setenv(name, text)
    value = getenv(name, default)
    assert value == expected
    assert type(value) is type(expected)


def test_getenv_refuses_text_for_a_number(monkeypatch):
    monkeypatch.setenv("EXAMPLE_WORD", "many")
    with pytest.raises(SettingError, match="EXAMPLE_WORD='many'"):
        getenv("EXAMPLE_WORD", 1)


def test_the_default_device_can_be_set_in_two_ways(monkeypatch):
    known = ("CPU", "EXAMPLEDEVICE")
    monkeypatch.delenv("CPU", raising=False)
    with Context(DEV=""):
        assert requested_device(known) == ""
        monkeypatch.setenv("EXAMPLEDEVICE", "1")
        assert requested_device(known) == "EXAMPLEDEVICE"
        monkeypatch.setenv("CPU", "1")
        with pytest.raises(SettingError, match="CPU and EXAMPLEDEVICE are both set"):
            requested_device(known)
    with Context(DEV="NULL"):
        assert requested_device(known) == DEV.value == "NULL"


def test_the_default_device_names_the_renderer_of_the_cpu():
    for device, is_llvm in {"CPU:LLVM": True, "cpu:clang": False}.items():
        with Context(DEV=device):
            assert requested_device(("CPU",)) == "CPU" and compiles_with_llvm() is is_llvm
    for device in ("CPU", "CPU:1", "CUDA:PTX", ""):
        with Context(DEV=device):
            assert requested_device(()) == device and compiles_with_llvm() is bool(CPU_LLVM)


def test_thread_count_is_the_setting_or_the_available_cores():
    with Context(CPU_COUNT=3):
        assert thread_count() == CPU_COUNT.value
    with Context(CPU_COUNT=0):
        assert 1 <= thread_count() <= (os.cpu_count() or 1)


def test_cache_directory_is_the_setting_or_the_users_folder(monkeypatch: pytest.MonkeyPatch):
    with Context(CACHEDIR="somewhere"):
        assert cache_directory() == Path(CACHEDIR.value)
    with Context(CACHEDIR=""):
        monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
        assert cache_directory() == Path("/elsewhere/tinygrad-sharding")
        # empty is unset
        monkeypatch.setenv("XDG_CACHE_HOME", "")
        kept = cache_directory().relative_to(Path.home())
        assert kept in {Path(x, "tinygrad-sharding") for x in (".cache", "Library/Caches")}


def test_the_environment_of_a_new_process_sets_the_setting():
    program = "from tinygrad.settings import DEBUG, SHARDING; print(DEBUG.value, SHARDING.value)"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DEBUG": "1", "SHARDING": "strict"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split()[-2:] == ["1", "strict"]


def test_table_has_a_row_for_every_setting_of_the_library():
    table = settings_table()
    assert "| `SHARDING` | str | empty |" in table
    assert table.count("\n") == 2 + sum(bool(s.meaning) for s in ContextVar.declared.values())


def test_settings_page_of_the_documentation_is_up_to_date():
    page = (ROOT / "docs" / "settings.md").read_text()
    assert page == settings_page(), "run python docs/generate_settings.py"


def test_settings_that_mean_nothing_here_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinygrad import helpers
    from tinygrad.settings import COMPATIBLE

    assert {"LRU", "DEVECTORIZE", "TC_OPT", "FUSE_ARANGE", "NOLOCALS"} <= COMPATIBLE.keys()
    assert not [name for name in COMPATIBLE if ContextVar.declared[name].meaning]
    with Context(LRU=0, EMULATE="AMD"):
        assert (helpers.LRU.value, helpers.EMULATE.value) == (0, "AMD")
    assert helpers.LRU.value == COMPATIBLE["LRU"]
    page = settings_page()
    assert all(f"`{name}`" in page for name in COMPATIBLE)
    code = "from tinygrad.helpers import TC, CI, OSX; print(TC.value, CI)"
    environment = {**os.environ, "TC": "2", "CI": "1"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True
    )
    assert found.stdout.split() == [b"2", b"True"]
