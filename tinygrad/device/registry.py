"""The device registry: the devices of this process by name.

`Device["CPU:1"]` opens a device on first use, by importing the module `tinygrad.runtime.cpu`: the
only import of a higher layer.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygrad.device.compiled import Compiled, DeviceError
from tinygrad.dtype import DType
from tinygrad.settings import requested_device
from tinygrad.sharding import Topology
from tinygrad.uop.device_value import use_default_device

# The folder whose modules are the runtimes. They are above this module, which imports them by name.
RUNTIMES = Path(__file__).parents[1] / "runtime"
# For a module that a runtime cannot import: its package, and the extra that installs all it needs.
PACKAGES = {
    "cuda": ("cuda-bindings", "tinygrad-sharding[cuda]"),
    "Metal": ("pyobjc-framework-Metal", "tinygrad-sharding[metal]"),
    "pyopencl": ("pyopencl", "tinygrad-sharding[opencl]"),
}
# For a module that exists for one system alone, by Python's name: what people call the system.
SYSTEMS = {"Metal": ("darwin", "macOS")}
# The part after the colon is a path, not a number.
PATH_DEVICES = frozenset({"DISK"})


@functools.cache
def canonical_name(name: str) -> str:
    """ "cpu:0" becomes "CPU".

    Raises DeviceError for what is not the name of a device, TypeError for what is no text.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"a device is a name, such as 'CPU' or 'CUDA:1', not {name!r} of type "
            f"{type(name).__name__}"
        )
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
    canonical = canonical_name(name)
    if canonical.partition(":")[0] not in _known_kinds():
        raise DeviceError(f"unknown device {name!r}; known devices are {', '.join(_known_kinds())}")
    return canonical


def _runtime(name: str) -> Any:
    """The module that opens a device. Raises DeviceError if a package is missing or broken."""
    kind = _known_name(name).partition(":")[0]
    try:
        return importlib.import_module(f"tinygrad.runtime.{kind.lower()}")
    except ImportError as error:
        module = (error.name or "").partition(".")[0]
        if module == "tinygrad":
            raise
        package, wanted = PACKAGES.get(module, (module, module))
        if not isinstance(error, ModuleNotFoundError):
            # it is installed, but raises, or lacks a library
            again = f"; install it again: pip install '{wanted}'" if module else ""
            raise DeviceError(f"{name}: a package that it needs fails: {error}{again}") from error
        platform, system = SYSTEMS.get(module, (sys.platform, ""))
        if sys.platform != platform:
            raise DeviceError(f"{name} needs {system}, and this is {sys.platform}") from error
        raise DeviceError(
            f"{name} needs the Python package {package}: pip install '{wanted}'"
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

    @property
    def default(self) -> Compiled:
        """The default device itself, as `Device[Device.DEFAULT]`."""
        return self[self.DEFAULT]

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
        canonical = canonical_name(name)
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
