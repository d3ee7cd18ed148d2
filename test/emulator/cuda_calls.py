"""Calls of the CUDA driver as tests write them: arrays in and out, exceptions for errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda.bindings import driver

from test.emulator.emulated_cuda import take_reports
from test.emulator.kernel_text import compile_kernel
from tinygrad.renderer.tensor_map import TensorMap
from tinygrad.runtime.support.cuda.program import Arguments

NON_BLOCKING = 1


class CallError(RuntimeError):
    """A call failed. The message has what the emulator says of it."""


def check(result: tuple[Any, ...]) -> Any:
    """The value of a call. Raises CallError."""
    code, *values = result
    if code.value:
        raise CallError(f"{code.name}\n{take_reports()}")
    return values[0] if len(values) == 1 else tuple(values)


class EmulatedDevice:
    """One device, with a stream of its own."""

    def __init__(self, number: int) -> None:
        check(driver.cuInit(0))
        self.number = number
        self.context = check(driver.cuDevicePrimaryCtxRetain(number))
        self.activate()
        self.stream = self.new_stream()

    def activate(self) -> None:
        check(driver.cuCtxSetCurrent(self.context))

    def reset(self) -> None:
        """Forgets what went wrong."""
        check(driver.cuDevicePrimaryCtxReset(self.number))
        take_reports()

    def new_stream(self) -> Any:
        return check(driver.cuStreamCreate(NON_BLOCKING))

    def load(
        self,
        source: str,
        name: str,
        *,
        checked: bool = False,
        contracted: bool = False,
        dialect: str = "cuda",
        warp: int = 32,
    ) -> Any:
        """The kernel `name` of a text."""
        code = compile_kernel(source, dialect, warp=warp, checked=checked, contracted=contracted)
        module = check(driver.cuModuleLoadData(code))
        return check(driver.cuModuleGetFunction(module, name.encode()))

    def allow_shared(self, kernel: Any, nbytes: int) -> None:
        """Allows a kernel so much dynamic shared memory."""
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        check(driver.cuFuncSetAttribute(kernel, attribute, nbytes))

    def empty(self, nbytes: int) -> int:
        self.activate()
        return int(check(driver.cuMemAlloc(nbytes)))

    def upload(self, array: np.ndarray) -> int:
        address = self.empty(array.nbytes)
        check(driver.cuMemcpyHtoD(address, array.ctypes.data, array.nbytes))
        return address

    def download(self, address: int, like: np.ndarray) -> np.ndarray:
        self.activate()
        result = np.empty_like(like)
        check(driver.cuMemcpyDtoH(result.ctypes.data, address, result.nbytes))
        return result

    def launch(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        threads: int,
        *arguments: int,
        shared: int = 0,
        stream: Any = None,
        maps: Sequence[tuple[int, TensorMap]] = (),
    ) -> None:
        """Launches a kernel, whose parameters are pointers and integers of 64 bits, then tensor
        maps.
        """
        blocks = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
        where = self.stream if stream is None else stream
        given = Arguments(len(arguments), maps)
        given.set(list(arguments))
        check(
            driver.cuLaunchKernel(
                kernel, *blocks, threads, 1, 1, shared, where, given.address if arguments else 0, 0
            )
        )

    def synchronize(self) -> None:
        check(driver.cuStreamSynchronize(self.stream))
