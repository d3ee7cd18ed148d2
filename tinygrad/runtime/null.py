"""NULL: a device that runs nothing and counts everything.

Memory is counted and not allocated, kernels are rendered and not run, copies move nothing: a
program for many devices can be planned on a machine that has none. What is read back is zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad.allocator import Allocator, BufferSpec
from tinygrad.device import Compiled
from tinygrad.dtype import dtypes
from tinygrad.settings import thread_count

if TYPE_CHECKING:
    from tinygrad.device import Buffer


class NullAllocator(Allocator):
    """Gives out addresses that nothing is at."""

    def copyin(self, handle: int, source: memoryview) -> None:
        """Drops the data."""

    def copyout(self, destination: memoryview, handle: int) -> None:
        destination[:] = bytes(destination.nbytes)

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        return 0, None


class NullProgram:
    """A kernel that does nothing, in no time."""

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
    """A device that looks like the CPU to the renderer."""
    return Compiled(
        name,
        NullAllocator(name),
        renderer="llvm",
        compiler=str.encode,
        runtime=NullProgram,
        dtypes=frozenset(dtypes.all),
        threads=thread_count(),
        keeps_data=False,
    )
