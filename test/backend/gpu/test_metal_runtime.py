"""The Metal runtime calls Metal as it should: with a stand-in of pyobjc's module.

Its kernels run on Macs alone; `test/emulator` runs their text.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from test.backend.codegen.test_renderer_c import elementwise
from tinygrad.codegen import get_program
from tinygrad.device import Buffer, Compiled, CompileError, DeviceError, OutOfMemoryError
from tinygrad.device import Device as REGISTRY
from tinygrad.dtype import dtypes
from tinygrad.renderer import LaunchShape, find_renderer
from tinygrad.renderer.gpu_targets import apple_target


class MetalBuffer:
    def __init__(self, nbytes: int) -> None:
        self.data = bytearray(nbytes)

    def length(self) -> int:
        return len(self.data)

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda nbytes: memoryview(self.data)[:nbytes])


class Command:
    """A command buffer with one encoder. A kernel writes its integer, or 1, to its first buffer."""

    def __init__(self, fails: list[str]) -> None:
        self.calls: list[Any] = []
        self.launches: list[tuple[int, int]] = []
        self.fails = fails
        self.is_done = False
        # what another thread does while one waits
        self.meanwhile: Callable[[], None] | None = None
        self._arguments: dict[int, Any] = {}

    def computeCommandEncoder(self) -> Command:
        return self

    def setComputePipelineState_(self, pipeline: Any) -> None:
        self._arguments = {}

    def setBuffer_offset_atIndex_(self, buffer: MetalBuffer, offset: int, number: int) -> None:
        self._arguments[number] = (buffer, offset)

    def setBytes_length_atIndex_(self, data: bytes, length: int, number: int) -> None:
        assert len(data) == length == 8
        self._arguments[number] = int.from_bytes(data, "little", signed=True)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, blocks: int, threads: int) -> None:
        self.launches.append((blocks, threads))
        self.calls.append(dict(self._arguments))

    def endEncoding(self) -> None:
        self.calls.append("end")

    def commit(self) -> None:
        assert self.calls[-1] == "end", "the encoder is open"

    def waitUntilCompleted(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        self.is_done = True
        for arguments in self.calls[:-1]:
            buffer, offset = arguments[0]
            values = [x for x in arguments.values() if isinstance(x, int)]
            buffer.data[offset] = values[0] if values else 1

    def error(self) -> Any:
        text = self.fails.pop() if self.fails else None
        return text and SimpleNamespace(localizedDescription=lambda: text)

    def GPUStartTime(self) -> float:
        return 2.0

    def GPUEndTime(self) -> float:
        return 2.5


class Gpu:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.fails: list[str] = []

    def name(self) -> str:
        return "Apple M1"

    def recommendedMaxWorkingSetSize(self) -> int:
        return 1 << 30

    def newCommandQueue(self) -> Gpu:
        return self

    def commandBuffer(self) -> Command:
        self.commands.append(Command(self.fails))
        return self.commands[-1]

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> MetalBuffer | None:
        return MetalBuffer(nbytes) if nbytes < 1 << 30 else None

    def newLibraryWithSource_options_error_(self, source: str, options: Any, error: Any) -> Any:
        if "bad" in source:
            return None, SimpleNamespace(localizedDescription=lambda: "unknown type name 'bad'")
        return SimpleNamespace(newFunctionWithName_=lambda name: name), None

    def newComputePipelineStateWithFunction_error_(self, function: str, error: Any) -> Any:
        return function, None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    found = Gpu()
    module: Any = ModuleType("Metal")
    module.MTLCopyAllDevices = lambda: [found]
    module.MTLSizeMake = lambda width, height, depth: width
    module.MTLResourceStorageModeShared = 0
    options = SimpleNamespace(setFastMathEnabled_=lambda enabled: None)
    module.MTLCompileOptions = SimpleNamespace(new=lambda: options)
    monkeypatch.setitem(sys.modules, "Metal", module)
    monkeypatch.delitem(sys.modules, "tinygrad.runtime.metal", raising=False)
    monkeypatch.setattr(REGISTRY, "_open", {**REGISTRY._open})
    yield found
    sys.modules.pop("tinygrad.runtime.metal", None)


def buffers(count: int, size: int = 4) -> list[Buffer]:
    return [Buffer("METAL", size, dtypes.uint8).allocate() for _ in range(count)]


def test_launches_are_one_command_buffer_until_somebody_reads(gpu: Gpu) -> None:
    device = REGISTRY["METAL"]
    assert isinstance(device, Compiled) and dtypes.float64 not in device.dtypes
    output, source = buffers(2)
    output.copyin(memoryview(bytes(4)))
    program = device.runtime("k_1", device.compile("kernel"))
    assert program(output.view(3, dtypes.uint8, 1), source, launch=LaunchShape(300)) is None
    program(output, source, launch=LaunchShape(2, 128), values=(-7 + 16,))
    assert [c.launches for c in gpu.commands] == [[(2, 256), (2, 128)]]
    assert not gpu.commands[0].is_done
    assert output.numpy().tolist() == [9, 1, 0, 0]
    assert program(output, source, launch=LaunchShape(1), wait=True) == 0.5
    assert program(output, source, launch=LaunchShape(0), wait=True) == 0.0
    assert len(gpu.commands) == 2


def test_a_thread_waits_for_what_another_one_is_waiting_for(gpu: Gpu) -> None:
    device = REGISTRY["METAL"]
    output, source = buffers(2)
    device.runtime("k_1", b"kernel")(output, source, launch=LaunchShape(1))
    (command,) = gpu.commands
    found: list[bool] = []

    def other_thread() -> None:
        device.synchronize()
        found.append(command.is_done)

    command.meanwhile = other_thread
    device.synchronize()
    assert found == [True]
    assert device._committed == []


def test_a_full_command_buffer_is_committed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("tinygrad.runtime.metal"), "BATCH", 2)
    output, source = buffers(2)
    program = REGISTRY["METAL"].runtime("k_1", b"kernel")
    for _ in range(5):
        program(output, source, launch=LaunchShape(1))
    assert [len(c.launches) for c in gpu.commands] == [2, 2, 1]
    assert [c.calls[-1] == "end" for c in gpu.commands] == [True, True, False]


def test_a_dtype_that_the_gpu_lacks_is_an_error_that_names_it() -> None:
    kernel = elementwise(lambda x: x + 1, dtypes.float64)
    with pytest.raises(NotImplementedError, match="Metal on apple7 has no dtypes.double"):
        get_program(kernel, find_renderer(apple_target()))


def test_errors_say_what_failed(gpu: Gpu) -> None:
    device = REGISTRY["METAL"]
    with pytest.raises(CompileError, match="unknown type name 'bad'"):
        device.compile("bad")
    with pytest.raises(OutOfMemoryError, match="METAL cannot allocate"):
        Buffer("METAL", 1 << 31, dtypes.uint8).allocate()
    with pytest.raises(DeviceError, match="there is no METAL:3.*1 GPUs for Metal"):
        REGISTRY["METAL:3"]
    program = device.runtime("k_late", b"kernel")
    program(*buffers(2), launch=LaunchShape(1))
    gpu.fails.append("page fault")
    with pytest.raises(DeviceError, match=r"METAL: page fault, in one of .* k_late"):
        device.synchronize()
    program(*buffers(2), launch=LaunchShape(1))
    device.synchronize()
