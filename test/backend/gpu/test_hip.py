"""HIP text compiles to code objects of AMD GPUs, and the AMD runtime calls HIP as it should.

No GPU is needed: clang compiles for any, and a stand-in of ROCm's library keeps its memory on the
host.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test import kept_kernels
from test.backend.codegen.test_renderer_c import elementwise, everything
from test.golden.test_kernels import KERNELS, padded_convolution
from test.gpu_programs import (
    ATTENTION,
    CONVOLUTION,
    GRADIENTS,
    NARROW_CONVOLUTION,
    WIDE_ATTENTION,
    product,
)
from tinygrad.codegen import get_program
from tinygrad.device import Buffer, CompileError, Device, DeviceError, OutOfMemoryError
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer import LaunchShape, find_renderer
from tinygrad.renderer.gpu_targets import amd_target
from tinygrad.runtime import amd
from tinygrad.runtime.support.hip import runtime as hip
from tinygrad.runtime.support.hip.compiler import compile_hip, find_hip_compiler
from tinygrad.settings import Context
from tinygrad.uop.ops import UOp

ARCHITECTURES = ("gfx942", "gfx1100")
AMDGPU_MACHINE = 224
"""`e_machine` of an ELF file for AMD GPUs."""
CODE_OBJECT_5 = 3
"""Its ABI version in code objects of version 5, which ROCm 5.6 and later load; 6 needs 6.3."""


@pytest.fixture
def compiler() -> None:
    try:
        find_hip_compiler()
    except DeviceError as error:
        pytest.skip(str(error))


def programs() -> dict[str, UOp]:
    """Typical kernels, and one with everything that dialects write differently."""
    found = {build.__name__: build() for build in KERNELS}
    found["convolution of larger images"] = padded_convolution(8)
    for dtype in (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16):
        found[f"everything in {dtype}"] = elementwise(everything, dtype, dtype)
    found["remainder"] = elementwise(lambda x, y: x % y, dtypes.float64, dtypes.float64)
    return found


@pytest.mark.parametrize(
    "architecture", ["gfx942", pytest.param("gfx1100", marks=pytest.mark.slow)]
)
def test_one_kernel_becomes_a_code_object(compiler: None, architecture: str) -> None:
    kernel = programs()["row_sum"]
    spec = get_program(kernel, find_renderer(amd_target(architecture)))
    code = compile_hip(spec.source, architecture)
    assert code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == AMDGPU_MACHINE
    assert code[8] == CODE_OBJECT_5
    assert f"{spec.function}.kd".encode() in code, "the descriptor that a launch looks for"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_typical_kernels_compile_and_do_not_spill(compiler: None, architecture: str) -> None:
    renderer = find_renderer(amd_target(architecture))
    for name, kernel in programs().items():
        spec = get_program(kernel, renderer)
        text = find_hip_compiler().assembly(spec.source, architecture)
        assert find_hip_compiler().link(text, architecture)[:4] == b"\x7fELF", name
        assert re.search(r"^\s+\.vgpr_spill_count: +0$", text, re.MULTILINE), name
        lds = re.search(r"^\s+\.group_segment_fixed_size: (\d+)$", text, re.MULTILINE)
        assert lds is not None and int(lds[1]) <= renderer.target.shared_bytes, name


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize(
    "architecture, name",
    [("gfx90a", "mfma"), ("gfx942", "mfma"), ("gfx950", "mfma"), ("gfx1100", "wmma")],
)
def test_products_use_matrix_instructions(
    compiler: None, architecture: str, name: str, dtype: DType
) -> None:
    (spec,) = product(256, dtype).kernels(amd_target(architecture))
    text = find_hip_compiler().assembly(spec.source, architecture)
    assert find_hip_compiler().link(text, architecture)[:4] == b"\x7fELF"
    # those of the register tile, in one step of a stage or in several
    rows, columns = map(int, re.findall(rf"(\d+) x (\d+) {name}", spec.applied[-1])[0])
    count = len(re.findall(rf"\bv_{name}_f32_", text))
    assert count and count % (rows * columns) == 0


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_products_and_attention_do_not_spill(compiler: None, architecture: str) -> None:
    products = product(4096), product(8192, dtypes.bfloat16), CONVOLUTION, NARROW_CONVOLUTION
    multiplied = 0
    for program in (*products, ATTENTION, WIDE_ATTENTION, GRADIENTS):
        for spec in program.kernels(amd_target(architecture)):
            text = find_hip_compiler().assembly(spec.source, architecture)
            assert re.search(r"^\s+\.vgpr_spill_count: +0$", text, re.MULTILINE), program.name
            assert re.search(r"^\s+\.private_segment_fixed_size: +0$", text, re.MULTILINE)
            multiplied += program in {ATTENTION, GRADIENTS} and bool(
                re.search(r"\bv_w?mf?ma_f32_16x16x16_bf16", text)
            )
    # an attention, and another one with three kernels of its gradients
    assert multiplied == 5


@pytest.mark.slow
def test_kept_kernels_are_compiled_for_the_architecture_of_their_file(
    compiler: None, tmp_path: Path
) -> None:
    (spec,) = product(256, dtypes.float16).kernels(amd_target("gfx1100"))
    texts = {"right": spec.source, "broken": spec.source.replace("block_barrier();", "no_name();")}
    for name, text in texts.items():
        (tmp_path / f"{name}.gfx1100.hip").write_text(text)
    broken, right = kept_kernels.jobs(tmp_path)
    assert kept_kernels.compile_kernel(right) == (True, "")
    is_right, message = kept_kernels.compile_kernel(broken)
    assert not is_right and "does not compile for gfx1100" in message


def test_text_that_clang_rejects_is_an_error_with_its_messages(compiler: None) -> None:
    with pytest.raises(CompileError, match="undeclared_name"):
        compile_hip("void f() { undeclared_name(); }", "gfx942")


# ---- the runtime, with a stand-in of ROCm ----


class StandIn:
    """The functions of libamdhip64 that the runtime calls. A kernel adds its integer, or 1."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.memory: dict[int, Any] = {}
        self.current = 0
        self.launches: list[tuple[int, int, int]] = []
        # modules and events that are not destroyed, and whether launches may still run
        self.modules: set[int] = set()
        self.events: set[int] = set()
        self.is_busy = False
        self.fails: dict[str, int] = {}
        self.hipGetErrorName = lambda status: f"hipError{status}".encode()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("hip"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            action = getattr(self, f"_{name[3:]}", None)
            status = self.fails.get(name, 0)
            if status == 0 and action is not None:
                status = action(*arguments) or 0
            return status

        return call

    def _SetDevice(self, number: Any) -> None:
        self.current = getattr(number, "value", number)

    def _GetDevice(self, number: Any) -> None:
        number._obj.value = self.current

    def _GetDeviceCount(self, count: Any) -> None:
        count._obj.value = 2

    def _GetDevicePropertiesR0600(self, properties: Any, ordinal: int) -> None:
        properties[1160:1175] = b"gfx942:sramecc+"

    def _DeviceGetAttribute(self, value: Any, attribute: int, ordinal: int) -> None:
        value._obj.value = 304

    def _MemGetInfo(self, free: Any, total: Any) -> None:
        total._obj.value = 1 << 30

    def _Malloc(self, address: Any, size: Any) -> int:
        if size.value > 1 << 30:
            return hip.OUT_OF_MEMORY
        block = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(block)
        self.memory[ctypes.addressof(block)] = block
        return 0

    def _Free(self, address: Any) -> None:
        del self.memory[address.value]

    def _MemcpyAsync(self, to: Any, source: Any, size: Any, kind: int, stream: Any) -> None:
        ctypes.memmove(to, source, size.value)

    def _ModuleLoadData(self, module: Any, code: bytes) -> None:
        module._obj.value = len(self.calls)
        self.modules.add(module._obj.value)

    def _ModuleUnload(self, module: Any) -> None:
        assert not self.is_busy, "a launch may still run the module"
        self.modules.remove(module.value)

    def _EventCreate(self, event: Any) -> None:
        event._obj.value = len(self.calls)
        self.events.add(event._obj.value)

    def _EventDestroy(self, event: Any) -> None:
        self.events.remove(event.value)

    def _StreamSynchronize(self, stream: Any) -> None:
        self.is_busy = False

    def _EventElapsedTime(self, elapsed: Any, start: Any, end: Any) -> None:
        elapsed._obj.value = 2.5

    def _ModuleLaunchKernel(self, function: Any, *arguments: Any) -> None:
        blocks, _, _, threads, _, _, shared, _, pointers, _ = arguments
        self.is_busy = True
        self.launches.append((blocks, threads, shared))
        numbers = [ctypes.cast(p, ctypes.POINTER(ctypes.c_int64))[0] for p in pointers]
        count = min(blocks * threads, 4)
        output, source = (
            np.ctypeslib.as_array((ctypes.c_float * count).from_address(x)) for x in numbers[:2]
        )
        output[:] = source + (numbers[2] if len(numbers) > 2 else 1)


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    library = StandIn()
    monkeypatch.setattr(amd, "load_library", lambda: library)
    opened = Device._open
    monkeypatch.setattr(Device, "_open", {**opened})
    yield library


def test_kernels_run_with_their_arguments_and_shapes(rocm: StandIn) -> None:
    device = Device["AMD"]
    assert device.target.architecture == "gfx942" and device.target.units == 304
    output, source = (Buffer("AMD", 4, dtypes.float32).allocate() for _ in range(2))
    source.copyin(np.arange(4, dtype=np.float32).view(np.uint8).data)
    program = device.runtime("e_4", b"code")
    assert program(output, source, launch=LaunchShape(4)) is None
    assert output.numpy().tolist() == [1, 2, 3, 4]
    assert (
        program(output, source, launch=LaunchShape(3, 128, 64), values=(10,), wait=True) == 2.5e-3
    )
    assert output.numpy().tolist() == [10, 11, 12, 13]
    assert rocm.launches == [(1, 4, 0), (3, 128, 64)]
    assert program(output, source, launch=LaunchShape(0), wait=True) == 0.0
    assert rocm.calls.count("hipModuleLaunchKernel") == 2, "an empty grid launches nothing"
    assert rocm.calls.count("hipEventCreate") == 2 and not rocm.events
    rocm.fails["hipModuleLaunchKernel"] = 719
    with pytest.raises(DeviceError, match="hipError719"):
        program(output, source, launch=LaunchShape(4), wait=True)
    assert rocm.calls.count("hipEventCreate") == 4 and not rocm.events


def test_a_program_that_nothing_uses_is_unloaded_after_its_last_launch(rocm: StandIn) -> None:
    device = Device["AMD"]
    buffers = [Buffer("AMD", 4, dtypes.float32).allocate() for _ in range(2)]
    program = device.runtime("e_4", b"code")
    assert len(rocm.modules) == 1
    program(*buffers, launch=LaunchShape(4))
    Device["AMD:1"]
    assert rocm.is_busy
    del program
    assert not rocm.modules and rocm.current == 1
    rocm.fails["hipModuleLoadData"] = 209
    with pytest.raises(DeviceError, match="hipError209"):
        device.runtime("e_4", b"code")
    assert rocm.calls.count("hipModuleUnload") == 1


def test_copies_between_gpus_do_not_go_through_the_host(rocm: StandIn) -> None:
    first, second = Buffer("AMD", 4, dtypes.float32), Buffer("AMD:1", 4, dtypes.float32)
    first.allocate().copyin(np.arange(4, dtype=np.float32).view(np.uint8).data)
    second.allocate()
    before = rocm.calls.count("hipMemcpyAsync")
    allocators = Device["AMD:1"].allocator, Device["AMD"].allocator
    assert allocators[0].copy_from(second.handle, allocators[1], first.handle, 16)
    assert rocm.calls.count("hipMemcpyAsync") == before + 1
    assert second.numpy().tolist() == [0, 1, 2, 3]


def test_a_finalizer_leaves_the_gpu_of_the_thread_and_its_errors_to_the_next_call(
    rocm: StandIn,
) -> None:
    buffers = [Buffer(name, 4, dtypes.float32).allocate() for name in ("AMD", "AMD:1")]
    assert rocm.current == 1
    allocator = Device["AMD"].allocator
    allocator._free(buffers[0].handle, 16)
    assert "hipFree" in rocm.calls and rocm.current == 1
    for status in (700, hip.OUT_OF_MEMORY):
        rocm.fails["hipFree"] = status
        allocator._free(buffers[1].handle, 16)


def test_a_forked_process_is_told_to_be_spawned(rocm: StandIn) -> None:
    buffer = Buffer("AMD", 4, dtypes.float32).allocate()
    hip_of_parent = Device["AMD"].hip
    hip_of_parent._process += 1
    before = len(rocm.calls)
    with pytest.raises(DeviceError, match="AMD was opened before this process was forked.*spawn"):
        buffer.numpy()
    Device["AMD"].allocator._free(buffer.handle, 16)
    assert len(rocm.calls) == before
    hip_of_parent._process -= 1


def test_errors_name_the_call_and_the_last_kernels(rocm: StandIn) -> None:
    device = Device["AMD"]
    buffers = [Buffer("AMD", 4, dtypes.float32).allocate() for _ in range(2)]
    device.runtime("e_bad", b"code")(*buffers, launch=LaunchShape(4))
    rocm.fails["hipStreamSynchronize"] = 700
    with pytest.raises(DeviceError, match="AMD: hipStreamSynchronize failed: hipError700.*e_bad"):
        device.synchronize()
    with pytest.raises(OutOfMemoryError, match="AMD cannot allocate"):
        Buffer("AMD", 1 << 40, dtypes.uint8).allocate()


def test_a_missing_gpu_says_what_to_look_for(rocm: StandIn) -> None:
    with Context(DEVICES_PER_GPU=1), pytest.raises(DeviceError, match="there is no AMD:7.*2 AMD"):
        Device["AMD:7"]
    rocm.fails["hipInit"] = 100
    with pytest.raises(DeviceError, match="ROCm finds no GPU: hipError100.*rocminfo"):
        Device["AMD:1"]


def test_without_rocm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip, "LIBRARIES", ("no_such_library.so",))
    hip.load_library.cache_clear()
    with pytest.raises(DeviceError, match=r"AMD needs ROCm.*libamdhip64"):
        amd.open_device("AMD")
