"""Devices by name, and buffers in their memory.

`Device["CPU:1"]` opens a device: the module `tinygrad.runtime.cpu` is imported when it is first
asked for, which is the one place where an import points up. A `Buffer` is a typed piece of a
device's memory, allocated when first needed; `copy_buffer` moves bytes between any two of them.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from tinygrad.allocator import DEFAULT_SPEC, Allocation, Allocator, BufferSpec, OutOfMemoryError
from tinygrad.dtype import DType
from tinygrad.measure import GlobalCounters
from tinygrad.settings import requested_device
from tinygrad.sharding import Sharding

if TYPE_CHECKING:
    import numpy

__all__ = [
    "Allocation",
    "Allocator",
    "Buffer",
    "BufferSpec",
    "CompileError",
    "Compiled",
    "Device",
    "DeviceError",
    "MultiBuffer",
    "OutOfMemoryError",
    "Program",
    "Sharding",
    "copy_buffer",
    "is_dtype_supported",
]


class DeviceError(RuntimeError):
    """A device that does not exist, or that cannot be used on this machine."""


class CompileError(RuntimeError):
    """Source code that a device's compiler refuses."""


class Program(Protocol):
    """A kernel, loaded on a device."""

    def __call__(
        self,
        *buffers: Buffer,
        grid: int,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Runs it over [0, grid). With `wait`, returns the seconds it took."""


class Compiled:
    """An open device: its memory and what it takes to run kernels there.

    `renderer` names the renderer of its source code, "" if it runs no kernels; `threads` share the
    work items of a kernel. `dtypes` are those that kernels can compute with. `is_host_source` says
    that it only holds data on the way to a device, so that copies from it are no traffic between
    devices. Without `keeps_data`, what is written to it is gone. `replay` makes an object that runs
    recorded kernels as one call, where the device has that.
    """

    def __init__(
        self,
        device: str,
        allocator: Allocator,
        *,
        renderer: str = "",
        compiler: Callable[[str], bytes] | None = None,
        runtime: Callable[[str, bytes], Program] | None = None,
        replay: Callable[[], Any] | None = None,
        dtypes: frozenset[DType] = frozenset(),
        threads: int = 1,
        is_host_source: bool = False,
        keeps_data: bool = True,
    ) -> None:
        self.device = device
        self.allocator = allocator
        self.renderer = renderer
        self.replay = replay
        self.dtypes = dtypes
        self.threads = threads
        self.is_host_source = is_host_source
        self.keeps_data = keeps_data
        self._compiler = compiler
        self._runtime = runtime

    def compile(self, source: str) -> bytes:
        """Machine code of a kernel, from the disk cache if possible. Raises CompileError."""
        if self._compiler is None:
            raise DeviceError(f"{self.device} runs no kernels; move the tensor with .to('CPU')")
        return self._compiler(source)

    def runtime(self, name: str, code: bytes) -> Program:
        """The kernel `name` of `code`, ready to run."""
        if self._runtime is None:
            raise DeviceError(f"{self.device} runs no kernels; move the tensor with .to('CPU')")
        return self._runtime(name, code)

    def synchronize(self) -> None:
        """Waits until all that was launched is done."""


# the package that mends a missing import of a runtime, where it has another name than the module
PACKAGES = {
    "cuda": "cuda-bindings",
    "Metal": "pyobjc-framework-Metal",
    "pyopencl": "pyopencl",
}
# the part behind the colon is a path, not a number
PATH_DEVICES = frozenset({"DISK"})


@functools.cache
def _canonical_name(name: str) -> str:
    kind, colon, rest = name.partition(":")
    kind = kind.upper()
    if not colon or kind in PATH_DEVICES:
        return kind + colon + rest
    if not rest.isdecimal():
        raise DeviceError(f"{name!r} is no device; write a name and a number, as {kind}:1")
    number = int(rest)
    return f"{kind}:{number}" if number else kind


class _Registry:
    """The devices of the process, opened when first asked for."""

    def __init__(self) -> None:
        self._open: dict[str, Compiled] = {}
        self._lock = threading.RLock()
        self._default = ""

    @property
    def DEFAULT(self) -> str:
        """The device of tensors that name none: as set here, by `DEV`, or CPU."""
        if not self._default:
            self._default = self.canonicalize(requested_device(self.known()) or "CPU")
        return self._default

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        self._default = _canonical_name(name)

    def canonicalize(self, name: str | None) -> str:
        """The one spelling of a device's name: "cpu:0" is "CPU"; None is the default device."""
        return self.DEFAULT if name is None else _canonical_name(name)

    def known(self) -> list[str]:
        """The kinds of devices that this library knows, usable here or not."""
        from tinygrad import runtime

        modules = pkgutil.iter_modules(runtime.__path__)
        return sorted(module.name.upper() for module in modules if not module.ispkg)

    def __getitem__(self, name: str) -> Compiled:
        """The open device. Raises DeviceError if there is none of that name, or not here."""
        found = self._open.get(name)
        if found is not None:
            return found
        canonical = _canonical_name(name)
        with self._lock:
            if canonical not in self._open:
                self._open[canonical] = self._open_device(canonical)
        return self._open[canonical]

    def get_available_devices(self) -> list[str]:
        """The kinds of devices that can run kernels on this machine."""
        return [kind for kind in self.known() if self._runs_kernels(kind)]

    def _runs_kernels(self, kind: str) -> bool:
        if kind in PATH_DEVICES:
            return False
        try:
            return self[kind].renderer != ""
        except DeviceError:
            return False

    def _open_device(self, name: str) -> Compiled:
        kind = name.partition(":")[0]
        if kind not in self.known():
            raise DeviceError(f"there is no device {name!r}; known are {', '.join(self.known())}")
        try:
            module = importlib.import_module(f"tinygrad.runtime.{kind.lower()}")
        except ImportError as error:
            if error.name is None or error.name.startswith("tinygrad"):
                raise
            package = PACKAGES.get(error.name.partition(".")[0], error.name.partition(".")[0])
            raise DeviceError(
                f"{name} needs the Python package {package}: pip install {package}"
            ) from error
        device = module.open_device(name)
        assert isinstance(device, Compiled)
        return device


Device = _Registry()


def is_dtype_supported(dtype: DType, device: str | None = None) -> bool:
    """Whether kernels of the device (None: the default one) can compute with the dtype."""
    return dtype.scalar() in Device[Device.canonicalize(device)].dtypes


class Buffer:
    """`size` elements of `dtype` in a device's memory, allocated when first needed.

    A view has a `base` and starts `offset` bytes into it; it shares the memory of the base, which
    is never itself a view. Memory goes back to the device when no buffer and no view of it is left.
    """

    __slots__ = (
        "__weakref__",
        "_allocation",
        "base",
        "device",
        "dtype",
        "offset",
        "options",
        "size",
    )

    def __init__(
        self,
        device: str,
        size: int,
        dtype: DType,
        base: Buffer | None = None,
        offset: int = 0,
        options: BufferSpec | None = None,
    ) -> None:
        self.device: str = _canonical_name(device)
        self.size: int = size
        self.dtype: DType = dtype
        self.options: BufferSpec = options or DEFAULT_SPEC
        self._allocation: Allocation | None = None
        if base is not None:
            offset += base.offset
            base = base.base or base
            assert base.device == self.device, f"a view on {device} of a buffer on {base.device}"
            assert offset >= 0 and offset + self.nbytes <= base.nbytes, "a view reaches outside"
        self.base: Buffer | None = base
        self.offset: int = offset

    @staticmethod
    def from_memoryview(device: str, dtype: DType, data: memoryview) -> Buffer:
        """A buffer over host memory without a copy where the device can, else with one.

        Where it cannot: the device has memory of its own, the data is read-only and kernels could
        write to it, or its address is no multiple of the itemsize. Raises ValueError if the bytes
        are not contiguous or no whole number of elements.
        """
        if not data.c_contiguous:
            raise ValueError("the memoryview is not contiguous; make a contiguous copy first")
        if data.nbytes % dtype.itemsize:
            raise ValueError(
                f"{data.nbytes} bytes are no whole number of {dtype} ({dtype.itemsize} bytes each)"
            )
        self = Buffer(device, data.nbytes // dtype.itemsize, dtype)
        allocation = self._allocator.wrap_host_memory(data)
        if allocation is not None and allocation.handle % dtype.itemsize == 0:
            self._allocation = allocation
        else:
            self.allocate().copyin(data)
        return self

    def __repr__(self) -> str:
        view = "" if self.base is None else f" at byte {self.offset} of another"
        state = "" if self.is_allocated() else " (not allocated)"
        return f"<Buffer {self.device} {self.size} {self.dtype}{view}{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        data = bytes(self.as_memoryview()) if self.is_allocated() else None
        return _unpickle_buffer, (self.device, self.size, self.dtype, data)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def _allocator(self) -> Allocator:
        return Device[self.device].allocator

    @property
    def allocation(self) -> Allocation:
        """The memory of the base, allocated now if it was not. Raises OutOfMemoryError."""
        root = self.base or self
        if root._allocation is None:
            root._allocation = self._allocator.allocate(root.nbytes, root.options)
        return root._allocation

    @property
    def handle(self) -> Any:
        """What a kernel of the device takes as this buffer."""
        handle = self.allocation.handle
        return self._allocator.offset(handle, self.offset) if self.offset else handle

    @property
    def address(self) -> int:
        """Where it starts. Raises DeviceError if the device's memory has no addresses."""
        handle = self.handle
        if not isinstance(handle, int):
            raise DeviceError(f"buffers on {self.device} have no address")
        return handle

    def is_allocated(self) -> bool:
        return (self.base or self)._allocation is not None

    def allocate(self) -> Buffer:
        """Allocates memory with undefined content; returns itself. Raises OutOfMemoryError."""
        assert not self.is_allocated(), f"{self!r} is allocated already"
        return self.ensure_allocated()

    def ensure_allocated(self) -> Buffer:
        """Allocates memory if there is none; returns itself. Raises OutOfMemoryError."""
        assert self.allocation is not None
        return self

    def deallocate(self) -> None:
        """Drops the memory; what still holds a memoryview of it may go on reading that."""
        assert self.base is None, "only the base of a view can be deallocated"
        self._allocation = None

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """`size` elements of `dtype`, starting `offset` bytes into this buffer, in its memory."""
        return Buffer(self.device, size, dtype, self, offset)

    def copyin(self, source: memoryview) -> Buffer:
        """Sets its content to contiguous bytes of the host; returns itself."""
        self._check_size(source)
        if self.allocation.readonly:
            raise DeviceError(f"{self!r} is over read-only memory; copy it to a device first")
        self._allocator.copyin(self.handle, source.cast("B"))
        return self

    def copyout(self, destination: memoryview) -> memoryview:
        """Copies its content to contiguous writable bytes of the host, which it returns."""
        self._check_size(destination)
        self._check_allocated()
        self._allocator.copyout(destination.cast("B"), self.handle)
        return destination

    def as_memoryview(self) -> memoryview:
        """Its bytes: the memory itself where the CPU can address it, else a copy.

        The memory stays valid as long as the memoryview lives, even if the buffer goes.
        """
        self._check_allocated()
        shared = self._allocator.as_memoryview(self.allocation, self.offset, self.nbytes)
        return self.copyout(memoryview(bytearray(self.nbytes))) if shared is None else shared

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy of its content as an array of shape `(size,)`."""
        import numpy as np

        from tinygrad.dtype import to_numpy_dtype

        content = np.empty(self.size, to_numpy_dtype(self.dtype))
        self.copyout(content.data.cast("B") if self.size else memoryview(b""))
        return content

    def _check_size(self, data: memoryview) -> None:
        if data.nbytes != self.nbytes:
            raise ValueError(f"{data.nbytes} bytes do not fit {self!r} of {self.nbytes} bytes")

    def _check_allocated(self) -> None:
        if not self.is_allocated():
            raise DeviceError(f"{self!r} holds no data yet; realize the tensor first")


def _unpickle_buffer(device: str, size: int, dtype: DType, data: bytes | None) -> Buffer:
    buffer = Buffer(device, size, dtype)
    return buffer if data is None else buffer.allocate().copyin(memoryview(data))


class MultiBuffer:
    """The buffers of one sharded value, one for each device, all of one size and dtype."""

    __slots__ = ("__weakref__", "bufs")

    def __init__(self, bufs: tuple[Buffer, ...]) -> None:
        assert bufs, "a sharded value has at least one buffer"
        first = bufs[0]
        assert all((b.size, b.dtype) == (first.size, first.dtype) for b in bufs), "unequal shards"
        self.bufs = bufs

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.bufs)

    def __len__(self) -> int:
        return len(self.bufs)

    def __getitem__(self, index: int) -> Buffer:
        return self.bufs[index]

    def __repr__(self) -> str:
        return f"<MultiBuffer {self.size} {self.dtype} on {', '.join(b.device for b in self.bufs)}>"

    @property
    def size(self) -> int:
        """Elements on each device."""
        return self.bufs[0].size

    @property
    def dtype(self) -> DType:
        return self.bufs[0].dtype

    @property
    def nbytes(self) -> int:
        """Bytes on all devices together."""
        return sum(buffer.nbytes for buffer in self.bufs)

    def is_allocated(self) -> bool:
        return all(buffer.is_allocated() for buffer in self.bufs)

    def allocate(self) -> MultiBuffer:
        """Allocates memory on every device; returns itself. Raises OutOfMemoryError."""
        for buffer in self.bufs:
            buffer.allocate()
        return self

    def ensure_allocated(self) -> MultiBuffer:
        """Allocates memory where there is none; returns itself. Raises OutOfMemoryError."""
        for buffer in self.bufs:
            buffer.ensure_allocated()
        return self


def copy_buffer(destination: Buffer, source: Buffer) -> None:
    """Copies all bytes of a buffer to one of as many bytes, on any device.

    Counts them as moved between devices if the devices differ and both compute.
    """
    if destination.nbytes != source.nbytes:
        raise ValueError(f"cannot copy {source!r} to {destination!r}: their sizes differ in bytes")
    destination.ensure_allocated()
    to, origin = Device[destination.device], Device[source.device]
    if to.allocator.addressable and not origin.allocator.addressable:
        source.copyout(destination.as_memoryview())
    elif to.keeps_data:
        destination.copyin(source.as_memoryview())
    crossed = destination.device != source.device
    if crossed and not to.is_host_source and not origin.is_host_source:
        GlobalCounters.count_message(source.device, source.nbytes)
