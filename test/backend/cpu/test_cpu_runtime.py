"""The CPU runtime: compilers, linker, kernels, copies and replay."""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.devices import only_cpu
from tinygrad import diskcache
from tinygrad.device import Buffer, CompileError, Device, DeviceError, copy_buffer
from tinygrad.dtype import dtypes
from tinygrad.renderer import LaunchShape
from tinygrad.runtime.cpu import CPUProgram
from tinygrad.runtime.support import c_compiler, llvm, native
from tinygrad.runtime.support.replay import Replay
from tinygrad.runtime.support.worker_pool import SERIAL_COPY_BYTES, worker_pool
from tinygrad.settings import Context

pytestmark = only_cpu

# Adds value 0 to items [begin, end) of buffer 0.
ADD_IR = """
define void @add(ptr %buffers, ptr %values, i64 %begin, i64 %end) {
entry:
  %data = load ptr, ptr %buffers
  %value = load i64, ptr %values
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %place = getelementptr i64, ptr %data, i64 %i
  %old = load i64, ptr %place
  %new = add i64 %old, %value
  store i64 %new, ptr %place
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}
"""

ADD_C = """
#include <stdint.h>
void add(void **buffers, const int64_t *values, int64_t begin, int64_t end) {
  int64_t *data = (int64_t *)buffers[0];
  for (int64_t i = begin; i < end; i++) data[i] += values[0];
}
"""


def integers(size: int, device: str = "CPU") -> Buffer:
    """A buffer of zeros."""
    buffer = Buffer(device, size, dtypes.int64).allocate()
    return buffer.copyin(memoryview(bytes(buffer.nbytes)))


def add_program() -> CPUProgram:
    return CPUProgram("add", llvm.compile_llvm(ADD_IR))


# ---- compiling ----


class HeapInfo(ctypes.Structure):
    """Statistics of the heap of glibc, see mallinfo2(3)."""

    _fields_ = [(f"other{i}" if i != 7 else "used", ctypes.c_size_t) for i in range(10)]


def heap_bytes() -> int:
    function = ctypes.CDLL(None).mallinfo2
    function.restype = HeapInfo
    gc.collect()
    return int(function().used)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc")
def test_unloaded_kernels_leak_no_memory():
    def make() -> None:
        for _ in range(5):
            code = llvm.emit_object(ADD_IR)
        for _ in range(llvm.LIBRARIES_PER_LINKER):
            assert llvm.link(code, "add")["add"]

    make()
    before = heap_bytes()
    make()
    assert heap_bytes() - before < 100_000


@pytest.mark.parametrize("compiled", [llvm.compile_llvm(ADD_IR), c_compiler.compile_c(ADD_C)])
def test_a_kernel_runs_over_its_grid(compiled: bytes):
    program = CPUProgram("add", compiled)
    data = integers(1000)
    assert program(data, launch=LaunchShape(600), values=(5,)) is None
    elapsed = program(data, launch=LaunchShape(1), values=(2,), wait=True)
    assert elapsed is not None and elapsed > 0
    assert data.numpy().tolist() == [7] + [5] * 599 + [0] * 400


def test_an_error_in_llvm_ir_shows_its_line():
    source = "define void @k() {\n  %a = add i32 1, 2\n  %b = fadd i32 %a, %a\n  ret void\n}"
    with pytest.raises(CompileError, match=r"line 3: invalid operand type") as caught:
        llvm.compile_llvm(source)
    assert "3 |   %b = fadd i32 %a, %a" in str(caught.value)
    assert "ret void" not in str(caught.value)


def test_an_invalid_module_is_rejected():
    source = "define i32 @k() {\n  %a = add i32 %b, 1\n  %b = add i32 1, 1\n  ret i32 %a\n}"
    with pytest.raises(CompileError, match="does not dominate"):
        llvm.compile_llvm(source)


def test_an_error_in_c_shows_the_compilers_message():
    with pytest.raises(CompileError, match="undeclared"):
        c_compiler.compile_c("void k(void) { nothing = 1; }")


def test_a_missing_c_compiler_names_the_fix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DeviceError, match="no C compiler found .* CPU_LLVM at 1"):
        c_compiler.find_compiler.__wrapped__()


def test_a_missing_function_is_an_error():
    with pytest.raises(CompileError, match="cannot link nothing"):
        CPUProgram("nothing", llvm.compile_llvm(ADD_IR))


def test_bytes_that_are_not_an_object_file_are_an_error():
    with pytest.raises(CompileError, match="cannot link add"):
        CPUProgram("add", b"not an object file")


@pytest.mark.parametrize("flags", [llvm.Flags(), llvm.Flags(0, False, False, False)])
def test_compiling_is_deterministic(flags: llvm.Flags):
    assert llvm.emit_object(ADD_IR, flags) == llvm.emit_object(ADD_IR, flags)


def test_assembly_is_text():
    assert "add:" in llvm.emit_assembly(ADD_IR)


def test_math_and_memory_functions_resolve():
    source = """
declare float @fmaf(float, float, float)
declare double @exp2(double)
declare ptr @memset(ptr, i32, i64)
declare ptr @memcpy(ptr, ptr, i64)
define void @k(ptr %buffers, ptr %values, i64 %begin, i64 %end) {
  %data = load ptr, ptr %buffers
  %one = getelementptr i8, ptr %data, i64 8
  %two = getelementptr i8, ptr %data, i64 16
  %count = load i64, ptr %values
  %x = load double, ptr %data
  %y = call double @exp2(double %x)
  store double %y, ptr %data
  %f = call float @fmaf(float 2.0, float 3.0, float 4.0)
  store float %f, ptr %one
  %set = call ptr @memset(ptr %two, i32 1, i64 %count)
  %three = getelementptr i8, ptr %two, i64 %count
  %copied = call ptr @memcpy(ptr %three, ptr %one, i64 4)
  ret void
}
"""
    data = Buffer("CPU", 32, dtypes.uint8).allocate()
    data.copyin(memoryview(struct.pack("4d", 3.0, 0.0, 0.0, 0.0)))
    CPUProgram("k", llvm.compile_llvm(source))(data, launch=LaunchShape(1), values=(8,))
    raw = data.numpy().tobytes()
    assert struct.unpack("d", raw[:8]) == (8.0,)
    assert struct.unpack("f", raw[8:12]) == (10.0,)
    assert raw[16:28] == bytes([1] * 8) + raw[8:12]


# ---- the cache ----


def test_compiled_kernels_are_cached(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    code = llvm.compile_llvm(ADD_IR)

    def fail(*args: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(llvm, "emit_object", fail)
    assert llvm.compile_llvm(ADD_IR) == code
    with pytest.raises(AssertionError, match="compiled again"):
        llvm.compile_llvm(ADD_IR, llvm.Flags(speed_level=1))
    with Context(CACHELEVEL=0), pytest.raises(AssertionError, match="compiled again"):
        llvm.compile_llvm(ADD_IR)


@pytest.mark.parametrize("damage", [b"", b"\x00" * 100, None])
def test_a_damaged_cache_entry_is_recompiled(empty_cache: Path, damage: bytes | None):
    code = llvm.compile_llvm(ADD_IR)
    entries = [path for path in Path(empty_cache).rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:-7] if damage is None else damage)
    assert llvm.compile_llvm(ADD_IR) == code
    data = integers(3)
    add_program()(data, launch=LaunchShape(3), values=(1,))
    assert data.numpy().tolist() == [1, 1, 1]


def test_compiled_c_is_cached(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    code = c_compiler.compile_c(ADD_C)
    monkeypatch.setattr(c_compiler, "_run_compiler", lambda path, source: b"new")
    assert c_compiler.compile_c(ADD_C) == code
    with Context(CACHELEVEL=0):
        assert c_compiler.compile_c(ADD_C) == b"new"
    diskcache.clear("c")
    assert c_compiler.compile_c(ADD_C) == b"new"


# ---- conversions of float16 ----


def interesting_floats() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Every float16, the midpoints between neighbours, and the float64 next to each midpoint."""
    table = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    finite = np.sort(table[np.isfinite(table)])
    middle = (finite[:-1] + finite[1:]) / 2
    beside = [np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)]
    edges = [65519.999, 65520.0, 1e300, -1e300, 1e-300, 1e-40, math.inf, -math.inf]
    return np.concatenate([table, middle, *beside, np.array(edges)])


# The C ABI of float16 differs between systems; arrays avoid it.
WRAPPERS = "".join(
    f"""
define void @from_{source}_to_{target}(ptr %from, ptr %to, i64 %count) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %in = getelementptr {source}, ptr %from, i64 %i
  %out = getelementptr {target}, ptr %to, i64 %i
  %x = load {source}, ptr %in
  %y = call {target} @{builtin}({source} %x)
  store {target} %y, ptr %out
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}}
"""
    for source, target, builtin in (
        ("float", "half", "__truncsfhf2"),
        ("double", "half", "__truncdfhf2"),
        ("half", "float", "__extendhfsf2"),
    )
)


def convert(source: str, target: str, values: np.ndarray[Any, Any], to: Any) -> Any:
    """Calls a builtin for each value."""
    name = f"from_{source}_to_{target}"
    code = llvm.link(llvm.compile_llvm(native.load_ir("half") + WRAPPERS), name)
    result = np.zeros(len(values), to)
    arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function = ctypes.CFUNCTYPE(None, *arguments)(code[name])
    function(values.ctypes.data, result.ctypes.data, len(values))
    return result


@pytest.mark.parametrize("source", ["float", "double"])
def test_builtin_truncation_to_half_rounds_once(source: str):
    with np.errstate(over="ignore", invalid="ignore"):
        values = interesting_floats().astype(np.float32 if source == "float" else np.float64)
        expected = values.astype(np.float16)
    result = convert(source, "half", values, np.float16)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    ok = ~np.isnan(expected)
    np.testing.assert_array_equal(result[ok].view(np.uint16), expected[ok].view(np.uint16))


def test_builtin_extension_of_half_is_exact():
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    expected = values.astype(np.float32)
    result = convert("half", "float", values, np.float32)
    ok = ~np.isnan(expected)
    np.testing.assert_array_equal(result[ok].view(np.uint32), expected[ok].view(np.uint32))
    assert np.isnan(result[~ok]).all()


# ---- copies ----

SIZES = (1, 63, 4096, SERIAL_COPY_BYTES - 1, SERIAL_COPY_BYTES + 1, (32 << 20) + 77)


@pytest.mark.sample(3)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("to_offset", "from_offset"), [(0, 0), (0, 3), (5, 0)])
def test_copies_between_cpu_devices_are_exact(size: int, to_offset: int, from_offset: int):
    values = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    source = Buffer("CPU", size + 8, dtypes.uint8).allocate().view(size, dtypes.uint8, from_offset)
    source.copyin(values.data)
    whole = Buffer("CPU:1", size + 8, dtypes.uint8).allocate()
    np.asarray(whole.allocation)[:] = 0xAA
    copy_buffer(whole.view(size, dtypes.uint8, to_offset), source)
    result = whole.numpy()
    np.testing.assert_array_equal(result[to_offset : to_offset + size], values)
    rest = [*result[:to_offset], *result[to_offset + size :]]
    assert set(rest) == {0xAA}


@pytest.mark.sample(2)
@pytest.mark.parametrize("shift", [-64, -1, 1, 64, 4096])
@pytest.mark.parametrize("size", [100, SERIAL_COPY_BYTES * 2, 33 << 20])
def test_copies_between_overlapping_views_are_exact(size: int, shift: int):
    values = np.random.default_rng(0).integers(0, 256, size + 8192, np.uint8)
    base = Buffer("CPU", size + 8192, dtypes.uint8).allocate().copyin(values.data)
    copy_buffer(base.view(size, dtypes.uint8, 4096 + shift), base.view(size, dtypes.uint8, 4096))
    expected = values.copy()
    expected[4096 + shift : 4096 + shift + size] = values[4096 : 4096 + size]
    np.testing.assert_array_equal(base.numpy(), expected)


# ---- replay ----


def test_a_replay_runs_its_records_in_order():
    program = add_program()
    device = Device["CPU"]
    assert device.replay is not None
    replay = device.replay()
    data, copy = integers(5000), integers(5000, "CPU:1")
    step, other = replay.add_variable(1), replay.add_variable(10)
    grids = {size: replay.add_variable(size) for size in (5000, 2500, 100)}
    replay.add(replay.make_launch(program, [data], [step], grid=grids[5000]))
    replay.add(replay.make_copy(copy, data))
    replay.add(replay.make_launch(program, [data], [other], grid=grids[2500]), parallel=False)
    end = copy.view(100, dtypes.int64, 8 * 4900)
    replay.add(replay.make_launch(program, [end], [other], grid=grids[100]))
    assert len(replay) == 4
    for _ in range(3):
        replay.run()
    assert data.numpy().tolist() == [33] * 2500 + [3] * 2500
    expected = [23] * 2500 + [3] * 2400 + [13] * 100
    assert copy.numpy().tolist() == expected


def test_buffers_and_values_of_a_replay_can_be_replaced():
    program = add_program()
    replay = Replay(worker_pool())
    first, second = integers(10), integers(10)
    variable = replay.add_variable(1)
    grid = replay.add_variable(8)
    view = first.view(8, dtypes.int64, 16)
    replay.add(replay.make_launch(program, [view], [variable], grid=grid))
    replay.run()
    replay.set_buffer(replay.get_slot(first), second.address)
    replay.set_value(variable, 5)
    replay.set_value(grid, 2)
    replay.run()
    assert first.numpy().tolist() == [0, 0] + [1] * 8
    assert second.numpy().tolist() == [0, 0, 5, 5] + [0] * 6


@pytest.mark.parametrize("parallel", [True, False])
def test_a_record_of_several_launches_runs_each_of_them(parallel: bool):
    program = add_program()
    replay = Replay(worker_pool())
    members = [integers(3000, device) for device in ("CPU", "CPU:1", "CPU:2", "CPU")]
    steps = [replay.add_variable(step) for step in (1, 10, 100, 1000)]
    grids = [replay.add_variable(grid) for grid in (3000, 1700, 3, 0)]
    copied, origin = integers(50), integers(50)
    origin.copyin(np.arange(50, dtype=np.int64).data.cast("B"))
    launches = [
        replay.make_launch(program, [data], [step], grid=grid, max_pieces=most)
        for data, step, grid, most in zip(members, steps, grids, (None, 5, 1, None), strict=True)
    ]
    replay.add(*launches, replay.make_copy(copied, origin), parallel=parallel)
    assert len(replay) == 1
    replay.run()
    replay.set_value(grids[0], 2)
    replay.set_value(grids[3], 1)
    replay.set_value(steps[0], 5)
    replay.run()
    found = [data.numpy().tolist() for data in members]
    assert found[0] == [6, 6] + [1] * 2998
    assert found[1] == [20] * 1700 + [0] * 1300
    assert found[2] == [200] * 3 + [0] * 2997
    assert found[3] == [1000] + [0] * 2999
    assert copied.numpy().tolist() == list(range(50))


def test_a_replay_can_grow_after_a_run():
    program = add_program()
    replay = Replay(worker_pool())
    data = integers(4)
    variable = replay.add_variable(1)
    replay.add(replay.make_launch(program, [data], [variable], grid=replay.add_variable(4)))
    replay.run()
    ten, one = replay.add_variable(10), replay.add_variable(1)
    replay.add(replay.make_launch(program, [data], [ten], grid=one))
    replay.run()
    assert data.numpy().tolist() == [12, 2, 2, 2]


def test_an_empty_replay_does_nothing():
    replay = Replay(worker_pool())
    replay.run()
    assert replay.run_timed() == []


def test_a_replay_measures_each_record():
    program = add_program()
    replay = Replay(worker_pool())
    small, large = integers(1), integers(1 << 20)
    variable = replay.add_variable(1)
    for data in (small, large):
        grid = replay.add_variable(data.size)
        replay.add(replay.make_launch(program, [data], [variable], grid=grid))
    views = [large.view(1 << 19, dtypes.int64, offset) for offset in (0, 8)]
    replay.add(replay.make_copy(*views))
    elapsed = replay.run_timed()
    assert len(elapsed) == 3
    assert 0 <= elapsed[0] < elapsed[1]
    assert large.numpy().tolist() == [1] * (1 << 20)


def test_a_replay_keeps_programs_and_buffers_alive():
    replay = Replay(worker_pool())
    data = integers(3)
    address = data.address
    four, three = replay.add_variable(4), replay.add_variable(3)
    replay.add(replay.make_launch(add_program(), [data], [four], grid=three))
    del data
    gc.collect()
    others = [integers(3) for _ in range(5)]
    assert address not in [other.address for other in others]
    replay.run()
    assert list((ctypes.c_int64 * 3).from_address(address)) == [4, 4, 4]
    assert all(other.numpy().tolist() == [0, 0, 0] for other in others)


def test_records_see_all_writes_of_earlier_records():
    # item i of each kernel reads an item that another thread wrote in the previous record
    source = """
define void @shift(ptr %buffers, ptr %values, i64 %begin, i64 %end) {
entry:
  %to = load ptr, ptr %buffers
  %from.slot = getelementptr ptr, ptr %buffers, i64 1
  %from = load ptr, ptr %from.slot
  %grid = load i64, ptr %values
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %next = add i64 %i, 1
  %j = srem i64 %next, %grid
  %in = getelementptr i64, ptr %from, i64 %j
  %out = getelementptr i64, ptr %to, i64 %i
  %x = load i64, ptr %in
  %y = add i64 %x, 1
  store i64 %y, ptr %out
  br label %loop
done:
  ret void
}
"""
    program = CPUProgram("shift", llvm.compile_llvm(source))
    replay = Replay(worker_pool())
    size = 64
    pair = integers(size), integers(size)
    pair[0].copyin(np.arange(size, dtype=np.int64).data.cast("B"))
    variable = replay.add_variable(size)
    for number in range(1000):
        to, origin = (pair[1], pair[0]) if number % 2 == 0 else pair
        replay.add(replay.make_launch(program, [to, origin], [variable], grid=variable))
    replay.run()
    expected = [(i + 1000) % size + 1000 for i in range(size)]
    assert pair[0].numpy().tolist() == expected


def test_kernels_can_be_unloaded_while_others_run():
    data = integers(100)
    kept = add_program()
    for number in itertools.count():
        CPUProgram("add", llvm.compile_llvm(ADD_IR))(data, launch=LaunchShape(100), values=(1,))
        if number == 50:
            break
    gc.collect()
    kept(data, launch=LaunchShape(100), values=(1,))
    assert data.numpy().tolist() == [52] * 100
