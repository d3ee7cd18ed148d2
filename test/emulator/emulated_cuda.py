"""Puts the emulated driver and compiler in the place of NVIDIA's, in this process."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from test.emulator import compiler
from test.emulator.kernel_text import compile_kernel
from tinygrad.device import CompileError, Device
from tinygrad.renderer.gpu_targets import amd_target, apple_target
from tinygrad.renderer.target import Target

MODES = ("forwards", "backwards", "checked")
"""The order of threads, blocks and streams; `checked` is forwards, with each access checked."""


def make_default(mode: str, architecture: str | None = None, *, devices: int = 8) -> None:
    """Installs the emulator in one of MODES, and makes CUDA the default device."""
    install(
        devices=devices,
        is_backwards=mode == "backwards",
        checked=mode == "checked",
        target=find_target(architecture) if architecture else None,
    )
    Device.DEFAULT = "CUDA"


def is_installed() -> bool:
    """Whether CUDA is emulated in this process."""
    return load_driver.cache_info().currsize > 0


def install(
    *,
    devices: int = 8,
    is_backwards: bool = False,
    checked: bool = False,
    target: Target | None = None,
) -> None:
    """Makes `CUDA`, `CUDA:1` and so on emulated devices, before any of them is opened.

    With `checked`, each access of a kernel is checked. With a target of another vendor, its kernels
    are in that vendor's dialect. Raises NoCompilerError.
    """
    if is_installed():
        return
    os.environ["EMULATOR_DEVICES"] = str(devices)
    os.environ["EMULATOR_ORDER"] = str(int(is_backwards))
    load_driver()
    from tinygrad.runtime import cuda
    from tinygrad.runtime.support.cuda import nvrtc

    dialect, warp = ("cuda", 32) if target is None else (target.dialect, target.warp)

    def compile_cuda(source: str, architecture: str) -> bytes:
        try:
            return compile_kernel(source, dialect, warp=warp, checked=checked)
        except compiler.KernelError as error:
            raise CompileError(f"{error}\n{source}") from error

    nvrtc.compile_cuda = compile_cuda
    if target is not None:
        cuda._target = lambda gpu: target


def find_target(architecture: str) -> Target:
    """The target of an architecture of AMD or Apple, as "gfx942" or "apple7"."""
    return (apple_target if architecture.startswith("apple") else amd_target)(architecture)


@functools.cache
def load_driver() -> ctypes.CDLL:
    """Loads the emulated `libcuda.so.1`. The bindings then find it by that name.

    Raises NoCompilerError.
    """
    code = compiler.build_driver()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "libcuda.so.1")
        path.write_bytes(code)
        return ctypes.CDLL(str(path))


def take_reports() -> str:
    """What the emulator had to say of kernels and calls since it was asked last."""
    buffer = ctypes.create_string_buffer(1 << 16)
    load_driver().emulator_take_reports(buffer, ctypes.c_size_t(len(buffer)))
    return buffer.value.decode()


def set_memory_limit(device: int, nbytes: int) -> None:
    """Sets the memory of a device, for tests of what happens without."""
    load_driver().emulator_set_memory_limit(device, ctypes.c_size_t(nbytes))


@contextlib.contextmanager
def order(is_backwards: bool) -> Iterator[None]:
    """Blocks, warps, lanes and streams run forwards or backwards meanwhile."""
    before = os.environ.get("EMULATOR_ORDER", "0") == "1"
    load_driver().emulator_set_order(int(is_backwards))
    try:
        yield
    finally:
        load_driver().emulator_set_order(int(before))


@contextlib.contextmanager
def no_peers() -> Iterator[None]:
    """No device can access the memory of another one meanwhile."""
    load_driver().emulator_set_peers(0)
    try:
        yield
    finally:
        load_driver().emulator_set_peers(1)
