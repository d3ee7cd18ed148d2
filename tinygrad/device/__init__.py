"""The device registry, and buffers in device memory.

`Device["CPU:1"]` opens a device on first use, by importing the module `tinygrad.runtime.cpu`: the
only import of a higher layer. A `Buffer` is a typed range of a device's memory, allocated lazily.
`copy_buffer` copies between buffers on any two devices.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tinygrad.allocator import DEFAULT_SPEC, Allocation, Allocator, BufferSpec, OutOfMemoryError
from tinygrad.dtype import DType, dtypes
from tinygrad.measure import GlobalCounters
from tinygrad.renderer.target import LaunchShape, Target
from tinygrad.settings import requested_device
from tinygrad.sharding import Sharding, Topology
from tinygrad.uop.device_value import is_file, use_default_device

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
    "LoadedProgram",
    "MultiBuffer",
    "OutOfMemoryError",
    "RemoteBuffer",
    "Sharding",
    "copy_buffer",
    "is_dtype_supported",
]


class DeviceError(RuntimeError):
    """The device does not exist, or this machine cannot use it."""


class CompileError(RuntimeError):
    """A device's compiler rejects the source code."""


class LoadedProgram(Protocol):
    """A compiled kernel, loaded on a device."""

    def __call__(
        self,
        *buffers: Buffer,
        launch: LaunchShape,
        values: tuple[int, ...] = (),
        wait: bool = False,
    ) -> float | None:
        """Runs the kernel on its device, on all work items of a shape without Variables.

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

    def synchronize(self) -> None:
        """Waits for all launches to complete."""


# The folder whose modules are the runtimes. They are above this module, which imports them by name.
RUNTIMES = Path(__file__).parents[1] / "runtime"
# The package to install for a module that a runtime cannot import, where the names differ.
PACKAGES = {
    "cuda": "cuda-bindings",
    "Metal": "pyobjc-framework-Metal",
    "pyopencl": "pyopencl",
}
# The part after the colon is a path, not a number.
PATH_DEVICES = frozenset({"DISK"})


@functools.cache
def _canonical_name(name: str) -> str:
    kind, colon, rest = name.partition(":")
    kind = kind.upper()
    if not colon or kind in PATH_DEVICES:
        return kind + colon + rest
    if not rest.isdecimal():
        raise DeviceError(f"{name!r} is not a device name; write a name and a number, as {kind}:1")
    number = int(rest)
    return f"{kind}:{number}" if number else kind


@functools.cache
def _known_kinds() -> tuple[str, ...]:
    """All device kinds: the modules of `RUNTIMES`."""
    modules = pkgutil.iter_modules([str(RUNTIMES)])
    return tuple(sorted(module.name.upper() for module in modules if not module.ispkg))


@functools.cache
def _known_name(name: str) -> str:
    """The canonical name of a device of a known kind. Raises DeviceError for another kind."""
    canonical = _canonical_name(name)
    if canonical.partition(":")[0] not in _known_kinds():
        raise DeviceError(f"unknown device {name!r}; known devices are {', '.join(_known_kinds())}")
    return canonical


def _runtime(name: str) -> Any:
    """The module that opens a device. Raises DeviceError if a package is missing."""
    kind = _known_name(name).partition(":")[0]
    try:
        return importlib.import_module(f"tinygrad.runtime.{kind.lower()}")
    except ImportError as error:
        if error.name is None or error.name.startswith("tinygrad"):
            raise
        package = PACKAGES.get(error.name.partition(".")[0], error.name.partition(".")[0])
        raise DeviceError(
            f"{name} needs the Python package {package}: pip install {package}"
        ) from error


class _Registry:
    """The devices of the process, opened on first use."""

    def __init__(self) -> None:
        self._open: dict[str, Compiled] = {}
        self._lock = threading.RLock()
        self._default = ""

    @property
    def DEFAULT(self) -> str:
        """The default device: as set here, else by `DEV`, else CPU."""
        if not self._default:
            self._default = self.canonicalize(requested_device(self.known()) or "CPU")
        return self._default

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        self._default = _known_name(name)

    def canonicalize(self, name: str | None) -> str:
        """The canonical name: "cpu:0" becomes "CPU", None the default device.

        Raises DeviceError if there is no such device, whether this machine can use it or not.
        """
        return self.DEFAULT if name is None else _known_name(name)

    def known(self) -> list[str]:
        """All device kinds, including those that this machine cannot use."""
        return list(_known_kinds())

    def __getitem__(self, name: str) -> Compiled:
        """Opens the device on first use. Raises DeviceError if that is impossible."""
        found = self._open.get(name)
        if found is not None:
            return found
        canonical = _canonical_name(name)
        with self._lock:
            if canonical not in self._open:
                self._open[canonical] = self._open_device(canonical)
        return self._open[canonical]

    def count(self, kind: str) -> int:
        """The number of devices of a kind that this machine has; one if there may be any number.

        Raises DeviceError if this machine cannot use them.
        """
        counted = getattr(_runtime(kind), "device_count", None)
        return 1 if counted is None else int(counted())

    def topology(self, devices: Sequence[str]) -> Topology:
        """The links of devices of one kind, as their driver describes them.

        It is the default topology where a driver says nothing. `with Device.topology(names):` makes
        this thread choose layouts and algorithms by it. Raises DeviceError if a device is missing.
        """
        kinds = {self.canonicalize(name).partition(":")[0] for name in devices}
        read = getattr(_runtime(kinds.pop()), "topology", None) if len(kinds) == 1 else None
        if read is None:
            return Topology()
        found = read([self[name] for name in devices])
        assert isinstance(found, Topology)
        return found

    def get_available_devices(self) -> list[str]:
        """The device kinds that can run kernels on this machine."""
        return [kind for kind in self.known() if self._runs_kernels(kind)]

    def _runs_kernels(self, kind: str) -> bool:
        if kind in PATH_DEVICES:
            return False
        try:
            return self[kind].runs_kernels
        except DeviceError:
            return False

    def _open_device(self, name: str) -> Compiled:
        device = _runtime(name).open_device(name)
        assert isinstance(device, Compiled)
        return device


Device = _Registry()
use_default_device(lambda: Device.DEFAULT)


def is_dtype_supported(dtype: DType, device: str | None = None) -> bool:
    """Whether kernels on the device (None: the default device) support the dtype."""
    return dtype.scalar() in Device[Device.canonicalize(device)].dtypes


class Buffer:
    """`size` elements of `dtype` in a device's memory, allocated lazily.

    A view aliases its `base` from byte `offset` on; a base is never a view. The memory is freed
    with the last buffer and memoryview that refers to it.
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
            assert offset >= 0 and offset + self.nbytes <= base.nbytes, "a view exceeds its base"
        self.base: Buffer | None = base
        self.offset: int = offset

    @staticmethod
    def from_memoryview(device: str, dtype: DType, data: memoryview) -> Buffer:
        """Creates a buffer over host memory, without a copy if possible.

        It is copied if the device has separate memory, if the data is read-only and kernels could
        write to it, or if its address is not a multiple of the itemsize. Raises ValueError if the
        bytes are not contiguous or not a whole number of elements.
        """
        if not data.c_contiguous:
            raise ValueError("the memoryview is not contiguous; make a contiguous copy first")
        if data.nbytes % dtype.itemsize:
            raise ValueError(
                f"{data.nbytes} bytes are not a whole number of {dtype}, "
                f"which has {dtype.itemsize} bytes"
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
        if is_file(self.device):
            # the content stays in the file
            nbytes = (self.base or self).nbytes
            return _open_buffer, (self.device, nbytes, self.size, self.dtype, self.offset)
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
        """The memory of the base, allocated on first use. Raises OutOfMemoryError."""
        root = self.base or self
        if root._allocation is None:
            root._allocation = self._allocator.allocate(root.nbytes, root.options)
        return root._allocation

    @property
    def handle(self) -> Any:
        """The argument that kernels take for this buffer."""
        handle = self.allocation.handle
        return self._allocator.offset(handle, self.offset) if self.offset else handle

    @property
    def address(self) -> int:
        """The address in this process. Raises DeviceError if the device's memory has none."""
        handle = (self._allocation or self.allocation).handle
        if self.offset:
            handle = self._allocator.offset(handle, self.offset)
        if not isinstance(handle, int):
            raise DeviceError(f"buffers on {self.device} have no address")
        return handle

    def is_allocated(self) -> bool:
        return (self.base or self)._allocation is not None

    def allocate(self) -> Buffer:
        """Allocates uninitialized memory. Returns self. Raises OutOfMemoryError."""
        assert not self.is_allocated(), f"{self!r} is allocated already"
        return self.ensure_allocated()

    def ensure_allocated(self) -> Buffer:
        """Allocates memory unless allocated. Returns self. Raises OutOfMemoryError."""
        assert self.allocation is not None
        return self

    def deallocate(self) -> None:
        """Drops the memory. Existing memoryviews of it stay valid."""
        assert self.base is None, "only the base of a view can be deallocated"
        self._allocation = None

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """A view of `size` elements of `dtype`, from byte `offset` of this buffer on."""
        return Buffer(self.device, size, dtype, self, offset)

    def copyin(self, source: memoryview) -> Buffer:
        """Copies contiguous host bytes to this buffer. Returns self."""
        self._check_size(source)
        if self.allocation.readonly:
            raise DeviceError(f"{self!r} is read-only memory; copy it to a device first")
        self._allocator.copyin(self.handle, source.cast("B"))
        return self

    def copyout(self, destination: memoryview) -> memoryview:
        """Copies this buffer to contiguous writable host bytes. Returns `destination`."""
        self._check_size(destination)
        self._check_allocated()
        self._allocator.copyout(destination.cast("B"), self.handle)
        return destination

    def as_memoryview(self) -> memoryview:
        """The bytes of the buffer: its memory if the CPU can address it, else a copy.

        The memoryview keeps the memory alive, also after the buffer is gone.
        """
        self._check_allocated()
        shared = self._allocator.as_memoryview(self.allocation, self.offset, self.nbytes)
        return self.copyout(memoryview(bytearray(self.nbytes))) if shared is None else shared

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """A copy of the content as an array of shape `(size,)`."""
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


def _open_buffer(device: str, nbytes: int, size: int, dtype: DType, offset: int) -> Buffer:
    whole = Buffer(device, nbytes, dtypes.uint8).allocate()
    return whole.view(size, dtype, offset)


class RemoteBuffer(Buffer):
    """Memory of a device of another process: a place and a size, and no content here."""

    __slots__ = ()

    @property
    def allocation(self) -> Allocation:
        """Raises DeviceError."""
        raise DeviceError(
            f"{self!r} is memory of another process; read the tensor with .numpy(), which all "
            "processes call together"
        )

    def is_allocated(self) -> bool:
        return True

    def ensure_allocated(self) -> Buffer:
        """Returns self: its process allocates it."""
        return self

    def view(self, size: int, dtype: DType, offset: int) -> Buffer:
        """A view, in the other process too."""
        return RemoteBuffer(self.device, size, dtype, self, offset)


class MultiBuffer:
    """The buffers of a sharded value: one per local device, all of `size` and `dtype`.

    If some of its devices are not local, `devices` are the names of all.
    """

    __slots__ = ("__weakref__", "bufs", "devices", "dtype", "size")

    def __init__(
        self,
        bufs: tuple[Buffer, ...],
        size: int | None = None,
        dtype: DType | None = None,
        devices: tuple[str, ...] = (),
    ) -> None:
        if bufs:
            size, dtype = bufs[0].size, bufs[0].dtype
        assert size is not None and dtype is not None, "no buffer, and no size"
        assert all((b.size, b.dtype) == (size, dtype) for b in bufs), "unequal shards"
        self.bufs = bufs
        self.size = size
        self.dtype = dtype
        self.devices = devices

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self.bufs)

    def __len__(self) -> int:
        return len(self.bufs)

    def __getitem__(self, index: int) -> Buffer:
        """The buffer of device number `index`, without content if the device is not local."""
        if not self.devices:
            return self.bufs[index]
        name = _canonical_name(self.devices[index])
        found = (buffer for buffer in self.bufs if buffer.device == name)
        return next(found, None) or RemoteBuffer(name, self.size, self.dtype)

    def __repr__(self) -> str:
        return f"<MultiBuffer {self.size} {self.dtype} on {', '.join(b.device for b in self.bufs)}>"

    @property
    def nbytes(self) -> int:
        """The total number of bytes on all local devices."""
        return sum(buffer.nbytes for buffer in self.bufs)

    def is_allocated(self) -> bool:
        return all(buffer.is_allocated() for buffer in self.bufs)

    def allocate(self) -> MultiBuffer:
        """Allocates memory on every device. Returns self. Raises OutOfMemoryError."""
        for buffer in self.bufs:
            buffer.allocate()
        return self

    def ensure_allocated(self) -> MultiBuffer:
        """Allocates memory on devices without. Returns self. Raises OutOfMemoryError."""
        for buffer in self.bufs:
            buffer.ensure_allocated()
        return self


def copy_buffer(destination: Buffer, source: Buffer) -> None:
    """Copies a buffer to one of the same number of bytes, on any device.

    Counts as a message if the devices differ and neither is a host source.
    """
    if destination.nbytes != source.nbytes:
        raise ValueError(f"cannot copy {source!r} to {destination!r}: their sizes differ in bytes")
    destination.ensure_allocated()
    to, origin = Device[destination.device], Device[source.device]
    target, memory = to.allocator, origin.allocator
    if memory.addressable:
        destination.copyin(source.as_memoryview())
    elif target.addressable:
        source.copyout(destination.as_memoryview())
    elif not target.copy_from(destination.handle, memory, source.handle, source.nbytes):
        destination.copyin(source.as_memoryview())
    crossed = destination.device != source.device
    if crossed and not to.is_host_source and not origin.is_host_source:
        GlobalCounters.count_message(source.device, source.nbytes)
