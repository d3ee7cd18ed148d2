"""Bulk copies of boxes of a tensor: their maps, mbarriers, and what goes wrong with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from test.emulator import emulated_cuda
from test.emulator.test_async_products import batch
from test.hardware.intrinsics import BOX_SOURCES
from tinygrad import Device, Tensor, TinyJit, dtypes
from tinygrad.execution import realize
from tinygrad.renderer import ProgramSpec
from tinygrad.renderer.matrix_instruction import WGMMA
from tinygrad.renderer.tensor_map import TensorMap

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
CallError, EmulatedDevice = cuda_calls.CallError, cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

DEVICE = "CUDA:5"
MAP = TensorMap(2, 0, (64, 16), (128,), (64, 16))
KERNEL = """
struct TensorMap { alignas(64) unsigned long long bits[16]; };
extern "C" __global__ void __launch_bounds__(64) test_it(unsigned short *out,
    const unsigned short *a, const __grid_constant__ TensorMap map) {
  __shared__ __align__(1024) unsigned short s[2048];
  __shared__ unsigned long long m[2];
  int t = threadIdx.x;
  if (t == 0) mbarrier_init(m, 1);
  async_fence();
  block_barrier();
  if (t == 0) mbarrier_expect(m, 2048);
  if (t == 0) copy_box_2d(s, m, map, 0, 0);
  mbarrier_wait(m, 0);
  for (int i = 0; i < 16; i++) out[i * 64 + t] = s[i * 64 + (t ^ i % 8 * 8)];
}
"""


def run(
    gpu: EmulatedDevice, source: str, described: TensorMap = MAP, checked: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel copies of an array, and the array."""
    values = np.arange(1024, dtype=np.uint16)
    out, a = gpu.upload(np.zeros_like(values)), gpu.upload(values)
    kernel = gpu.load(source, "test_it", checked=checked)
    threads = 256 if "__launch_bounds__(256)" in source else 64
    gpu.launch(kernel, 1, threads, out, a, maps=((1, described),))
    gpu.synchronize()
    return gpu.download(out, values), values


@pytest.mark.parametrize("checked", [False, True])
def test_a_box_is_copied(gpu: EmulatedDevice, both_orders: None, checked: bool) -> None:
    np.testing.assert_array_equal(*run(gpu, KERNEL, checked=checked))


INIT, EXPECT = "if (t == 0) mbarrier_init(m, 1);", "if (t == 0) mbarrier_expect(m, 2048);"
COPY, WAIT = "if (t == 0) copy_box_2d(s, m, map, 0, 0);", "mbarrier_wait(m, 0);"
FAULTS = {
    "is not in shared memory": (INIT, "if (t == 0) mbarrier_init((unsigned long long *)out, 1);"),
    "mbarrier is not a multiple of 8": ("mbarrier_init(m,", "mbarrier_init((char *)m + 4,"),
    "is made twice": (INIT, "mbarrier_init(m, 1);"),
    "no mbarrier_init": (INIT, ""),
    "no async_fence": ("async_fence();", ""),
    "more threads arrive": (EXPECT, "mbarrier_expect(m, 2048);"),
    "more bytes are copied": ("(m, 2048)", "(m, 2032)"),
    "for 0 threads and 16 bytes": ("(m, 2048)", "(m, 2064)"),
    "2\\^20 - 1 bytes": ("(m, 2048)", "(m, 1 << 20)"),
    "1 threads and -2048 bytes": (EXPECT, ""),
    "0 threads and 2048 bytes": (COPY, ""),
    "not a multiple of 128": ("copy_box_2d(s,", "copy_box_2d(s + 32,"),
    "out of shared memory": ("copy_box_2d(s,", "copy_box_2d(s + 2048,"),
    "rank": ("copy_box_2d(s, m, map, 0, 0)", "copy_box_3d(s, m, map, 0, 0, 0)"),
    "no tensor map": ("copy_box_2d(s, m, map,", "copy_box_2d(s, m, *(TensorMap *)a,"),
    "block ends before": (WAIT, "return;"),
    "has not waited": (WAIT, "if (t != 5) mbarrier_wait(m, 0);"),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_faulty_copy_is_reported(gpu: EmulatedDevice, message: str) -> None:
    old, new = FAULTS[message]
    assert KERNEL.count(old) == 1
    with pytest.raises(CallError, match=message):
        run(gpu, KERNEL.replace(old, new), checked="waited" in message)


ROLES = """
struct TensorMap { alignas(64) unsigned long long bits[16]; };
extern "C" __global__ void __launch_bounds__(256) test_it(unsigned short *out,
    const unsigned short *a, const __grid_constant__ TensorMap map) {
  __shared__ __align__(1024) unsigned short s[1024];
  __shared__ unsigned long long m[2];
  int t = threadIdx.x, first = t / 64, column = t % 64;
  if (t == 0) mbarrier_init(m, 1);
  if (t == 0) mbarrier_init(m + 1, 4);
  async_fence();
  block_barrier();
  if (t >= 128) {
    release_registers<40>();
    for (int k = 0; k < (t == 128 ? 2 : 0); k++) {
      mbarrier_wait(m + 1, k ^ 1);
      mbarrier_expect(m, 2048);
      copy_box_2d(s, m, map, 0, 0);
    }
  } else {
    acquire_registers<256>();
    for (int k = 0; k < 2; k++) {
      mbarrier_wait(m, k);
      for (int i = first; i < 16; i += 2) out[i * 64 + column] = s[i * 64 + (column ^ i % 8 * 8)];
      __syncwarp();
      if (t % 32 == 0 && k == 0) mbarrier_arrive(m + 1);
    }
  }
}
"""
ARRIVE = "if (t % 32 == 0 && k == 0) mbarrier_arrive(m + 1);"
ROLE_FAULTS = {
    "another warp made, and has not waited": ("block_barrier();", ""),
    "ends before 2 threads and 0 bytes": ("mbarrier_init(m + 1, 4)", "mbarrier_init(m + 1, 3)"),
    "waits at the mbarrier of line 15 for 1 threads": ("(m + 1, 4)", "(m + 1, 5)"),
    "another warp may still be reading": ("mbarrier_wait(m, k);", f"mbarrier_wait(m, k); {ARRIVE}"),
    "in a block that its cluster has not": ("arrive(m + 1)", "arrive_in(m + 1, 1)"),
    "thread 0 waits for 256 registers": ("release_registers<40>();", ""),
    "not a multiple of 8 from 24 to 256": ("registers<40>", "registers<44>"),
    "releases registers, but has 248 and wants 256": ("registers<40>", "registers<256>"),
}


@pytest.mark.parametrize("checked", [False, True])
def test_a_role_copies_what_others_read(
    gpu: EmulatedDevice, both_orders: None, checked: bool
) -> None:
    np.testing.assert_array_equal(*run(gpu, ROLES, checked=checked))


@pytest.mark.parametrize("message", ROLE_FAULTS)
def test_a_faulty_role_is_reported(gpu: EmulatedDevice, message: str) -> None:
    old, new = ROLE_FAULTS[message]
    source = ROLES.replace(ARRIVE, "") if ARRIVE in new else ROLES
    assert source.count(old) == 1
    with pytest.raises(CallError, match=message):
        run(gpu, source.replace(old, new), checked="reading" in message)


def test_a_box_past_the_end_of_the_memory_is_reported(gpu: EmulatedDevice) -> None:
    with pytest.raises(CallError, match="a row of a box has 128 bytes .* past the end"):
        run(gpu, KERNEL, replace(MAP, sizes=(64, 17), offset=128))


MAPS = {
    "address of the tensor is not a multiple of 16": replace(MAP, offset=8),
    "a stride is not a multiple of 16": replace(MAP, sizes=(64, 8), strides=(136,)),
    "a stride does not include": replace(MAP, strides=(112,)),
    "a side of the box is not between 1 and 256": replace(MAP, box=(64, 257)),
    "wider than a swizzled row of 128 bytes": replace(MAP, box=(128, 4)),
    "a size is not between 1 and 2.32": replace(MAP, sizes=(64, 0)),
    "the rank is not between 1 and 5": TensorMap(
        2, 0, (64, 2, 1, 1, 1, 1), (128, 256, 256, 256, 256), (64, 2, 1, 1, 1, 1)
    ),
}


@pytest.mark.parametrize("message", MAPS)
def test_the_driver_rejects_what_code_generation_does_not_make(
    gpu: EmulatedDevice, message: str
) -> None:
    described = MAPS[message]
    assert MAP.can_be_encoded and not described.can_be_encoded
    with pytest.raises(RuntimeError, match="the driver rejects TensorMap"):
        run(gpu, KERNEL, described)
    assert message.replace(".", "^") in emulated_cuda.take_reports()


def test_maps_of_every_rank_can_be_encoded() -> None:
    assert [len(x.sizes) for x in BOX_SOURCES] == [2, 3, 4, 5]
    assert all(x.can_be_encoded for x in BOX_SOURCES)


@pytest.fixture
def kernels_run(emulated_driver: None, monkeypatch: pytest.MonkeyPatch) -> list[ProgramSpec]:
    """The kernels that ran on a device whose products all read shared memory."""
    target = replace(Device[DEVICE].target, matrix=WGMMA)
    monkeypatch.setattr(Device[DEVICE], "_target", target)
    found: list[ProgramSpec] = []
    call = realize.CompiledRunner.__call__

    def kept(self, *args, **options):
        found.append(self.spec)
        return call(self, *args, **options)

    monkeypatch.setattr(realize.CompiledRunner, "__call__", kept)
    return found


def operands(count: int, *shapes: tuple[int, int]) -> list[list[Tensor]]:
    """Small integers in bfloat16, `count` times for each shape."""
    rng = np.random.default_rng(1)
    return [
        [Tensor(rng.integers(-2, 3, shape).astype(np.float32)).to(DEVICE) for shape in shapes]
        for _ in range(count)
    ]


def uses_boxes(kernels: list[ProgramSpec]) -> bool:
    found = [x for x in kernels if "wgmma" in x.source]
    assert len(found) == 1
    kernels.clear()
    return "copy_box" in found[0].source


def test_replays_with_other_buffers_copy_from_these(kernels_run: list[ProgramSpec]) -> None:
    step = TinyJit(lambda a, b: (a @ b).cast(dtypes.float32).realize())
    for number, (a, b) in enumerate(operands(5, (128, 72), (72, 64))):
        x, y = (v.cast(dtypes.bfloat16).realize() for v in (a, b))
        np.testing.assert_array_equal(step(x, y).numpy(), a.numpy() @ b.numpy())
        assert number or uses_boxes(kernels_run)


def test_views_at_unaligned_addresses_are_copied_by_the_threads(
    kernels_run: list[ProgramSpec],
) -> None:
    ((a, b),) = operands(1, (131, 72), (72, 64))
    x, y = (v.cast(dtypes.bfloat16).realize() for v in (a, b))
    # 144 bytes, then 2
    for first, in_bulk in ((72, True), (1, False)):
        view = (v.reshape(-1)[first : first + 128 * 72].reshape(128, 72) for v in (x, a))
        narrow, wide = view
        result = (narrow @ y).cast(dtypes.float32)
        np.testing.assert_array_equal(result.numpy(), wide.numpy() @ b.numpy())
        assert uses_boxes(kernels_run) == in_bulk


def test_a_batch_is_a_dimension_of_the_map(kernels_run: list[ProgramSpec]) -> None:
    ((a, b),) = operands(1, (192, 80), (240, 72))
    x, y = (v.cast(dtypes.bfloat16).realize() for v in (a, b))
    expected = a.numpy().reshape(3, 64, 80) @ b.numpy().reshape(3, 80, 72)
    result = batch(x, y).cast(dtypes.float32)
    np.testing.assert_array_equal(result.numpy(), expected)
    assert uses_boxes(kernels_run)
