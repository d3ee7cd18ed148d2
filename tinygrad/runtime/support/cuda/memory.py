"""The memory of a GPU: blocks of the driver, and copies by its copy engines.

Copies from the host return as soon as the host memory has been read. Large ones go through pinned
memory in pieces, so that the GPU fetches one piece while the host fills the next.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from cuda.bindings import driver

from tinygrad.device.allocator import Allocator, BufferSpec, FreeLists
from tinygrad.runtime.support.cuda.driver import LOCK, CudaError, Gpu
from tinygrad.runtime.support.host_memory import get_host_address

PIECE_BYTES = 4 << 20
"""Bytes of a piece of pinned memory."""
PIECES = 4
DIRECT_BYTES = 64 << 10
"""Copies of pageable memory up to this size are left to the driver, which stages them itself."""
MEMORY_TYPE = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
KEPT_SHARE = 4
"""At most `1 / KEPT_SHARE` of the memory is kept for reuse."""


class PinnedPiece:
    """A piece of pinned host memory, and the event after the last copy that uses it."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.address = int(gpu.check(driver.cuMemHostAlloc(PIECE_BYTES, 0)))
        self._event = gpu.new_event()

    def record(self) -> None:
        """Notes a copy that was issued."""
        self._gpu.check(driver.cuEventRecord(self._event, self._gpu.copies))

    def wait(self) -> None:
        """Waits for the last copy."""
        self._gpu.check(driver.cuEventSynchronize(self._event))


class Staging:
    """Copies between host memory and a GPU, through a few pieces of pinned memory in turn."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._pieces: deque[PinnedPiece] = deque()

    def _next(self) -> PinnedPiece:
        """The piece that was used the longest time ago, when its copy is done."""
        if len(self._pieces) < PIECES:
            piece = PinnedPiece(self._gpu)
        else:
            piece = self._pieces.popleft()
            piece.wait()
        self._pieces.append(piece)
        return piece

    def upload(self, address: int, host: int, nbytes: int) -> None:
        """Copies host bytes to the GPU; they may change when this returns."""
        gpu = self._gpu
        if nbytes <= DIRECT_BYTES and _is_pageable(host):
            gpu.check(driver.cuMemcpyHtoDAsync(address, host, nbytes, gpu.copies))
            return
        for start, size in _pieces(nbytes):
            piece = self._next()
            ctypes.memmove(piece.address, host + start, size)
            gpu.check(driver.cuMemcpyHtoDAsync(address + start, piece.address, size, gpu.copies))
            piece.record()

    def download(self, host: int, address: int, nbytes: int) -> None:
        """Copies bytes of the GPU to the host, and waits for them."""
        gpu = self._gpu
        if nbytes <= DIRECT_BYTES:
            gpu.check(driver.cuMemcpyDtoHAsync(host, address, nbytes, gpu.copies))
            gpu.check(driver.cuStreamSynchronize(gpu.copies))
            return
        issued: deque[tuple[PinnedPiece, int, int]] = deque()
        for start, size in _pieces(nbytes):
            if len(issued) == PIECES:
                _fetch(host, *issued.popleft())
            piece = self._next()
            gpu.check(driver.cuMemcpyDtoHAsync(piece.address, address + start, size, gpu.copies))
            piece.record()
            issued.append((piece, start, size))
        for each in issued:
            _fetch(host, *each)


def _is_pageable(host: int) -> bool:
    """Whether the driver reads host memory before a copy returns.

    It reads pinned memory, which another library may have allocated, when the copy is done.
    """
    code, _ = driver.cuPointerGetAttribute(MEMORY_TYPE, host)
    return bool(code)


def _pieces(nbytes: int) -> Iterator[tuple[int, int]]:
    """The start and size of each piece of a copy."""
    for start in range(0, nbytes, PIECE_BYTES):
        yield start, min(PIECE_BYTES, nbytes - start)


def _fetch(host: int, piece: PinnedPiece, start: int, size: int) -> None:
    piece.wait()
    ctypes.memmove(host + start, piece.address, size)


class CudaAllocator(Allocator):
    """Memory of a GPU. Freed blocks are reused at once: what reads them was issued before."""

    def __init__(self, gpu: Gpu, share: int) -> None:
        """An allocator for one of `share` logical devices of a GPU."""
        self.gpu = gpu
        self._total = gpu.memory()[1] // share
        super().__init__(gpu.name, FreeLists(self._total // KEPT_SHARE))
        self._staging = Staging(gpu)

    def limit(self) -> int:
        return self._total

    def copyin(self, handle: int, source: memoryview) -> None:
        if source.nbytes:
            with LOCK:
                self.gpu.begin_copy()
                self._staging.upload(handle, get_host_address(source), source.nbytes)
                self.gpu.end_copy()

    def copyout(self, destination: memoryview, handle: int) -> None:
        if destination.nbytes:
            with LOCK:
                self.gpu.begin_copy()
                host = get_host_address(destination)
                self._staging.download(host, handle, destination.nbytes)

    def copy_from(self, handle: int, source: Allocator, other: int, nbytes: int) -> bool:
        if not isinstance(source, CudaAllocator):
            return False
        if nbytes:
            with LOCK:
                return copy_between(self.gpu, handle, source.gpu, other, nbytes)
        return True

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
        with LOCK:
            self.gpu.activate()
            return int(self.gpu.check(driver.cuMemAlloc(max(nbytes, 1)))), None

    def _free(self, handle: int, nbytes: int) -> None:
        with self.gpu.finalizing() as can_free:
            if can_free:
                # it waits, and so gets the error of a kernel, which the next call raises
                with contextlib.suppress(CudaError, MemoryError):
                    self.gpu.check(driver.cuMemFree(handle))


def copy_between(to: Gpu, destination: int, origin: Gpu, source: int, nbytes: int) -> bool:
    """Copies bytes of one GPU to another, directly where they are peers.

    Returns False if the driver cannot.
    """
    if origin is not to:
        to.wait_for(origin, to.copies)
    to.begin_copy()
    if origin.context == to.context:
        to.check(driver.cuMemcpyDtoDAsync(destination, source, nbytes, to.copies))
    else:
        enable_peers(to, origin)
        arguments = (destination, to.context, source, origin.context, nbytes, to.copies)
        try:
            to.check(driver.cuMemcpyPeerAsync(*arguments))
        except CudaError as error:
            if error.code not in NOT_PEERS:
                raise
            return False
    to.end_copy()
    if origin is not to:
        # the source may be overwritten when it has been read
        origin.block_until(to.copies_done())
    return True


@contextlib.contextmanager
def read_peers(gpu: Gpu, others: Sequence[Gpu]) -> Iterator[None]:
    """In this block, kernels of `gpu` may read memory of others.

    They wait for the earlier work of the others, which wrote the memory. Later work of the others,
    which may overwrite it, waits for them.
    """
    with LOCK:
        for other in others:
            enable_peers(gpu, other)
            gpu.wait_for(other, gpu.kernels)
        yield
        if others:
            gpu.activate()
            done = gpu.kernels_done()
            for other in others:
                other.block_until(done)


NOT_PEERS = frozenset(
    {
        driver.CUresult.CUDA_ERROR_NOT_SUPPORTED,
        driver.CUresult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        driver.CUresult.CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
    }
)
# without NVSwitch, a GPU has 8 peers at most: the driver copies between others through the host
PEERS_OR_TOO_MANY = frozenset(
    {
        driver.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
        driver.CUresult.CUDA_ERROR_TOO_MANY_PEERS,
    }
)
_asked: set[tuple[int, int]] = set()
"""Pairs of GPUs that were made peers where they can be: the first accesses memory of the second."""


def enable_peers(a: Gpu, b: Gpu) -> None:
    """Lets two GPUs access the memory of each other, where they can."""
    if a.ordinal == b.ordinal:
        return
    for one, other in ((a, b), (b, a)):
        if (one.ordinal, other.ordinal) in _asked:
            continue
        one.activate()
        if one.check(driver.cuDeviceCanAccessPeer(one.device, other.device)):
            (code,) = driver.cuCtxEnablePeerAccess(other.context, 0)
            if code not in PEERS_OR_TOO_MANY:
                one.check((code,))
        _asked.add((one.ordinal, other.ordinal))
    a.activate()
