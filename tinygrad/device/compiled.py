"""An open device: its allocator, its compiler, and how it loads kernels.

Input: what a runtime has for one device. Output: memory, compiled code and loaded programs.
Invariant: a device that runs no kernels says so in the error of each method that would need one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from tinygrad.device.allocator import Allocator
from tinygrad.dtype import DType
from tinygrad.renderer.target import LaunchShape, Target
from tinygrad.uop.args import Reduction


class DeviceError(RuntimeError):
    """The device does not exist, or this machine cannot use it."""


class CompileError(RuntimeError):
    """A device's compiler rejects the source code."""


class LoadedProgram(Protocol):
    """A compiled kernel, loaded on a device."""

    def __call__(
        self,
        *buffers: Any,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Runs the kernel on buffers of its device, on all work items of a shape without Variables.

        Returns its time in seconds if `wait`.
        """


class Compiled:
    """An open device: allocator, compiler and loader of kernels.

    `target` describes the machine that its kernels are generated for, None if it runs none.
    `dtypes` are those that kernels support. A loaded program belongs to the device, unless all
    devices of the kind share their programs (`shares_programs`). `is_host_source` marks host data
    that is copied to devices: such copies are not traffic between devices. `replay` creates a
    native replay of recorded kernels, if the device supports it.
    """

    def __init__(
        self,
        device: str,
        allocator: Allocator,
        *,
        target: Target | None = None,
        compiler: Callable[[str, bool], bytes] | None = None,
        compiler_ahead: Callable[[str, bool], None] | None = None,
        runtime: Callable[[str, bytes], LoadedProgram] | None = None,
        replay: Callable[[], Any] | None = None,
        dtypes: frozenset[DType] = frozenset(),
        shares_programs: bool = False,
        is_host_source: bool = False,
    ) -> None:
        self.device = device
        self.allocator = allocator
        self.replay = replay
        self.dtypes = dtypes
        self.shares_programs = shares_programs
        self.is_host_source = is_host_source
        self._target = target
        self._compiler = compiler
        self._compiler_ahead = compiler_ahead
        self._runtime = runtime

    @property
    def runs_kernels(self) -> bool:
        """Whether the device computes; others only hold data."""
        return self._target is not None

    @property
    def target(self) -> Target:
        """The machine that kernels are generated for. Raises DeviceError if it runs none."""
        if self._target is None:
            raise DeviceError(f"{self.device} runs no kernels; move the tensor with .to('CPU')")
        return self._target

    @property
    def renderer(self) -> str:
        """The dialect of its kernels, "" if it runs none."""
        return "" if self._target is None else self._target.dialect

    def compile(self, source: str, is_vectorized: bool = False) -> bytes:
        """Compiles a kernel, or reads it from the disk cache. Raises CompileError.

        Source that `is_vectorized` needs no vectorizer; see `ProgramSpec`.
        """
        if self._compiler is None:
            raise DeviceError(f"{self.device} runs no kernels; move the tensor with .to('CPU')")
        return self._compiler(source, is_vectorized)

    def compile_ahead(self, source: str, is_vectorized: bool = False) -> None:
        """Begins to compile a kernel beside this process, if the device's compiler can."""
        if self._compiler_ahead is not None:
            self._compiler_ahead(source, is_vectorized)

    def runtime(self, name: str, code: bytes) -> LoadedProgram:
        """Loads the kernel `name` of `code`."""
        if self._runtime is None:
            raise DeviceError(f"{self.device} runs no kernels; move the tensor with .to('CPU')")
        return self._runtime(name, code)

    def describe(self) -> str:
        """What the device is, for people."""
        if self._target is None:
            return "holds data, and runs no kernels"
        machine = self._target.architecture or f"{self._target.threads} threads"
        return f"{machine}, kernels in {self._target.dialect}"

    def reading_memory_of(self, others: Sequence[Compiled]) -> AbstractContextManager[None]:
        """A block whose kernels read memory of other devices. They run after all that these were
        given before, and before all that these are given later.
        """
        return nullcontext()

    def all_reduce(self, pairs: Sequence[tuple[Any, Any]], reduction: Reduction) -> None:
        """Lets the library of this kind of device reduce the sources of pairs of buffers to their
        destinations.
        """
        raise DeviceError(f"{self.device} has no library of collectives")

    def synchronize(self) -> None:
        """Waits for all launches to complete."""
