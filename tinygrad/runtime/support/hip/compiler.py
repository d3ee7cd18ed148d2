"""Compiles HIP C++ to a code object of an AMD GPU with clang, which needs no GPU.

In: source text without includes or calls of AMD's device library. Out: a linked code object, as
`hipModuleLoadData` takes it. Code is kept in the disk cache. The compiler is that of ROCm, or else
the one of the package `ziglang`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tinygrad import diskcache
from tinygrad.device import CompileError, DeviceError
from tinygrad.settings import CACHELEVEL

ROCM = Path("/opt/rocm/llvm/bin")
OPTIONS = ("-O3", "-std=c++17", "-fno-math-errno", "-Wno-macro-redefined")
# the default since LLVM 21 is 6, which ROCm loads since 6.3 (llvm-project pull request 130963)
CODE_OBJECT = "-mcode-object-version=5"
WITHOUT_ROCM = ("-nogpuinc", "-nogpulib")


@dataclass(frozen=True)
class HipCompiler:
    """The commands of a clang for AMD GPUs and of its linker."""

    clang: tuple[str, ...]
    linker: tuple[str, ...]
    version: str

    def assembly(self, source: str, architecture: str) -> str:
        """The assembly of a kernel, which states its registers. Raises CompileError."""
        device = (f"--offload-arch={architecture}", "--offload-device-only", *WITHOUT_ROCM)
        options = (*OPTIONS, CODE_OBJECT)
        command = (*self.clang, "-x", "hip", *device, *options, "-S", "-o", "-", "-")
        return _run(command, source).stdout

    def link(self, assembly: str, architecture: str) -> bytes:
        """The code object of an assembly text."""
        target = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={architecture}", "-nogpulib", CODE_OBJECT)
        with tempfile.TemporaryDirectory() as folder:
            item, code = f"{folder}/kernel.o", f"{folder}/kernel.co"
            _run((*self.clang, *target, "-x", "assembler", "-c", "-o", item, "-"), assembly)
            _run((*self.linker, "-shared", "-o", code, item), "")
            return Path(code).read_bytes()


def _run(command: tuple[str, ...], text: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, check=False, input=text, capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"clang rejects the kernel:\n{done.stderr}\n{text}")
    return done


@functools.cache
def find_hip_compiler() -> HipCompiler:
    """ROCm's clang, or that of the package `ziglang`. Raises DeviceError if there is neither."""
    clang, linker = ROCM / "clang", ROCM / "ld.lld"
    if clang.exists() and linker.exists():
        return _compiler((str(clang),), (str(linker),))
    if importlib.util.find_spec("ziglang") is not None:
        zig = (sys.executable, "-m", "ziglang")
        return _compiler((*zig, "clang"), (*zig, "ld.lld"))
    raise DeviceError(
        f"HIP kernels are compiled by clang: install ROCm, which has it in {ROCM}, "
        "or pip install ziglang"
    )


def _compiler(clang: tuple[str, ...], linker: tuple[str, ...]) -> HipCompiler:
    version = subprocess.run((*clang, "--version"), check=True, capture_output=True, text=True)
    return HipCompiler(clang, linker, version.stdout)


def compile_hip(source: str, architecture: str) -> bytes:
    """The code object of a kernel for an architecture, as "gfx942", or that of the disk cache.

    Raises CompileError with clang's messages, DeviceError if there is no compiler.
    """
    compiler = find_hip_compiler()
    parts = (compiler.version, architecture, *OPTIONS, CODE_OBJECT, source)
    key = hashlib.sha256("|".join(parts).encode()).digest()
    cached = diskcache.get("hip", key) if CACHELEVEL else None
    if cached is not None:
        return cached
    code = compiler.link(compiler.assembly(source, architecture), architecture)
    if CACHELEVEL:
        diskcache.put("hip", key, code)
    return code
