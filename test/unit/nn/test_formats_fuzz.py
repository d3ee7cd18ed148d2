"""Damaged files: each is loaded or refused with FileFormatError, in little memory.

Valid files of every format are mutated at random, from a fixed seed.
"""

from __future__ import annotations

import io
import random
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.unit.nn.test_gguf import VALID as GGUF_FILE
from test.unit.nn.torch_files import (
    Stored,
    array_tensor,
    parameter,
    stream_checkpoint,
    tensor,
    zip_checkpoint,
)
from tinygrad import Tensor
from tinygrad.nn.state import (
    FileFormatError,
    gguf_load,
    safe_load,
    safe_save,
    tar_extract,
    torch_load,
    zip_extract,
)
from tinygrad.nn.state.file_bytes import contiguous_memory

ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)
# loading these files takes kilobytes; more than this comes from a damaged size field
MAX_BYTES = 16 << 20
INTERESTING = [
    *(bytes(size) for size in (1, 2, 4, 8)),
    *(b"\xff" * size for size in (1, 2, 4, 8)),
    *((2 ** (8 * size - 1) - 1).to_bytes(size, "little") for size in (2, 4, 8)),
    *((2 ** (8 * size - 1)).to_bytes(size, "little") for size in (1, 2, 4, 8)),
    *(value.to_bytes(4, "little") for value in (1, 16, 64, 65536, 1 << 24)),
    *(b"\x80" + b"\xff" * 11, b"99999999999", b"-1", b"1e400", b"[" * 50, b'":{"'),
    *(b"(" * 20, b"2\x86" * 40, b"cos\nsystem\n", b"R", b"Q", b"b", b"\x93"),
]


def safetensors_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        tensors = {"a": Tensor(ARRAY), "b": Tensor([1, 2, 3]), "empty": Tensor.empty(0, 2)}
        safe_save(tensors, path, metadata={"format": "pt"})
        return path.read_bytes()


def checkpoint() -> Any:
    shared = Stored("1", ARRAY.reshape(-1))
    return {
        "weight": parameter(array_tensor("0", ARRAY.astype(np.float16))),
        "views": [tensor(shared, (4, 3), (1, 4)), tensor(shared, (2, 2), (4, 2), 1)],
        "step": 7,
        "options": {"lr": 1e-3, "betas": (0.9, 0.999), "names": {"x", "y"}, "none": None},
    }


def tar_file() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("a", "ü" * 60, "folder/b"):
            header = tarfile.TarInfo(name)
            header.size = 5
            archive.addfile(header, io.BytesIO(b"hello"))
    return packed.getvalue()


def zip_file() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("stored", b"hello")
        archive.writestr("deflated", b"hello" * 100, zipfile.ZIP_DEFLATED)
        archive.writestr("ünïcode", b"", zipfile.ZIP_DEFLATED)
    return packed.getvalue()


FORMATS: dict[str, tuple[Callable[[], bytes], Callable[[Any], Any]]] = {
    "safetensors": (safetensors_file, safe_load),
    "torch zip": (lambda: zip_checkpoint(checkpoint()), torch_load),
    "torch stream": (lambda: stream_checkpoint(checkpoint()), torch_load),
    "tar": (tar_file, tar_extract),
    "zip": (zip_file, zip_extract),
    "gguf": (lambda: GGUF_FILE, gguf_load),
}


def mutated(content: bytes, choice: random.Random) -> bytes:
    """The content with one to four mutations."""
    for _ in range(choice.choice([1, 1, 1, 2, 4])):
        place = choice.randrange(len(content) + 1)
        stop = min(len(content), place + choice.choice([1, 4, 16, 100]))
        match choice.choice(["flip", "set", "set", "insert", "remove", "repeat", "cut"]):
            case "flip":
                damage = bytes(
                    byte ^ 1 << choice.randrange(8) for byte in content[place : place + 1]
                )
                content = content[:place] + damage + content[place + 1 :]
            case "set":
                damage = choice.choice(INTERESTING)
                content = content[:place] + damage + content[place + len(damage) :]
            case "insert":
                content = content[:place] + choice.choice(INTERESTING) + content[place:]
            case "remove":
                content = content[:place] + content[stop:]
            case "repeat":
                content = content[:stop] + content[place:]
            case "cut":
                content = content[:place] if choice.random() < 0.3 else content
    return content


def tensors_in(loaded: Any, seen: set[int]) -> Iterator[Tensor]:
    """The tensors of nested containers, which may contain themselves."""
    if isinstance(loaded, Tensor):
        yield loaded
    if id(loaded) in seen or not isinstance(loaded, (dict, list, tuple)):
        return
    seen.add(id(loaded))
    for value in loaded.values() if isinstance(loaded, dict) else loaded:
        yield from tensors_in(value, seen)


def use(loaded: Any) -> None:
    """Reads every tensor stored verbatim in the file: all of its bytes must exist."""
    for x in tensors_in(loaded, set()):
        if isinstance(x.device, str) and (memory := contiguous_memory(x)) is not None:
            assert len(bytes(memory.as_memoryview())) == x.numel() * x.dtype.itemsize


def run(name: str, folder: Path, count: int) -> int:
    """Loads `count` damaged files; returns how many were refused."""
    make, load = FORMATS[name]
    content = make()
    choice = random.Random(f"seed of {name}")
    refused = 0
    for number_of_file in range(count):
        path = folder / str(number_of_file)
        path.write_bytes(mutated(content, choice))
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            use(load(path))
        except FileFormatError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name} number {number_of_file}: {error!r}") from error
        taken = tracemalloc.get_traced_memory()[1] - before
        assert taken < MAX_BYTES, f"{name} number {number_of_file} takes {taken} bytes"
        path.unlink()
    return refused


@pytest.fixture
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced_memory")
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_loaded_or_refused(tmp_path, name):
    assert run(name, tmp_path, 60) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("traced_memory")
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files_are_loaded_or_refused(tmp_path, name):
    assert run(name, tmp_path, 1500) > 100


@pytest.mark.parametrize("name", FORMATS)
def test_the_files_are_valid_before_mutation(tmp_path, name):
    make, load = FORMATS[name]
    (tmp_path / "file").write_bytes(make())
    loaded = load(tmp_path / "file")
    use(loaded)
    assert list(tensors_in(loaded, set()))
