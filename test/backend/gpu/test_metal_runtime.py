"""The Metal runtime calls Metal as it should: with a stand-in of pyobjc's module.

Its kernels run on Macs alone; `test/emulator` runs their text.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from test.backend.codegen.test_renderer_c import elementwise
from test.golden.test_kernels import row_sum
from tinygrad.codegen import get_program
from tinygrad.device import Buffer, Compiled, CompileError, DeviceError, OutOfMemoryError
from tinygrad.device import Device as REGISTRY
from tinygrad.dtype import dtypes
from tinygrad.renderer import LaunchShape, find_renderer
from tinygrad.renderer.gpu_targets import apple_target
from tinygrad.settings import Context


class Pools:
    """The autorelease pools of the thread: Metal's calls that return objects need one."""

    def __init__(self) -> None:
        self.depth = 0

    @contextlib.contextmanager
    def autorelease_pool(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def check(self) -> None:
        assert self.depth, "what Metal autoreleases here is never released"


class MetalBuffer:
    def __init__(self, nbytes: int) -> None:
        self.data = bytearray(nbytes)

    def length(self) -> int:
        return len(self.data)

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda nbytes: memoryview(self.data)[:nbytes])


class Command:
    """A command buffer with one encoder. A kernel writes its integer, or 1, to its first buffer."""

    def __init__(self, gpu: Gpu) -> None:
        self.calls: list[Any] = []
        self.launches: list[tuple[int, int]] = []
        self.gpu = gpu
        self.is_done = False
        # what another thread does while one waits
        self.meanwhile: Callable[[], None] | None = None
        self._arguments: dict[int, Any] = {}

    def computeCommandEncoder(self) -> Command:
        self.gpu.pools.check()
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
        self.gpu.pools.check()
        text = self.gpu.fails.pop() if self.gpu.fails else None
        return text and SimpleNamespace(localizedDescription=lambda: text)

    def GPUStartTime(self) -> float:
        return 2.0

    def GPUEndTime(self) -> float:
        return 2.5


class Pipeline:
    def maxTotalThreadsPerThreadgroup(self) -> int:
        return 512


class Options:
    """Compile options before macOS 15."""

    def __init__(self) -> None:
        self.set: dict[str, int] = {}

    def setFastMathEnabled_(self, enabled: bool) -> None:
        self.set["fast"] = enabled


class LaterOptions(Options):
    def setMathMode_(self, mode: int) -> None:
        self.set["mode"] = mode

    def setMathFloatingPointFunctions_(self, functions: int) -> None:
        self.set["functions"] = functions


class Gpu:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.fails: list[str] = []
        self.pools = Pools()
        self.options: type[Options] = Options
        self.used_options: Options | None = None
        self.has_bfloat = self.is_apple7 = True

    def name(self) -> str:
        return "Apple M1"

    def recommendedMaxWorkingSetSize(self) -> int:
        return 1 << 30

    def newCommandQueue(self) -> Gpu:
        return self

    def supportsFamily_(self, family: int) -> bool:
        assert family == 1007
        return self.is_apple7

    def commandBuffer(self) -> Command:
        self.pools.check()
        self.commands.append(Command(self))
        return self.commands[-1]

    def newBufferWithLength_options_(self, nbytes: int, options: int) -> MetalBuffer | None:
        return MetalBuffer(nbytes) if nbytes < 1 << 30 else None

    def newLibraryWithSource_options_error_(self, source: str, options: Any, error: Any) -> Any:
        self.pools.check()
        self.used_options = options
        unknown = {"bad"} if self.has_bfloat else {"bad", "bfloat"}
        if names := unknown.intersection(source.split()):
            reason = f"unknown type name '{names.pop()}'"
            return None, SimpleNamespace(localizedDescription=lambda: reason)
        return SimpleNamespace(newFunctionWithName_=lambda name: name), None

    def newComputePipelineStateWithFunction_error_(self, function: str, error: Any) -> Any:
        self.pools.check()
        return Pipeline(), None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    found = Gpu()
    module: Any = ModuleType("Metal")
    module.MTLCopyAllDevices = lambda: [found]
    module.MTLSizeMake = lambda width, height, depth: width
    module.MTLResourceStorageModeShared = 0
    module.MTLGPUFamilyApple7 = 1007
    module.MTLMathModeSafe = 0
    module.MTLMathFloatingPointFunctionsPrecise = 1
    module.MTLCompileOptions = SimpleNamespace(new=lambda: found.options())  # noqa: PLW0108
    monkeypatch.setitem(sys.modules, "Metal", module)
    monkeypatch.setitem(sys.modules, "objc", found.pools)
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


def test_every_call_that_returns_an_object_is_in_a_pool_that_is_drained(gpu: Gpu) -> None:
    """The stand-in checks each call; command buffers would keep the memory that they use."""
    test_launches_are_one_command_buffer_until_somebody_reads(gpu)
    assert gpu.pools.depth == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [(Options, {"fast": False}), (LaterOptions, {"mode": 0, "functions": 1})],
)
def test_arithmetic_is_exact(gpu: Gpu, options: type[Options], expected: dict[str, int]) -> None:
    gpu.options = options
    REGISTRY["METAL"].compile("kernel")
    assert gpu.used_options is not None and gpu.used_options.set == expected


def test_kernels_use_what_the_gpu_and_the_system_have(gpu: Gpu) -> None:
    with Context(DEVICES_PER_GPU=3):
        target = REGISTRY["METAL"].target
        assert target.warp == 32 and len(target.matrix) == 3 and dtypes.bfloat16 in target.dtypes
        # macOS 13
        gpu.has_bfloat = False
        older = REGISTRY["METAL:1"].target
        assert [x.operand for x in older.matrix] == [dtypes.float32, dtypes.float16]
        kernel = elementwise(lambda x: x + 1, dtypes.bfloat16)
        assert "bfloat" in get_program(kernel, find_renderer(target)).source
        assert "bfloat" not in get_program(kernel, find_renderer(older)).source
        # the prelude has overloads of shuffles for all types
        shuffled = get_program(row_sum(), find_renderer(older)).source
        assert "warp_shuffle(" in shuffled
        guarded = r"#ifdef __HAVE_BFLOAT__\n.*?#endif\n"
        rest = re.sub(guarded, "", shuffled, flags=re.DOTALL)
        assert re.search(r"\bbfloat\b", rest) is None
        # a Mac with a GPU of Intel or AMD
        gpu.is_apple7 = False
        other = REGISTRY["METAL:2"].target
        assert other.warp == 1 and not other.matrix


def test_a_block_that_metal_would_not_run_is_an_error(gpu: Gpu) -> None:
    device = REGISTRY["METAL"]
    program = device.runtime("k_big", device.compile("kernel"))
    with pytest.raises(DeviceError, match="METAL: k_big has blocks of 1024 threads.*512 at most"):
        program(*buffers(2), launch=LaunchShape(1, 1024))
    program(*buffers(2), launch=LaunchShape(1, 512))


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
