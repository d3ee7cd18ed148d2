"""Device names and buffers on devices that run no kernels."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygrad.device import (
    Buffer,
    Compiled,
    Device,
    DeviceError,
    MultiBuffer,
    copy_buffer,
    is_dtype_supported,
)
from tinygrad.device.allocator import Allocator, BufferSpec
from tinygrad.dtype import dtypes
from tinygrad.measure import GlobalCounters
from tinygrad.runtime.support.host_memory import ALIGNMENT


def filled(device: str, values: np.ndarray[Any, Any]) -> Buffer:
    """A buffer on the device with the bytes of the array."""
    buffer = Buffer(device, values.nbytes, dtypes.uint8).allocate()
    return buffer.copyin(values.data.cast("B"))


# ---- names ----


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("cpu", "CPU"),
        ("CPU:0", "CPU"),
        ("cpu:1", "CPU:1"),
        ("CPU:01", "CPU:1"),
        ("disk:/tmp/File", "DISK:/tmp/File"),
        ("DISK:0", "DISK:0"),
    ],
)
def test_device_names_are_canonicalized(name: str, canonical: str):
    assert Device.canonicalize(name) == canonical
    assert Device.canonicalize(canonical) == canonical


def test_the_default_device_can_be_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Device, "DEFAULT", Device.DEFAULT)
    assert Device.canonicalize(None) == Device.DEFAULT
    Device.DEFAULT = "null:0"
    assert Device.DEFAULT == Device.canonicalize(None) == "NULL"


def test_an_unknown_device_is_an_error_that_lists_the_known_ones():
    with pytest.raises(
        DeviceError, match=r"unknown device 'ABACUS'; known devices are .*CPU, .*NULL"
    ):
        Device["abacus"]


def test_a_device_number_is_a_number():
    with pytest.raises(DeviceError, match=r"'CPU:x' is not a device name; write .* CPU:1"):
        Device.canonicalize("CPU:x")


def test_a_missing_package_names_the_fix(monkeypatch: pytest.MonkeyPatch):
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'cuda'", name="cuda.bindings")

    monkeypatch.setattr("importlib.import_module", fail)
    fix = r"cuda-bindings: pip install 'tinygrad-sharding\[cuda\]'"
    with pytest.raises(DeviceError, match=f"NULL:77 needs the Python package {fix}"):
        Device["NULL:77"]


def test_a_package_that_this_system_cannot_have_is_not_recommended(
    monkeypatch: pytest.MonkeyPatch,
):
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'Metal'", name="Metal")

    monkeypatch.setattr("importlib.import_module", fail)
    for platform, message in (
        ("linux", "NULL:77 needs macOS, and this is linux"),
        ("darwin", "pyobjc-framework-Metal: pip install"),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        with pytest.raises(DeviceError, match=message):
            Device["NULL:77"]


def test_a_broken_package_is_reported_with_its_error(monkeypatch: pytest.MonkeyPatch):
    broken = ImportError("libOpenCL.so.1: cannot open shared object file", name="pyopencl._cl")

    def fail(name: str) -> None:
        raise broken

    monkeypatch.setattr("importlib.import_module", fail)
    message = r"libOpenCL.so.1: .*; install it again: pip install 'tinygrad-sharding\[opencl\]'"
    with pytest.raises(DeviceError, match=f"NULL:77: a package that it needs fails: {message}"):
        Device["NULL:77"]
    broken.name = None
    with pytest.raises(DeviceError, match="fails: libOpenCL.so.1: cannot open .* file$"):
        Device["NULL:77"]
    broken.name = "tinygrad.runtime"
    with pytest.raises(ImportError):
        Device["NULL:77"]


GPU_PACKAGES = "cuda", "pyopencl", "Metal", "objc"


def test_without_software_of_gpus_each_kind_says_what_to_install():
    program = f"""
import sys
sys.modules.update(dict.fromkeys({GPU_PACKAGES!r}))
from tinygrad.apps.device_report import main
sys.exit(main(["--size", "32", "--bytes", "4096"]))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line[0] != " "}
    fixes = {kind: f"pip install 'tinygrad-sharding[{kind.lower()}]'" for kind in ("CUDA", "METAL")}
    fixes["CL"] = "pip install 'tinygrad-sharding[opencl]'"
    if sys.platform != "darwin":
        fixes["METAL"] = f"needs macOS, and this is {sys.platform}"
    for kind, fix in fixes.items():
        assert "not found: " in lines[kind] and lines[kind].endswith(fix)
    # its runtime needs no package
    assert "not found: " not in lines["AMD"] or "needs ROCm" in lines["AMD"]
    assert "not found" not in lines["CPU"]


def test_a_device_is_opened_once():
    assert Device["NULL:3"] is Device["null:3"]
    assert Device["NULL:3"] is not Device["NULL:4"]


def test_importing_the_library_loads_nothing_of_a_gpu():
    program = "import sys, tinygrad; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    packages = {name.partition(".")[0] for name in loaded}
    assert not {"cuda", "pyopencl", "Metal", "objc", "llvmlite"} & packages
    runtimes = {name for name in loaded if name.startswith("tinygrad.runtime.")}
    assert runtimes <= {"tinygrad.runtime.disk"}, "files are opened by tensors of files"
    assert not [name for name in loaded if name.startswith("tinygrad.renderer.cstyle")]


def test_available_devices_are_those_that_run_kernels():
    available = Device.get_available_devices()
    assert {"CPU", "NULL"} <= set(available)
    assert not {"NPY", "PYTHON", "DISK"} & set(available)


def test_supported_dtypes_depend_on_the_device():
    assert is_dtype_supported(dtypes.float32, "CPU")
    assert is_dtype_supported(dtypes.float32.vec(4), "CPU")
    assert not is_dtype_supported(dtypes.float32, "NPY")


def test_compiling_for_a_device_without_kernels_is_an_error():
    with pytest.raises(DeviceError, match="NPY runs no kernels"):
        Device["NPY"].compile("")


# ---- buffers ----


@given(st.integers(0, 5000))
def test_copyout_returns_what_copyin_stored(size: int):
    values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    buffer = filled("NPY", values) if size else Buffer("NPY", 0, dtypes.uint8).allocate()
    assert buffer.numpy().tobytes() == values.tobytes()
    assert bytes(buffer.as_memoryview()) == values.tobytes()
    assert buffer.address % ALIGNMENT == 0


def test_views_share_the_memory_of_their_base():
    base = filled("NPY", np.arange(16, dtype=np.int32))
    middle = base.view(8, dtypes.int32, 16)
    overlapping = middle.view(4, dtypes.int32, 8)
    assert overlapping.base is base
    assert overlapping.offset == 24
    assert overlapping.address == base.address + 24
    overlapping.copyin(np.full(4, -1, np.int32).data)
    assert middle.numpy().tolist() == [4, 5, -1, -1, -1, -1, 10, 11]


def test_a_view_allocates_its_base():
    base = Buffer("NPY", 8, dtypes.float32)
    view = base.view(2, dtypes.float32, 8)
    assert not base.is_allocated()
    view.ensure_allocated()
    assert base.is_allocated()


def test_a_memoryview_outlives_its_buffer():
    buffer = filled("NPY", np.arange(256, dtype=np.uint8))
    data = buffer.as_memoryview()
    del buffer
    gc.collect()
    other = filled("NPY", np.zeros(256, np.uint8))
    assert bytes(data) == bytes(range(256))
    assert other.numpy().sum() == 0


def test_memory_in_use_is_counted_and_released():
    before = GlobalCounters.mem_used, GlobalCounters.mem_used_per_device["NULL:5"]
    buffer = Buffer("NULL:5", 1000, dtypes.float32).allocate()
    view = buffer.view(10, dtypes.float32, 0).ensure_allocated()
    during = GlobalCounters.mem_used, GlobalCounters.mem_used_per_device["NULL:5"]
    assert during == (before[0] + 4000, before[1] + 4000)
    del buffer
    assert GlobalCounters.mem_used == during[0]
    del view
    assert (GlobalCounters.mem_used, GlobalCounters.mem_used_per_device["NULL:5"]) == before


def test_sizes_must_agree():
    buffer = Buffer("NPY", 4, dtypes.int32).allocate()
    with pytest.raises(ValueError, match=r"12 bytes do not fit .* of 16 bytes"):
        buffer.copyin(memoryview(bytes(12)))
    with pytest.raises(ValueError, match="their sizes differ"):
        copy_buffer(buffer, Buffer("NPY", 3, dtypes.int32).allocate())


def test_reading_before_writing_is_an_error():
    with pytest.raises(DeviceError, match="holds no data yet"):
        Buffer("NPY", 4, dtypes.int32).numpy()


def test_a_buffer_survives_pickling():
    buffer = filled("NPY", np.arange(5, dtype=np.uint8))
    copy = pickle.loads(pickle.dumps(buffer))
    assert copy.device == "NPY"
    assert copy.dtype is dtypes.uint8
    assert copy.numpy().tolist() == [0, 1, 2, 3, 4]
    assert not pickle.loads(pickle.dumps(Buffer("NPY", 5, dtypes.int8))).is_allocated()


def test_a_multibuffer_has_one_buffer_per_device():
    devices = ("NULL:1", "NULL:2")
    bufs = tuple(Buffer(device, 6, dtypes.int16) for device in devices)
    multi = MultiBuffer(bufs)
    assert (multi.size, multi.nbytes, len(multi), list(multi)) == (6, 24, 2, list(bufs))
    assert multi[1] is bufs[1]
    assert not multi.is_allocated()
    assert multi.allocate().is_allocated()


# ---- host memory without a copy ----


def test_numpy_memory_is_used_without_a_copy():
    values = np.arange(10, dtype=np.float32)
    buffer = Buffer.from_memoryview("NPY", dtypes.float32, values.data)
    values[3] = 99
    assert buffer.numpy()[3] == 99
    assert buffer.address == values.ctypes.data


def test_the_owner_of_host_memory_stays_alive():
    buffer = Buffer.from_memoryview("NPY", dtypes.uint8, memoryview(bytes(range(200))))
    gc.collect()
    assert buffer.numpy().tolist() == list(range(200))


def test_read_only_memory_is_never_written():
    data = bytes(range(64))
    source = Buffer.from_memoryview("PYTHON", dtypes.uint8, memoryview(data))
    assert source.as_memoryview().readonly
    with pytest.raises(DeviceError, match="read-only"):
        source.copyin(memoryview(bytes(64)))
    on_cpu = Buffer.from_memoryview("CPU", dtypes.uint8, memoryview(data))
    on_cpu.copyin(memoryview(bytes(64)))
    assert data == bytes(range(64))


def test_misaligned_host_memory_is_copied():
    raw = np.zeros(64, np.uint8)
    start = 1 + -raw.ctypes.data % 4
    buffer = Buffer.from_memoryview("NPY", dtypes.float32, raw[start : start + 40].data)
    raw[:] = 1
    assert buffer.address % 4 == 0
    assert buffer.numpy().tolist() == [0.0] * 10


def test_host_memory_must_be_contiguous_and_complete():
    with pytest.raises(ValueError, match="not contiguous"):
        Buffer.from_memoryview("NPY", dtypes.uint8, memoryview(bytes(10))[::2])
    with pytest.raises(ValueError, match="10 bytes are not a whole number"):
        Buffer.from_memoryview("NPY", dtypes.int32, memoryview(bytes(10)))


def test_an_external_pointer_is_used_unchanged():
    values = np.arange(4, dtype=np.int32)
    spec = BufferSpec(external_ptr=values.ctypes.data)
    buffer = Buffer("NPY", 4, dtypes.int32, options=spec).allocate()
    values[0] = 7
    assert buffer.numpy().tolist() == [7, 1, 2, 3]


# ---- copies between devices ----


@pytest.mark.parametrize("source", ["NPY", "CPU", "CPU:1", "NULL"])
@pytest.mark.parametrize("destination", ["NPY", "CPU", "CPU:1", "NULL"])
def test_only_messages_between_devices_with_kernels_are_counted(source: str, destination: str):
    values = np.arange(100, dtype=np.uint8)
    origin, to = filled(source, values), Buffer(destination, 100, dtypes.uint8)
    GlobalCounters.reset()
    copy_buffer(to, origin)
    moved = 100 if source != destination and "NPY" not in (source, destination) else 0
    assert GlobalCounters.bytes_moved == moved
    assert GlobalCounters.bytes_moved_per_device[source] == moved
    if "NULL" not in (source, destination):
        assert to.numpy().tolist() == values.tolist()


def test_a_null_device_can_allocate_more_than_the_machine_has():
    buffer = Buffer("NULL", 1 << 50, dtypes.float32).allocate()
    assert buffer.nbytes == 1 << 52
    assert Buffer("NULL", 3, dtypes.int32).allocate().numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("are_peers", [False, True])
def test_devices_with_separate_memory_copy_through_the_host_unless_they_are_peers(
    monkeypatch: pytest.MonkeyPatch, are_peers: bool
):
    through_host: list[str] = []

    class Remote(Allocator):
        def __init__(self, device: str) -> None:
            super().__init__(device)
            self.data = bytearray(4)

        def copy_from(self, handle: Any, source: Allocator, other: Any, nbytes: int) -> bool:
            if are_peers and isinstance(source, Remote):
                self.data[:] = source.data[:nbytes]
            return are_peers

        def _alloc(self, nbytes: int, spec: BufferSpec) -> tuple[int, Any]:
            return 0, None

        def copyin(self, handle: int, source: memoryview) -> None:
            self.data[:] = source

        def copyout(self, destination: memoryview, handle: int) -> None:
            through_host.append(self.device)
            destination[:] = self.data

    remotes = {name: Compiled(name, Remote(name)) for name in ("REMOTE", "REMOTE:1")}
    registry = type(Device)
    open_device = registry.__getitem__
    monkeypatch.setattr(
        registry, "__getitem__", lambda self, name: remotes.get(name) or open_device(self, name)
    )
    first = Buffer("REMOTE", 4, dtypes.uint8).allocate().copyin(memoryview(b"abcd"))
    second = Buffer("REMOTE:1", 4, dtypes.uint8)
    copy_buffer(second, first)
    assert through_host == ([] if are_peers else ["REMOTE"])
    assert bytes(second.as_memoryview()) == b"abcd"
    on_host = Buffer("CPU", 4, dtypes.uint8)
    copy_buffer(on_host, second)
    assert on_host.numpy().tobytes() == b"abcd"


# ---- files ----


def test_a_file_is_read_at_an_offset(tmp_path: Path):
    path = tmp_path / "Data.bin"
    path.write_bytes(bytes(range(100)))
    whole = Buffer(f"DISK:{path}", 100, dtypes.uint8).allocate()
    part = whole.view(5, dtypes.uint16, 20)
    assert bytes(part.as_memoryview()) == bytes(range(20, 30))
    assert part.as_memoryview().readonly
    on_cpu = Buffer("CPU", 5, dtypes.uint16)
    GlobalCounters.reset()
    copy_buffer(on_cpu, part)
    assert on_cpu.numpy().tobytes() == bytes(range(20, 30))
    assert GlobalCounters.bytes_moved == 0


def test_a_missing_file_is_created_with_zeros(tmp_path: Path):
    path = tmp_path / "new.bin"
    buffer = Buffer(f"DISK:{path}", 8, dtypes.uint8).allocate()
    assert path.read_bytes() == bytes(8)
    source = filled("CPU", np.arange(4, dtype=np.uint8))
    copy_buffer(buffer.view(4, dtypes.uint8, 2), source)
    assert path.read_bytes() == bytes([0, 0, 0, 1, 2, 3, 0, 0])
    assert bytes(buffer.as_memoryview()) == path.read_bytes()
    buffer.view(1, dtypes.uint8, 7).copyin(memoryview(b"\x09"))
    assert bytes(buffer.as_memoryview())[-1] == 9


def test_a_short_truncated_or_removed_file_is_an_error(tmp_path: Path):
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(9))
    with pytest.raises(DeviceError, match=r"short\.bin has 9 bytes, fewer than the 10 of the"):
        Buffer(f"DISK:{path}", 10, dtypes.uint8).allocate()
    assert path.stat().st_size == 9
    buffer = Buffer(f"DISK:{path}", 9, dtypes.uint8).allocate()
    os.truncate(path, 5)
    for read in (buffer.numpy, buffer.as_memoryview):
        with pytest.raises(DeviceError, match="5 bytes, fewer than the 9 .* was truncated"):
            read()
    path.unlink()
    with pytest.raises(DeviceError, match=r"short\.bin was removed or replaced"):
        buffer.numpy()


def test_reading_does_not_change_a_file_that_cannot_be_written(tmp_path: Path):
    path = tmp_path / "protected.bin"
    path.write_bytes(b"keep")
    os.chmod(path, 0o444)
    buffer = Buffer(f"DISK:{path}", 4, dtypes.uint8).allocate()
    assert buffer.numpy().tobytes() == b"keep"
    assert GlobalCounters.mem_used_per_device[buffer.device] == 0


def test_a_file_needs_a_path():
    with pytest.raises(DeviceError, match="DISK needs a path"):
        Device["DISK"]
