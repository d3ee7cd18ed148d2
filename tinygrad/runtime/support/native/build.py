"""Compiles the C sources to the LLVM IR that ships with the package.

    pip install ziglang==0.17.1
    python -m tinygrad.runtime.support.native.build

`zig cc` is a clang that brings the headers of every platform. Its LLVM must not be newer than
llvmlite's, which reads IR of its own and older versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tinygrad.runtime.support.native import FOLDER

TARGETS = {
    "x86_64-linux": "x86_64-linux-gnu",
    "aarch64-linux": "aarch64-linux-gnu",
    "x86_64-macos": "x86_64-macos",
    "aarch64-macos": "aarch64-macos",
}
MODULES = ("runtime", "half")

# Loops are left for the process that loads the IR: it knows its vector units.
# The linker in the process has no symbols for sanitizers, stack protectors and unwind tables.
FLAGS = (
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-command-line-argument",  # zig adds -c
    "-O2",
    "-g0",
    "-mcpu=baseline",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-fno-unroll-loops",
    "-fno-sanitize=all",
    "-fno-stack-protector",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
)

# What names the compiler's target: the process that loads the IR sets its own.
TARGET_LINE = re.compile(
    r"^(?:; ModuleID|source_filename|target datalayout|target triple|!llvm\.ident) .*\n",
    re.MULTILINE,
)
TARGET_ATTRIBUTE = re.compile(
    r' "(?:target-cpu|target-features|tune-cpu|frame-pointer|min-legal-vector-width|'
    r'stack-protector-buffer-size)"="[^"]*"'
)


def clang_version() -> str:
    """The version of the clang in the `ziglang` package. Raises CalledProcessError without it."""
    done = subprocess.run([*_zig_cc(), "--version"], check=True, capture_output=True, text=True)
    return done.stdout.split()[2]


def compile_module(module: str, platform: str) -> str:
    """LLVM IR of `<module>.c` for a platform."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "module.ll"
        emit = ("-S", "-emit-llvm", f"{module}.c", "-o", str(output))
        command = [*_zig_cc(), "-target", TARGETS[platform], *FLAGS, *emit]
        subprocess.run(command, check=True, cwd=FOLDER)
        text = output.read_text()
    header = f"; {module}.c for {platform}, written by build.py with clang {clang_version()}\n"
    return header + TARGET_ATTRIBUTE.sub("", TARGET_LINE.sub("", text))


def _zig_cc() -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc"]


def main() -> None:
    for platform in TARGETS:
        folder = FOLDER / platform
        folder.mkdir(exist_ok=True)
        for module in MODULES:
            path = folder / f"{module}.ll"
            path.write_text(compile_module(module, platform))
            print(path)


if __name__ == "__main__":
    main()
