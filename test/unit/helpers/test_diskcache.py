"""The disk cache: entries are complete or absent, whatever happens to files and processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tinygrad import diskcache
from tinygrad.atomic_file import atomic_write
from tinygrad.settings import Context

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("empty_cache")


def entries(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_a_stored_value_is_read_back_and_others_are_absent():
    diskcache.put("kernels", "key", b"value")
    assert diskcache.get("kernels", "key") == b"value"
    assert diskcache.get("kernels", "other") is None
    assert diskcache.get("kernels", b"key") is None
    assert diskcache.get("other", "key") is None


def test_an_empty_value_is_stored():
    diskcache.put("kernels", b"key", b"")
    assert diskcache.get("kernels", b"key") == b""


def test_later_value_replaces_the_earlier():
    diskcache.put("kernels", "key", b"old")
    diskcache.put("kernels", "key", b"new")
    assert diskcache.get("kernels", "key") == b"new"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
    ids=["short by one", "short header", "empty", "flipped value", "flipped checksum"],
)
def test_damaged_entry_is_absent_and_removed(empty_cache: Path, damage):
    diskcache.put("kernels", "key", b"value" * 100)
    (path,) = entries(empty_cache)
    path.write_bytes(damage(path.read_bytes()))
    assert diskcache.get("kernels", "key") is None
    assert not path.exists()
    diskcache.put("kernels", "key", b"again")
    assert diskcache.get("kernels", "key") == b"again"


def test_clear_empties_one_table_or_all():
    for table in ("first", "second"):
        diskcache.put(table, "key", b"value")
    diskcache.clear("first")
    assert diskcache.get("first", "key") is None
    assert diskcache.get("second", "key") == b"value"
    diskcache.clear()
    assert diskcache.get("second", "key") is None


def test_folder_that_cannot_be_written_is_no_error(empty_cache: Path):
    (empty_cache / "file").write_text("not a folder")
    with Context(CACHEDIR=str(empty_cache / "file")):
        diskcache.put("kernels", "key", b"value")
        assert diskcache.get("kernels", "key") is None


def test_writer_that_fails_leaves_the_old_file_alone(empty_cache: Path):
    path = empty_cache / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), atomic_write(path) as file:
        file.write(b"half of the new")
        raise KeyError
    assert entries(empty_cache) == [path]
    assert path.read_bytes() == b"old"


# both processes write the same keys repeatedly, and read values of either
HAMMER = """
import sys
from tinygrad import diskcache
mine = sys.argv[1].encode()
whole = {letter * 20_000 for letter in (b"a", b"b")}
for round in range(150):
    key = str(round % 3)
    diskcache.put("shared", key, mine * 20_000)
    found = diskcache.get("shared", key)
    assert found in whole, found and len(found)
print("whole")
"""


def start(program: str, argument: str, cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, argument],
        cwd=ROOT,
        env={"CACHEDIR": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_concurrent_processes_only_see_complete_entries(empty_cache: Path):
    processes = [start(HAMMER, letter, empty_cache) for letter in "ab"]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs == ["whole\n", "whole\n"]
    assert len(entries(empty_cache)) == 3


ENDLESS = """
import sys
from tinygrad import diskcache
diskcache.put("shared", "key", b"a" * 1_000_000)
print("started", flush=True)
while True:
    diskcache.put("shared", "key", b"a" * 1_000_000)
"""


def test_killed_writer_leaves_a_complete_entry(empty_cache: Path):
    process = start(ENDLESS, "", empty_cache)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    process.kill()
    process.communicate()
    assert diskcache.get("shared", "key") == b"a" * 1_000_000
