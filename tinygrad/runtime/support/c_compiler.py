"""Compiles C source to an object file for this machine, with the system's compiler.

Input: C source. Output: the bytes of an object file, from the disk cache if the same compiler
compiled the same source before.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tinygrad import diskcache
from tinygrad.device import CompileError, DeviceError
from tinygrad.runtime.support.llvm import host_target
from tinygrad.settings import CACHELEVEL, CPU_ARCH

COMPILERS = ("clang", "gcc", "cc")
# Integers wrap around, as in numpy.
# The JIT linker supports neither stack protectors nor unwind tables.
FLAGS = (
    "-O2",
    "-fPIC",
    "-fwrapv",
    "-fno-math-errno",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
)


@functools.cache
def find_compiler() -> tuple[str, str]:
    """The path and version of the system's C compiler. Raises DeviceError if there is none."""
    for name in COMPILERS:
        path = shutil.which(name)
        if path is not None:
            version = subprocess.run(
                [path, "--version"], check=True, capture_output=True, text=True
            )
            return path, version.stdout
    raise DeviceError(
        f"no C compiler found (looked for {', '.join(COMPILERS)}); install one, "
        "or leave CPU_LLVM at 1, which needs none"
    )


def compile_c(source: str) -> bytes:
    """Compiles C source to an object file, or reads it from the disk cache.

    Raises CompileError with the compiler's messages, DeviceError if there is no compiler.
    """
    path, version = find_compiler()
    if not CACHELEVEL:
        return _run_compiler(path, source)
    parts = (path, version, host_target().key, *FLAGS, source)
    key = hashlib.sha256("|".join(parts).encode()).digest()
    cached = diskcache.get("c", key)
    if cached is not None:
        return cached
    code = _run_compiler(path, source)
    diskcache.put("c", key, code)
    return code


def _run_compiler(path: str, source: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.o"
        arch = f"-march={CPU_ARCH.value or 'native'}"
        command = [path, arch, *FLAGS, "-x", "c", "-c", "-", "-o", str(output)]
        done = subprocess.run(command, check=False, input=source, capture_output=True, text=True)
        if done.returncode:
            raise CompileError(f"{path} rejects the kernel:\n{done.stderr}\n{source}")
        return output.read_bytes()
