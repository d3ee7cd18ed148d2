"""The C++ compiler of the emulator, and a cache of what it compiled."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygrad import diskcache

FOLDER = Path(__file__).parent


class NoCompilerError(RuntimeError):
    """This machine has no C++ compiler."""


class KernelError(RuntimeError):
    """The compiler rejects the text of a kernel."""


@dataclass(frozen=True)
class Compiler:
    """A command, and what identifies it in keys of the cache."""

    command: tuple[str, ...]
    version: str
    linker: tuple[str, ...]
    """Makes a shared object of an object file; less than the compiler's own link step costs."""

    def run(self, arguments: Sequence[str], source: str = "") -> None:
        """Raises KernelError with the compiler's messages."""
        _run([*self.command, *arguments], source)

    def link(self, target: str, *objects: str) -> None:
        _run([*self.linker, "-shared", "-o", target, *objects], "")


def _run(command: Sequence[str], source: str) -> None:
    done = subprocess.run(command, check=False, input=source, capture_output=True, text=True)
    if done.returncode:
        raise KernelError(f"{' '.join(command)}:\n{done.stderr[:4000]}")


@functools.cache
def find_compiler() -> Compiler:
    """g++, clang++ or the compiler of the `ziglang` package. Raises NoCompilerError."""
    if os.name != "posix" or sys.platform == "darwin":
        raise NoCompilerError("the emulator needs Linux: it is a library of ELF")
    for name in ("g++", "clang++"):
        if (path := shutil.which(name)) is not None:
            linker = (shutil.which("ld") or path,)
            return Compiler((path,), _version((path,)), linker)
    if importlib.util.find_spec("ziglang") is not None:
        command = (sys.executable, "-m", "ziglang", "c++")
        return Compiler(command, _version(command), command)
    raise NoCompilerError("no C++ compiler: install g++, clang++, or `pip install ziglang`")


def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True)
    return done.stdout


@functools.cache
def _sources_digest(folder: str) -> str:
    """Identifies the text of the emulator's own files."""
    digest = hashlib.sha256()
    for path in sorted((FOLDER / folder).rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _cache_key(folder: str, *parts: str) -> bytes:
    identity = (find_compiler().version, _sources_digest(folder), *parts)
    return hashlib.sha256("\0".join(identity).encode()).digest()


FLAGS = ("-std=c++17", "-fPIC", "-w", "-O1")
# kernels: each operation rounds, signed integers that overflow are an error, for compilers assume
# that they do not, and modules need no library but C's
KERNEL_FLAGS = (
    *FLAGS,
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-math-errno",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fno-threadsafe-statics",
    # touches each page of a stack, so that none overflows past its inaccessible page
    "-fstack-clash-protection",
    "-fsanitize=signed-integer-overflow",
    "-fsanitize-undefined-trap-on-error",
)
# a load whose value is used under a condition alone stays where the text has it
CHECKED_FLAGS = ("-fsanitize=thread", "-Og", "-fno-tree-sink")
# multiply-adds that round once, as NVRTC and clang for AMD GPUs make them
CONTRACTED_FLAGS = ("-ffp-contract=fast", *(("-mfma",) if platform.machine() == "x86_64" else ()))


def compile_module(source: str, *, checked: bool = False, contracted: bool = False) -> bytes:
    """C++ to a shared object, or its bytes from the cache. Raises KernelError."""
    flags = (*KERNEL_FLAGS, *(CHECKED_FLAGS if checked else ()))
    flags += CONTRACTED_FLAGS if contracted else ()
    key = _cache_key("kernel", source, *flags)
    if (cached := diskcache.get("emulator", key)) is not None:
        return cached
    with tempfile.TemporaryDirectory() as folder:
        item, module = f"{folder}/kernel.o", f"{folder}/kernel.so"
        headers = f"-I{FOLDER / 'kernel'}"
        find_compiler().run([*flags, headers, "-x", "c++", "-c", "-", "-o", item], source)
        find_compiler().link(module, item)
        code = Path(module).read_bytes()
    diskcache.put("emulator", key, code)
    return code


def build_driver() -> bytes:
    """The emulated `libcuda.so.1`."""
    flags = (*FLAGS, "-pthread")
    shared_header = (FOLDER / "kernel" / "interface.h").read_text()
    key = _cache_key("driver", shared_header, *flags)
    if (cached := diskcache.get("emulator", key)) is not None:
        return cached
    sources = [str(path) for path in sorted((FOLDER / "driver").glob("*.cpp"))]
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/libcuda.so.1"
        link = ["-shared", "-Wl,-soname,libcuda.so.1", "-o", library, *sources, "-ldl"]
        find_compiler().run([*flags, *link])
        code = Path(library).read_bytes()
    diskcache.put("emulator", key, code)
    return code
