"""METAL: Apple's GPUs, by pyobjc.

Launches are collected in a command buffer, which is committed when somebody waits or reads, or when
it is full: so a replay is one command buffer. The commands of a buffer run in order. Memory is
shared with the CPU; its handle is a Metal buffer and an offset. A kernel takes its buffers, then
its integers, 64 bits each. Whatever Metal autoreleases, as command buffers with all that they use,
is in a pool that is drained at once. This runtime has not run on hardware yet.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import Metal
import objc

from tinygrad.device import Buffer, Compiled, CompileError, DeviceError
from tinygrad.device.allocator import Allocator, BufferSpec, FreeLists
from tinygrad.dtype import dtypes
from tinygrad.renderer.gpu_targets import apple_target
from tinygrad.renderer.target import LaunchShape, Target
from tinygrad.settings import DEVICES_PER_GPU

BATCH = 512
"""Launches in a command buffer, beyond which it is committed."""
VALUE_BYTES = 8
USES_BFLOAT = "#include <metal_stdlib>\nbfloat same(bfloat x) { return x; }\n"


@dataclass(frozen=True)
class Memory:
    """A place in a Metal buffer."""

    buffer: Any
    offset: int = 0

    def view(self, nbytes: int) -> memoryview:
        """The bytes from there on, as the CPU sees them."""
        whole = memoryview(self.buffer.contents().as_buffer(self.buffer.length()))
        return whole.cast("B")[self.offset : self.offset + nbytes]


class MetalAllocator(Allocator):
    """Memory that the CPU and the GPU share. Dropping its buffer frees it."""

    def __init__(self, device: MetalDevice) -> None:
        limit = int(device.gpu.recommendedMaxWorkingSetSize()) // 4
        super().__init__(device.device, FreeLists(limit))
        self.owner = device

    def offset(self, handle: Memory, nbytes: int) -> Memory:
        return Memory(handle.buffer, handle.offset + nbytes)

    def copyin(self, handle: Memory, source: memoryview) -> None:
        if source.nbytes:
            # kernels that were launched may still read it
            self.owner.synchronize()
            handle.view(source.nbytes)[:] = source

    def copyout(self, destination: memoryview, handle: Memory) -> None:
        if destination.nbytes:
            self.owner.synchronize()
            destination[:] = handle.view(destination.nbytes)

    def copy_from(
        self, handle: Memory, source: Allocator, source_handle: Memory, nbytes: int
    ) -> bool:
        if not isinstance(source, MetalAllocator):
            return False
        source.owner.synchronize()
        if nbytes:
            self.copyin(handle, source_handle.view(nbytes))
        return True

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        options = Metal.MTLResourceStorageModeShared
        with objc.autorelease_pool():
            buffer = self.owner.gpu.newBufferWithLength_options_(max(nbytes, 1), options)
        if buffer is None:
            raise MemoryError(f"Metal has no buffer of {nbytes} bytes")
        return Memory(buffer), buffer


class MetalProgram:
    """A kernel on one device. Raises CompileError."""

    def __init__(self, device: MetalDevice, name: str, source: bytes) -> None:
        self.name = name
        self.device = device
        gpu = device.gpu
        with objc.autorelease_pool():
            function = device.library(source.decode()).newFunctionWithName_(name)
            self._pipeline, error = gpu.newComputePipelineStateWithFunction_error_(function, None)
            if self._pipeline is None:
                raise CompileError(f"Metal rejects {name}: {error.localizedDescription()}")
            self._max_threads = int(self._pipeline.maxTotalThreadsPerThreadgroup())

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Launches the kernel. Waits for it if `wait`, and returns its time in seconds."""
        if not launch.items:
            return 0.0 if wait else None
        if (threads := launch.blocks()[1]) > self._max_threads:
            # Metal would not run it, and not say so
            raise DeviceError(
                f"{self.device.device}: {self.name} has blocks of {threads} threads, and for its "
                f"registers Metal runs {self._max_threads} at most"
            )
        with self.device.lock, objc.autorelease_pool():
            if wait:
                # a command buffer of its own, whose times are those of the kernel
                self.device.commit()
            self._encode(self.device.encoder(self.name), buffers, values, launch)
            if not wait:
                self.device.commit_if_full()
                return None
            command = self.device.commit()
        self.device.synchronize()
        return float(command.GPUEndTime() - command.GPUStartTime())

    def _encode(
        self,
        encoder: Any,
        buffers: tuple[Buffer, ...],
        values: tuple[int, ...],
        launch: LaunchShape,
    ) -> None:
        blocks, threads = launch.blocks()
        encoder.setComputePipelineState_(self._pipeline)
        for number, buffer in enumerate(buffers):
            memory = buffer.handle
            encoder.setBuffer_offset_atIndex_(memory.buffer, memory.offset, number)
        for number, value in enumerate(values, len(buffers)):
            data = value.to_bytes(VALUE_BYTES, "little", signed=True)
            encoder.setBytes_length_atIndex_(data, VALUE_BYTES, number)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(
            Metal.MTLSizeMake(blocks, 1, 1), Metal.MTLSizeMake(threads, 1, 1)
        )


@dataclass(frozen=True, eq=False)
class Batch:
    """A command buffer with the encoder of its launches, and the names of the kernels."""

    command: Any
    encoder: Any
    kernels: list[str]


class MetalDevice(Compiled):
    """A command queue of a GPU."""

    def __init__(self, name: str, gpu: Any) -> None:
        self.device = name
        self.gpu = gpu
        self.lock = threading.RLock()
        self._queue = gpu.newCommandQueue()
        self._open: Batch | None = None
        self._committed: list[Batch] = []
        target = self._find_target()
        super().__init__(
            name,
            MetalAllocator(self),
            target=target,
            compiler=self._compile,
            runtime=lambda name, code: MetalProgram(self, name, code),
            dtypes=target.dtypes,
        )

    def _find_target(self) -> Target:
        """What the GPU and the version of macOS have."""
        target = apple_target(str(self.gpu.name()))
        if not self.gpu.supportsFamily_(Metal.MTLGPUFamilyApple7):
            # SIMD groups of other GPUs have any size, and no matrices
            target = replace(target, warp=1, matrix=())
        try:
            # since Metal 3.1, which macOS 14 has
            self.library(USES_BFLOAT)
        except CompileError:
            bfloat16 = dtypes.bfloat16
            matrix = tuple(x for x in target.matrix if x.operand is not bfloat16)
            target = replace(target, matrix=matrix, dtypes=target.dtypes - {bfloat16})
        return target

    def encoder(self, kernel: str) -> Any:
        """The encoder of the open command buffer, for a launch of `kernel`."""
        if self._open is None:
            command = self._queue.commandBuffer()
            self._open = Batch(command, command.computeCommandEncoder(), [])
        self._open.kernels.append(kernel)
        return self._open.encoder

    def commit_if_full(self) -> None:
        """Starts the open command buffer if it has many launches."""
        if self._open is not None and len(self._open.kernels) >= BATCH:
            self.commit()

    def commit(self) -> Any:
        """Starts the open command buffer, and returns it."""
        with self.lock, objc.autorelease_pool():
            batch, self._open = self._open, None
            if batch is None:
                return None
            batch.encoder.endEncoding()
            batch.command.commit()
            self._committed.append(batch)
            return batch.command

    def synchronize(self) -> None:
        with objc.autorelease_pool():
            self._synchronize()

    def _synchronize(self) -> None:
        with self.lock:
            self.commit()
            batches = list(self._committed)
        for batch in batches:
            batch.command.waitUntilCompleted()
        with self.lock:
            # until then, another thread has to wait for them too; the first raises their errors
            batches = [batch for batch in batches if batch in self._committed]
            self._committed = self._committed[len(batches) :]
        for batch in batches:
            error = batch.command.error()
            if error is not None:
                names = ", ".join(dict.fromkeys(reversed(batch.kernels)))
                raise DeviceError(
                    f"{self.device}: {error.localizedDescription()}, in one of the kernels "
                    f"(last first) {names}"
                )

    def library(self, source: str) -> Any:
        """The library of a kernel's source. Raises CompileError."""
        with objc.autorelease_pool():
            options = Metal.MTLCompileOptions.new()
            # infinities and NaN count, and sums keep their order
            if hasattr(options, "setMathMode_"):
                # since macOS 15, which deprecates the other property
                options.setMathMode_(Metal.MTLMathModeSafe)
                precise = Metal.MTLMathFloatingPointFunctionsPrecise
                options.setMathFloatingPointFunctions_(precise)
            else:
                options.setFastMathEnabled_(False)
            library, error = self.gpu.newLibraryWithSource_options_error_(source, options, None)
            if library is None:
                reason = error.localizedDescription()
                raise CompileError(f"Metal rejects the kernel: {reason}\n{source}")
            return library

    def _compile(self, source: str, is_vectorized: bool) -> bytes:
        """The source, once it compiles: the system keeps what it compiled."""
        self.library(source)
        return source.encode()


def open_device(name: str) -> Compiled:
    """Opens a GPU. Raises DeviceError if there is none of this number."""
    with objc.autorelease_pool():
        gpus = Metal.MTLCopyAllDevices()
    ordinal = int(name.partition(":")[2] or 0) // max(DEVICES_PER_GPU.value, 1)
    if ordinal >= len(gpus):
        raise DeviceError(
            f"there is no {name}: this machine has {len(gpus)} GPUs for Metal; "
            "DEVICES_PER_GPU maps several devices to each"
        )
    return MetalDevice(name, gpus[ordinal])
