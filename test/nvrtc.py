"""Compile CUDA text for an architecture without a GPU, and read what became of it.

Needs the extra `cuda` (`nvidia-cuda-nvrtc`, `cuda-bindings`); instructions are counted where the
wheel `nvidia-cuda-nvdisasm` is installed. `why_not()` says what is missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygrad.runtime.support.cuda import nvrtc as compiler

_USED = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spills": r"(\d+) bytes spill stores",
    "shared": r"(\d+) bytes smem",
}
MOVES_NO_REGISTERS = "(C7508)"
"""What the compiler's messages contain where it ignores `setmaxnreg`."""
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """A kernel of an architecture: what a thread and a block use."""

    registers: int
    stack: int
    spills: int
    """Bytes that are stored because registers lack."""
    shared: int
    """Bytes of static shared memory."""
    messages: str
    """What the compiler says, also of products that it makes wait for each other."""
    cubin: bytes


def why_not() -> str:
    """Why nothing can be compiled here; empty if it can."""
    if importlib.util.find_spec("cuda") is None:
        return "cuda-bindings is not installed"
    if compiler.compile_cuda.__module__ != compiler.__name__:
        return "CUDA is emulated in this process"
    try:
        importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except Exception as error:  # whatever the loader of the library raises
        return f"NVRTC does not load: {error}"
    return ""


def compile_for(architecture: str, source: str) -> Compiled:
    """Compile one kernel. Raises RuntimeError with the compiler's messages."""
    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    options = [b"--std=c++17", b"--ptxas-options=-v", b"-default-device"]
    options.append(f"--gpu-architecture={architecture}".encode())
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.decode().strip("\0 \n")
    if status.value:
        raise RuntimeError(f"{text}\n{source}")
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = b" " * size
    nvrtc.nvrtcGetCUBIN(program, cubin)
    found = {name: re.search(pattern, text) for name, pattern in _USED.items()}
    numbers = {name: int(match[1]) if match else 0 for name, match in found.items()}
    return Compiled(**numbers, messages=text, cubin=cubin)


def disassembler() -> Path | None:
    """The program `nvdisasm` of the wheel, or None."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    found = [path for folder in folders for path in Path(folder).glob("*/bin/nvdisasm")]
    return found[0] if found else None


def count_instructions(compiled: Compiled) -> Counter[str]:
    """The instructions of a kernel, counted by name without suffixes."""
    program = disassembler()
    assert program is not None, "nvdisasm is not installed"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.cubin)
        file.flush()
        command = [str(program), "-c", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Counter(_INSTRUCTION.findall(text))
