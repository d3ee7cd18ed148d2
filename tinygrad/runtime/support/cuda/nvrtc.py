"""Compiles CUDA C++ to machine code of a GPU with NVRTC, which needs no GPU.

In: source text without includes, which NVRTC's package lacks. Out: a cubin, or PTX for the driver
to compile where the GPU is newer than NVRTC. Code is kept in the disk cache.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from typing import Any

from tinygrad import diskcache
from tinygrad.device import CompileError, DeviceError
from tinygrad.settings import CACHELEVEL

OPTIONS = ("--std=c++17",)
EXCERPT_LINES = 3
"""Lines of the source that an error shows, up to the one that NVRTC names."""


def compile_cuda(source: str, architecture: str) -> bytes:
    """Code for an architecture, as "sm_90a". Raises CompileError with NVRTC's messages.

    Raises DeviceError if NVRTC is missing.
    """
    option, is_cubin = _target_option(architecture)
    options = (*OPTIONS, option)
    if not CACHELEVEL:
        return _compile(source, options, is_cubin)
    parts = ("{}.{}".format(*version()), *options, source)
    key = hashlib.sha256("|".join(parts).encode()).digest()
    cached = diskcache.get("nvrtc", key)
    if cached is not None:
        return cached
    code = _compile(source, options, is_cubin)
    diskcache.put("nvrtc", key, code)
    return code


@functools.cache
def _nvrtc() -> Any:
    """The bindings of NVRTC. Raises DeviceError if they or the library are missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        # the bindings raise RuntimeError where they find no library
        raise DeviceError(
            "CUDA kernels are compiled by NVRTC: pip install cuda-bindings nvidia-cuda-nvrtc"
        ) from error
    return nvrtc


@functools.cache
def version() -> tuple[int, int]:
    """The version of NVRTC."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return int(major), int(minor)


@functools.cache
def _target_option(architecture: str) -> tuple[str, bool]:
    """The option for an architecture, and whether NVRTC makes machine code for it."""
    number = int(re.sub(r"\D", "", architecture))
    _, known = _nvrtc().nvrtcGetSupportedArchs()
    if number in known:
        return f"--gpu-architecture={architecture}", True
    older = max((x for x in known if x < number), default=min(known))
    return f"--gpu-architecture=compute_{older}", False


def _compile(source: str, options: tuple[str, ...], is_cubin: bool) -> bytes:
    nvrtc = _nvrtc()
    text = source.encode()
    _, program = nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, None, None)
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if status:
            raise CompileError(_describe_error(_log(nvrtc, program), source))
        size, get = (
            (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            if is_cubin
            else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        )
        return _fill(get, program, size(program)[1])
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _fill(get: Callable[[Any, bytes], Any], program: Any, nbytes: int) -> bytes:
    """The bytes that a function of NVRTC writes: the bindings write into an object of bytes."""
    # never one that Python shares, as it does those of a single byte
    content = bytes(nbytes + 1)
    get(program, content)
    return content[:nbytes]


def _log(nvrtc: Any, program: Any) -> str:
    _, nbytes = nvrtc.nvrtcGetProgramLogSize(program)
    log = _fill(nvrtc.nvrtcGetProgramLog, program, nbytes)
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _describe_error(log: str, source: str) -> str:
    """NVRTC's messages, with the line that the first one names and those before it."""
    found = re.search(r"kernel\.cu\((\d+)\)", log)
    if found is None:
        return f"NVRTC rejects the kernel: {log}\n{source}"
    number = int(found[1])
    lines = source.splitlines()[:number][-EXCERPT_LINES:]
    first = number - len(lines) + 1
    excerpt = "\n".join(f"{first + i:5d} | {line}" for i, line in enumerate(lines))
    return f"NVRTC rejects the kernel at line {number}:\n{log}\n{excerpt}"
