"""NULL: a device for dry runs.

Memory is counted but not allocated, kernels are rendered but not run, copies do nothing. It serves
to plan programs for devices that the machine lacks. Reads return zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.allocator import Allocator, BufferSpec, FreeLists
from tinygrad.device import Compiled
from tinygrad.dtype import dtypes
from tinygrad.settings import thread_count

if TYPE_CHECKING:
    from tinygrad.device import Buffer


class NullAllocator(Allocator):
    """Allocates no memory: every handle is 0."""

    def copyin(self, handle: int, source: memoryview) -> None:
        """Discards the data."""

    def copyout(self, destination: memoryview, handle: int) -> None:
        destination[:] = bytes(destination.nbytes)

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        return 0, None


class NullProgram:
    """A kernel that does nothing and takes 0 seconds."""

    def __init__(self, name: str, code: bytes) -> None:
        self.name = name

    def __call__(
        self,
        *buffers: Buffer,
        grid: int,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        return 0.0 if wait else None


def open_device(name: str) -> Compiled:
    """Opens a device with the renderer of the CPU."""
    return Compiled(
        name,
        NullAllocator(name, FreeLists(0)),
        renderer="llvm",
        compiler=lambda source, _: source.encode(),
        runtime=NullProgram,
        dtypes=frozenset(dtypes.all),
        threads=thread_count(),
        keeps_data=False,
    )
