"""Kernels on the emulator: right ones are right, and each mistake shows."""

from __future__ import annotations

import numpy as np
import pytest

from test.emulator import emulated_cuda, kernels
from test.emulator.compiler import KernelError
from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.cstyle.metal import METAL
from tinygrad.renderer.cstyle.prelude import read_prelude

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
CallError, EmulatedDevice = cuda_calls.CallError, cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow

CHECKED = pytest.mark.parametrize("checked", [False, True], ids=["fast", "checked"])


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def run_row_sum(gpu: EmulatedDevice, source: str, checked: bool = False) -> tuple[np.ndarray, ...]:
    values = np.arange(6 * 300, dtype=np.float32).reshape(6, 300) % 17
    out = np.zeros(6, np.float32)
    target, origin = gpu.upload(out), gpu.upload(values)
    gpu.launch(gpu.load(source, "row_sum", checked=checked), 6, 256, target, origin, 300)
    gpu.synchronize()
    return gpu.download(target, out), values.sum(1)


def run_product(gpu: EmulatedDevice, source: str, checked: bool = False) -> tuple[np.ndarray, ...]:
    n = 128
    rng = np.random.default_rng(0)
    # small integers, whose sums are exact
    a, b = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    pointers = gpu.upload(c), gpu.upload(bfloat16_bits(a)), gpu.upload(bfloat16_bits(b))
    kernel = gpu.load(source, "product", checked=checked)
    blocks = (n // 64, n // 64)
    gpu.launch(kernel, blocks, 128, *pointers, n, shared=kernels.PRODUCT_SHARED_BYTES)
    gpu.synchronize()
    return gpu.download(pointers[0], c), a @ b


@CHECKED
@pytest.mark.usefixtures("both_orders")
def test_right_kernels_are_right(gpu: EmulatedDevice, checked: bool) -> None:
    np.testing.assert_array_equal(*run_row_sum(gpu, kernels.ROW_SUM, checked))
    np.testing.assert_array_equal(*run_product(gpu, kernels.PRODUCT, checked))


def test_a_removed_barrier_gives_a_wrong_sum(gpu: EmulatedDevice) -> None:
    found, expected = run_row_sum(gpu, kernels.without(kernels.ROW_SUM, "parts are written"))
    assert not np.array_equal(found, expected)


@pytest.mark.parametrize(
    "comment",
    [
        "the stage before",
        "the last stage",
        "all threads' copies are there",
        "the stage has been read",
    ],
)
def test_a_removed_wait_or_barrier_gives_a_wrong_product(gpu: EmulatedDevice, comment: str) -> None:
    right = []
    for is_backwards in (False, True):
        with emulated_cuda.order(is_backwards):
            right.append(
                np.array_equal(*run_product(gpu, kernels.without(kernels.PRODUCT, comment)))
            )
    assert not all(right)


@pytest.mark.parametrize("comment", ["all threads' copies are there", "the stage has been read"])
def test_a_race_is_reported(gpu: EmulatedDevice, comment: str) -> None:
    with pytest.raises(CallError, match=r"kernel product on device 6: block .*, thread .*: race"):
        run_product(gpu, kernels.without(kernels.PRODUCT, comment), checked=True)


@CHECKED
def test_a_removed_bound_is_reported(gpu: EmulatedDevice, checked: bool) -> None:
    values = np.ones(100, np.float32)
    target, origin = gpu.upload(values), gpu.upload(values)
    source = kernels.without(kernels.DOUBLE, "bound")
    gpu.launch(gpu.load(source, "double_it", checked=checked), 1, 128, target, origin, 100)
    with pytest.raises(
        CallError, match=r"kernel double_it on device 6: .* allocation of 400 bytes"
    ):
        gpu.synchronize()
    gpu.reset()
    gpu.launch(gpu.load(kernels.DOUBLE, "double_it", checked=checked), 1, 128, target, origin, 100)
    gpu.synchronize()


def run(gpu: EmulatedDevice, body: str, threads: int = 64, checked: bool = False) -> np.ndarray:
    """A kernel with 64 floats `o`, whose thread is `t`."""
    text = f'extern "C" __global__ void test_it(float *o) {{\n int t = threadIdx.x;\n {body}\n}}'
    out = np.zeros(64, np.float32)
    target = gpu.empty(out.nbytes)
    gpu.launch(gpu.load(text, "test_it", checked=checked), 2 if checked else 1, threads, target)
    gpu.synchronize()
    return gpu.download(target, out)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "if (t < 32)\n __syncthreads();",
            "thread 0 waits at the barrier of line 4, thread 32 has",
        ),
        (
            "if (t < 32)\n __syncthreads();\n else\n __syncthreads();",
            "thread 0 waits at the barrier of line 4, thread 32 waits at the barrier of line 6",
        ),
        (
            "if (t != 5) o[t] = __shfl_sync(0xffffffffu, o[t], 0);",
            "thread 0 waits for its warp in line 3, thread 5 has finished",
        ),
        ("o[t] = 1 / (t - t);", "divides an integer by zero"),
        ("o[t] = t + 2147483600;", "a signed integer overflows"),
        (
            "float x[20000]; for (int i = 0; i < 20000; i++) x[i * t % 20000] = o[i % 64];"
            "o[t] = x[(int)o[t] & 1];",
            "do not fit the stack",
        ),
    ],
    ids=["missing", "two", "lane", "division", "overflow", "stack"],
)
def test_a_mistake_is_reported_with_its_place(gpu: EmulatedDevice, body: str, message: str) -> None:
    with pytest.raises(CallError, match=f"kernel test_it on device 6: .*{message}"):
        run(gpu, body)


def test_memory_that_nobody_wrote_is_not_a_number(gpu: EmulatedDevice) -> None:
    assert np.isnan(run(gpu, "o[t] += 1;")).all()
    shared = "__shared__ float s[64]; if (t < 63) s[t] = t; __syncthreads(); o[t] = s[t];"
    # the second time, shared memory has a content
    for _ in range(2):
        found = run(gpu, shared)
        assert found[62] == 62 and np.isnan(found[63])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("o[0] = t;", "race: it writes global memory that another thread wrote"),
        ("if (t == 3) o[0] = blockIdx.x;", "race: it writes global memory that another block"),
        ("if (t == 3) o[0] = blockIdx.x; else if (t == 4) o[1] = o[0];", "race: it reads global"),
        ("float *p = (float *)((char *)o + 2); p[t & 1] = 0;", "not a multiple of 4"),
        (
            "__shared__ float s[64]; s[t] = t; o[0] = s[t ^ 1];",
            "race: it writes shared memory that",
        ),
    ],
)
def test_checks_of_each_access(gpu: EmulatedDevice, body: str, message: str) -> None:
    where = "kernel test_it on device 6: "
    with pytest.raises(CallError, match=f"{where}.*{message}"):
        run(gpu, body, checked=True)


@pytest.mark.parametrize(
    "body",
    [
        "float x = o[t + past]; if (!past) o[t] = x;",
        "float x = past ? 0 : o[t], y = o[t + past]; if (!past) o[t] = x + y;",
    ],
)
def test_a_load_past_the_end_is_reported_though_no_store_uses_it(
    gpu: EmulatedDevice, body: str
) -> None:
    with pytest.raises(CallError, match="past the end of an allocation of 256 bytes"):
        run(gpu, f"if (blockIdx.x) return; int past = t / 63; {body}", checked=True)


def test_what_barriers_and_atomics_order_is_no_race(gpu: EmulatedDevice) -> None:
    body = """
    __shared__ float s[64]; s[t] = t; __syncwarp(); float x = s[t ^ 1]; __syncthreads(); s[t] = x;
    __syncthreads(); x = s[63 - t]; if (blockIdx.x == 0) o[t] = x; __threadfence();
    if (t == 0) { atomicAdd(&o[0], 1.0f); }"""
    found = run(gpu, body, checked=True)
    assert found[0] == 64 and found[1] == 63


@pytest.mark.usefixtures("both_orders")
def test_votes_shuffles_and_barriers_that_count(gpu: EmulatedDevice) -> None:
    body = """
    unsigned odd = __ballot_sync(0xffffffffu, t & 1);
    int down = __shfl_down_sync(0xffffffffu, t, 4), up = __shfl_up_sync(0xffffffffu, t, 4, 8);
    int all = __all_sync(0xffffffffu, t < 32), any = __any_sync(0xffffffffu, t == 40);
    int count = __syncthreads_count(t % 4 == 0);
    if (odd == 0xaaaaaaaau)
      o[t] = down + 100 * up + 10000 * all + 20000 * any + 100000 * count;"""
    t = np.arange(64)
    down = np.where(t % 32 < 28, t + 4, t)
    up = np.where(t % 8 >= 4, t - 4, t)
    expected = down + 100 * up + np.where(t < 32, 10000, 20000) + 100000 * 16
    np.testing.assert_array_equal(run(gpu, body), expected.astype(np.float32))


def test_memory_of_another_device_is_reported(gpus: tuple[EmulatedDevice, EmulatedDevice]) -> None:
    gpu, other = gpus
    values = np.ones(64, np.float32)
    remote = other.upload(values)
    gpu.activate()
    kernel = gpu.load(kernels.DOUBLE, "double_it")
    with pytest.raises(
        CallError, match="kernel double_it on device 6: parameter 1 is memory of device 7"
    ):
        gpu.launch(kernel, 1, 64, gpu.upload(values), remote, 64)
    gpu.reset()
    other.activate()
    with pytest.raises(CallError, match="kernel double_it of device 6 is launched on device 7"):
        other.launch(kernel, 1, 64, remote, remote, 64)


SHUFFLE = """#include <metal_stdlib>
using namespace metal;
{definitions}
kernel void reverse(device {type} *x [[buffer(0)]],
                    uint number [[thread_position_in_threadgroup]]) {{
  x[number] = {function}(x[number], 31 - number);
}}"""


@pytest.mark.parametrize("dtype", METAL.types, ids=str)
def test_shuffles_of_metal_are_of_types_that_its_functions_take(
    gpu: EmulatedDevice, dtype: DType
) -> None:
    # the emulator has a function of its own for this name
    definitions = read_prelude("metal.metal")["warp_shuffle"].replace("warp_shuffle", "reversed")
    texts = {"type": METAL.types[dtype], "definitions": definitions}
    values = (np.arange(32 * dtype.itemsize) * 7 % 251).astype(np.uint8)
    if dtype is dtypes.bool:
        values %= 2
    pointer = gpu.upload(values)
    source = SHUFFLE.format(function="reversed", **texts)
    gpu.launch(gpu.load(source, "reverse", dialect="metal"), 1, 32, pointer)
    gpu.synchronize()
    expected = values.reshape(32, dtype.itemsize)[::-1].reshape(-1)
    np.testing.assert_array_equal(gpu.download(pointer, values), expected)
    if dtype.itemsize == 8 or dtype in {dtypes.bool, dtypes.bfloat16}:
        with pytest.raises(KernelError, match="types? that functions of SIMD groups take"):
            gpu.load(SHUFFLE.format(function="simd_shuffle", **texts), "reverse", dialect="metal")


SUBNORMALS = {
    "metal": """#include <metal_stdlib>
kernel void f(device float *x [[buffer(0)]]) { x[0] = x[0] * x[1]; x[2] = x[2] * 1.0e20f; }""",
    "hip": """extern "C" __global__
void f(float *x) { x[0] = x[0] * x[1]; x[2] = x[2] * 1.0e20f; }""",
}


@pytest.mark.parametrize("dialect", SUBNORMALS)
def test_kernels_of_metal_take_subnormals_for_zero(gpu: EmulatedDevice, dialect: str) -> None:
    values = np.array([1e-30, 1e-10, 1e-40], np.float32)
    pointer = gpu.upload(values)
    gpu.launch(gpu.load(SUBNORMALS[dialect], "f", dialect=dialect), 1, 1, pointer)
    gpu.synchronize()
    found = gpu.download(pointer, values)[::2]
    expected = values[0] * values[1], values[2] * np.float32(1e20)
    np.testing.assert_array_equal(found, [0, 0] if dialect == "metal" else expected)
    # the thread of the program computes as before
    assert float(values[0] * values[1]) > 0
