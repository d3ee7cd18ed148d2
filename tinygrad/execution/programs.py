"""Programs of kernels: from the disk cache, or by code generation.

Input: a kernel's tensor form and the renderer of a device. Output: a `ProgramSpec`. Invariant: a
kept program is what this code would generate, since everything that code generation depends on is
in its key: the form, the target, settings, and the version of each source file of the package.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

from tinygrad import diskcache
from tinygrad.renderer import ProgramSpec, Renderer
from tinygrad.settings import ALLOW_TF32, BEAM, CACHELEVEL, NOOPT, TC
from tinygrad.uop.known_orders import orders_kept
from tinygrad.uop.ops import UOp
from tinygrad.uop.passes import are_observed

TABLE = "programs"
KEEPS_PROGRAMS = 2
"""The `CACHELEVEL` from which on programs are kept, and not machine code alone."""


def kernel_program(ast: UOp, renderer: Renderer, device: str) -> ProgramSpec:
    """The program of a kernel's tensor form for a device. Passes that are observed or verified run
    each time.
    """
    key = None
    if CACHELEVEL >= KEEPS_PROGRAMS and not BEAM and not are_observed() and source_version():
        parts = (source_version(), renderer.target.key, NOOPT.value, ALLOW_TF32.value, TC.value)
        key = hashlib.sha256(repr(parts).encode() + ast.key).digest()
        if (kept := _read(key)) is not None:
            return kept
    found = generate_program(ast, renderer, device)
    if key is not None:
        diskcache.put(TABLE, key, pickle.dumps(found))
    return found


def generate_program(ast: UOp, renderer: Renderer, device: str) -> ProgramSpec:
    """The program of a kernel's tensor form, by code generation. It is imported here: a process
    whose kernels are all kept needs none.
    """
    from tinygrad.codegen import get_program
    from tinygrad.execution.tuning import tuned
    from tinygrad.schedule.pipeline import lower_kernel

    with orders_kept():
        return get_program(tuned(lower_kernel(ast), renderer, device), renderer)


def _read(key: bytes) -> ProgramSpec | None:
    data = diskcache.get(TABLE, key)
    if data is None:
        return None
    found = pickle.loads(data)
    assert isinstance(found, ProgramSpec)
    return found


@functools.cache
def source_version() -> str:
    """A hash that changes with every source file of the package; empty if they are in no folder."""
    files = sorted(_source_files(Path(diskcache.__file__).parent))
    return hashlib.sha256("\n".join(files).encode()).hexdigest() if files else ""


def _source_files(folder: Path) -> Iterator[str]:
    """The path, size and time of each source file in a folder."""
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".ll")):
                status = entry.stat()
                yield f"{entry.path} {status.st_size} {status.st_mtime_ns}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _source_files(Path(entry.path))
