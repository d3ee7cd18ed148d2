"""NULL: a device for dry runs.

Memory is counted but not allocated, kernels are rendered but not run, copies do nothing. It serves
to plan programs for devices that the machine lacks. Reads return zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tinygrad.device import Compiled
from tinygrad.device.allocator import Allocator, BufferSpec, FreeLists
from tinygrad.dtype import dtypes
from tinygrad.renderer.host_cpu import host_target
from tinygrad.uop.args import Reduction

if TYPE_CHECKING:
    from tinygrad.device import Buffer
    from tinygrad.renderer.target import LaunchShape


class NullAllocator(Allocator):
    """Allocates no memory: every handle is 0."""

    def copyin(self, handle: int, source: memoryview) -> None:
        """Discards the data."""

    def copyout(self, destination: memoryview, handle: int) -> None:
        destination[:] = bytes(destination.nbytes)

    def copy_from(self, handle: int, source: Allocator, source_handle: Any, nbytes: int) -> bool:
        return True

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        return 0, None


class NullProgram:
    """A kernel that does nothing and takes 0 seconds."""

    def __init__(self, name: str, code: bytes) -> None:
        self.name = name

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        return 0.0 if wait else None


class NullDevice(Compiled):
    """An open device that computes nothing."""

    def describe(self) -> str:
        return "computes nothing, for dry runs"

    def all_reduce(self, pairs: Sequence[tuple[Any, Any]], reduction: Reduction) -> None:
        """Reduces nothing."""


def open_device(name: str) -> Compiled:
    """Opens a device with the renderer of the CPU."""
    return NullDevice(
        name,
        NullAllocator(name, FreeLists(0)),
        target=host_target(),
        compiler=lambda source, _: source.encode(),
        runtime=NullProgram,
        dtypes=frozenset(dtypes.all),
        shares_programs=True,
    )
