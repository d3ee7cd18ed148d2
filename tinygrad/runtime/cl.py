"""CL: OpenCL devices, by pyopencl.

Buffers are shared virtual memory, which has addresses, so a view is an address too. A device has
one queue, in order: each launch and copy sees all earlier ones. All devices of a driver share a
context, so that they copy from each other directly. A kernel takes its buffers, then its integers,
64 bits each.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyopencl as cl

from tinygrad import diskcache
from tinygrad.device import Buffer, Compiled, CompileError, DeviceError
from tinygrad.device.allocator import Allocator, BufferSpec, FreeLists
from tinygrad.helpers import ceildiv
from tinygrad.renderer.gpu_targets import opencl_target
from tinygrad.renderer.target import PACKED_ITEMS, LaunchShape
from tinygrad.settings import CACHELEVEL, DEVICES_PER_GPU

ALIGNMENT = 64
ARGUMENT_BYTES = 8
NAMED_LAUNCHES = 8
"""The last launches, which an error that comes late names."""

NO_CACHE: dict[str, Any] = {"cache_dir": False}
"""An option of pyopencl, which would keep binaries too."""


class Memory:
    """Bytes at an address, as numpy and pyopencl take them."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


class Block:
    """Shared virtual memory on a device. Freed when it is dropped, after what is in the queue.

    It waits for the queue rather than have it free the memory: PoCL 3.0 frees a list of addresses
    then that is not its own.
    """

    def __init__(self, device: CLDevice, nbytes: int) -> None:
        flags = cl.svm_mem_flags.READ_WRITE
        self._device = device
        self._memory = cl.SVMAllocation(device.context, max(nbytes, 1), ALIGNMENT, flags)
        self.address: int = self._memory.svm_ptr

    def __del__(self) -> None:
        # a kernel's error is that of the next call which waits
        if not self._device.is_forked:
            with contextlib.suppress(cl.Error):
                self._device.queue.finish()


def shared_memory(address: int, nbytes: int = 1) -> Any:
    """Shared virtual memory; as a kernel's argument, its size does not matter."""
    return cl.SVM(np.asarray(Memory(address, nbytes)))


class CLAllocator(Allocator):
    """Allocates shared virtual memory."""

    def __init__(self, device: CLDevice) -> None:
        super().__init__(device.device, FreeLists(device.card.global_mem_size // 4))
        self.owner = device

    def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[Any, Any]:
        device = self.owner
        if nbytes > device.card.max_mem_alloc_size:
            raise MemoryError(f"a buffer has {device.card.max_mem_alloc_size} bytes at most")
        try:
            block = Block(device, nbytes)
        except cl.Error as error:
            raise MemoryError(str(error)) from error
        return block.address, block

    def copyin(self, handle: int, source: memoryview) -> None:
        if source.nbytes:
            with self.owner.errors("a copy from the host"):
                data = np.frombuffer(source, np.uint8)
                self._copy(handle, data if data.flags.writeable else data.copy(), source.nbytes)

    def copyout(self, destination: memoryview, handle: int) -> None:
        if destination.nbytes:
            with self.owner.errors("a copy to the host"):
                memory = shared_memory(handle, destination.nbytes)
                cl.enqueue_copy(self.owner.queue, destination, memory)

    def copy_from(self, handle: int, source: Allocator, source_handle: int, nbytes: int) -> bool:
        if not isinstance(source, CLAllocator) or source.owner.context != self.owner.context:
            return False
        if nbytes:
            with self.owner.errors(f"a copy from {source.device}"):
                written = cl.enqueue_marker(source.owner.queue)
                source.owner.queue.flush()
                self._copy(handle, shared_memory(source_handle, nbytes), nbytes, [written])
        return True

    def _copy(self, handle: int, source: Any, nbytes: int, after: list[Any] | None = None) -> None:
        """Copies to `handle`, and waits for it."""
        memory = shared_memory(handle, nbytes)
        cl.enqueue_copy(self.owner.queue, memory, source, wait_for=after)


class CLProgram:
    """A kernel on one device. Raises CompileError."""

    def __init__(self, device: CLDevice, name: str, code: bytes) -> None:
        self.name = name
        self.device = device
        self._kernel = cl.Kernel(device.build(code), name)
        # its text says how many: OpenCL takes no others
        size = cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE
        shape: Any = self._kernel.get_work_group_info(size, device.card)
        self._threads = int(shape[0])
        # a kernel's arguments are a state of it
        self._lock = threading.Lock()

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Runs the kernel. Returns its time in seconds, by the device's clock, if `wait`."""
        if not launch.items:
            return 0.0 if wait else None
        threads = self._threads
        blocks = launch.items if launch.block > 1 else ceildiv(launch.items, threads)
        arguments = [shared_memory(buffer.address) for buffer in buffers]
        device = self.device
        device.launched.append(self.name)
        with device.errors(f"the launch of {self.name}"), self._lock:
            self._kernel.set_args(*arguments, *map(np.int64, values))
            event = cl.enqueue_nd_range_kernel(
                device.queue, self._kernel, (blocks * threads,), (threads,)
            )
        if not wait:
            device.queue.flush()
            return None
        with device.errors(f"the kernel {self.name}"):
            event.wait()
            return float(event.profile.end - event.profile.start) * 1e-9


class CLDevice(Compiled):
    """One queue of a card."""

    def __init__(self, name: str, context: Any, card: Any) -> None:
        self.device = name
        self.context, self.card = context, card
        self.launched: deque[str] = deque(maxlen=NAMED_LAUNCHES)
        self._process = os.getpid()
        properties = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(context, card, properties=properties)
        target = opencl_target(
            f"{card.name}, {card.version}, {card.driver_version}",
            units=card.max_compute_units,
            block_threads=_block_threads(card),
            shared_bytes=card.local_mem_size,
            max_arguments=card.max_parameter_size // ARGUMENT_BYTES,
            has_float64=card.double_fp_config != 0,
            has_subnormals=bool(card.single_fp_config & cl.device_fp_config.DENORM),
        )
        super().__init__(
            name,
            CLAllocator(self),
            target=target,
            compiler=self._compile,
            runtime=lambda name, code: CLProgram(self, name, code),
            dtypes=target.dtypes,
        )

    @property
    def is_forked(self) -> bool:
        """Whether another process opened it: the threads of its driver are not in this one."""
        return os.getpid() != self._process

    def synchronize(self) -> None:
        with self.errors("the wait for all launches"):
            self.queue.finish()
        self.launched.clear()

    @contextlib.contextmanager
    def errors(self, step: str) -> Iterator[None]:
        """Raises an error of OpenCL in `step` as DeviceError, with the kernels it may come from.

        Raises DeviceError in a forked process, where a driver may wait for ever.
        """
        if self.is_forked:
            raise DeviceError(
                f"{self.device} was opened before this process was forked, and OpenCL does not "
                "survive that; start processes by multiprocessing's method 'spawn' or 'forkserver'"
            )
        try:
            yield
        except cl.Error as error:
            names = ", ".join(self.launched) or "none"
            raise DeviceError(
                f"{self.device}: {step} failed: {error}\n"
                f"It may come from an earlier kernel; the last ones were: {names}."
            ) from error

    def build(self, code: bytes | str) -> Any:
        """A program of source or of a binary, built for this device. Raises CompileError."""
        if isinstance(code, str):
            program = cl.Program(self.context, code)
        else:
            program = cl.Program(self.context, [self.card], [code])
        try:
            with warnings.catch_warnings():
                # of a compiler that says anything at all
                warnings.simplefilter("ignore", cl.CompilerWarning)
                return program.build(self._options, [self.card], **NO_CACHE)
        except cl.Error as error:
            source = code if isinstance(code, str) else "(a binary)"
            raise CompileError(f"OpenCL rejects the kernel: {error}\n{source}") from error

    @functools.cached_property
    def _options(self) -> list[str]:
        config = self.card.single_fp_config
        if config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            return ["-cl-fp32-correctly-rounded-divide-sqrt"]
        return []

    def _compile(self, source: str, is_vectorized: bool) -> bytes:
        """A binary for this device, from the disk cache if it is there. Raises CompileError."""
        parts = (self.target.architecture, *self._options, source)
        key = hashlib.sha256("|".join(parts).encode()).digest()
        cached = diskcache.get("opencl", key) if CACHELEVEL else None
        if cached is not None:
            return cached
        (binary,) = self.build(source).get_info(cl.program_info.BINARIES)
        code = bytes(binary)
        if CACHELEVEL:
            diskcache.put("opencl", key, code)
        return code


@functools.cache
def find_cards() -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    """The devices of all drivers that have shared virtual memory, each with its context; and why
    other devices cannot be used."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return (), ()
    found: list[tuple[Any, Any]] = []
    unusable: list[str] = []
    for platform in platforms:
        with contextlib.suppress(cl.Error):
            _add_cards(platform, found, unusable)
    return tuple(found), tuple(unusable)


def _add_cards(platform: Any, found: list[tuple[Any, Any]], unusable: list[str]) -> None:
    """Add the devices of a driver to those that can be used, or why they cannot."""
    cards = [card for card in platform.get_devices() if _is_there(card)]
    context = cl.Context(cards) if cards else None
    for card in cards:
        if reason := _refusal(context, card):
            unusable.append(f"{platform.version} cannot compile for {card.name}: {reason}")
        else:
            found.append((context, card))


def _block_threads(card: Any) -> int:
    """Upper bound of the work items of a work group along its one axis."""
    return int(min(card.max_work_group_size, card.max_work_item_sizes[0]))


def _refusal(context: Any, card: Any) -> str:
    """Why the driver cannot compile for a card, or "": PoCL rejects CPUs newer than its LLVM."""
    if _block_threads(card) < PACKED_ITEMS:
        return f"its work groups have fewer than {PACKED_ITEMS} work items"
    if not card.type & cl.device_type.CPU:
        return ""
    try:
        cl.Program(context, "__kernel void empty() {}").build([], [card], **NO_CACHE)
    except cl.Error as error:
        reasons = [line for line in str(error).splitlines() if line.startswith("error:")]
        return reasons[0].removeprefix("error:").strip() if reasons else str(error)
    return ""


def _is_there(card: Any) -> bool:
    """Whether a card can be used now, and has shared virtual memory."""
    try:
        has_memory = card.svm_capabilities & cl.device_svm_capabilities.COARSE_GRAIN_BUFFER
        return bool(has_memory and card.available and card.compiler_available)
    except cl.Error:
        return False


def open_device(name: str) -> Compiled:
    """Opens an OpenCL device: cards are numbered through all drivers."""
    cards, unusable = find_cards()
    if not cards and unusable:
        raise DeviceError(
            f"{name} needs another OpenCL driver, one that knows this CPU, or that of a GPU: "
            f"{'; '.join(unusable)}"
        )
    if not cards:
        raise DeviceError(
            f"{name} needs an OpenCL driver with shared virtual memory (OpenCL 2.0): install that "
            "of the GPU, or one for the CPU: pip install pocl-binary-distribution"
        )
    ordinal = int(name.partition(":")[2] or 0) // max(DEVICES_PER_GPU.value, 1)
    if ordinal >= len(cards):
        raise DeviceError(
            f"there is no {name}: this machine has {len(cards)} OpenCL devices; "
            "DEVICES_PER_GPU maps several devices to each"
        )
    return CLDevice(name, *cards[ordinal])
