"""Matrix instructions of all vendors: the emulator's lane maps are those of the code generator.

The emulator has maps of its own, from the vendors' drawings, so two derivations are compared.
"""

from __future__ import annotations

import numpy as np
import pytest

from test.emulator import kernels
from tinygrad.dtype import dtypes
from tinygrad.renderer.matrix_instruction import CDNA, NVIDIA, RDNA3, LaneMap, MatrixInstruction

cuda_calls = pytest.importorskip("test.emulator.cuda_calls", reason="needs cuda-bindings")
EmulatedDevice = cuda_calls.EmulatedDevice

pytestmark = pytest.mark.slow


def to_bits(values: np.ndarray, instruction: MatrixInstruction) -> np.ndarray:
    """Elements of an operand as the kernel reads them."""
    if instruction.operand is dtypes.float16:
        return values.astype(np.float16).view(np.uint16)
    if instruction.operand is dtypes.bfloat16:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def fragments(matrix: np.ndarray, of: LaneMap, lanes: int) -> np.ndarray:
    """The registers of each lane, shape (lanes, registers)."""
    at = [[of.position(lane, i) for i in range(of.count)] for lane in range(lanes)]
    return np.array([[matrix[position] for position in row] for row in at])


def kernel_text(instruction: MatrixInstruction) -> str:
    """A kernel of one warp, with the registers of each lane in memory."""
    is_nvidia = instruction in NVIDIA
    is_half = instruction.operand.itemsize == 2
    element = "unsigned" if is_nvidia and is_half else "unsigned short" if is_half else "float"
    packed = 2 if is_nvidia and is_half else 1
    a, b, c = instruction.a.count // packed, instruction.b.count // packed, instruction.c.count
    return f"""
struct A {{ {element} lane[{a}]; }};
struct B {{ {element} lane[{b}]; }};
struct C {{ float lane[{c}]; }};
extern "C" __global__ void multiply(C *c, const A *a, const B *b) {{
  int lane = thread_number();
  c[lane] = {instruction.name}(a[lane], b[lane], c[lane]);
}}"""


def run(gpu: EmulatedDevice, instruction: MatrixInstruction, *operands: np.ndarray) -> np.ndarray:
    """The fragments of `c + a @ b`, of those of `c`, `a` and `b`."""
    lanes = instruction.lanes
    pointers = [gpu.upload(x) for x in operands]
    dialect, number = (
        ("cuda", "threadIdx.x")
        if instruction in NVIDIA
        else ("hip", "__builtin_amdgcn_workitem_id_x()")
    )
    source = kernel_text(instruction).replace("thread_number()", number)
    kernel = gpu.load(source, "multiply", dialect=dialect, warp=lanes)
    gpu.launch(kernel, 1, lanes, *pointers)
    gpu.synchronize()
    return gpu.download(pointers[0], operands[0])


@pytest.mark.parametrize(
    "instruction", [*NVIDIA, *CDNA, *RDNA3], ids=lambda instruction: instruction.name
)
def test_lane_maps_are_those_of_the_code_generator(
    gpu: EmulatedDevice, instruction: MatrixInstruction
) -> None:
    rng = np.random.default_rng(0)
    m, n, k, lanes = instruction.m, instruction.n, instruction.k, instruction.lanes
    # small integers, whose sums are exact
    shapes = ((m, k), (k, n), (m, n))
    a, b, c = (rng.integers(-8, 9, shape).astype(np.float32) for shape in shapes)
    left, right = (
        to_bits(fragments(x, of, lanes), instruction)
        for x, of in ((a, instruction.a), (b, instruction.b))
    )
    found = run(gpu, instruction, fragments(c, instruction.c, lanes), left, right)
    np.testing.assert_array_equal(found, fragments(c + a @ b, instruction.c, lanes))
    if instruction not in RDNA3:
        return
    # the other half of the warp has to hold the same operands
    right[20, 3] ^= 1 << 14
    with pytest.raises(cuda_calls.CallError, match="different copies of an element"):
        run(gpu, instruction, fragments(c, instruction.c, lanes), left, right)


@pytest.mark.parametrize("checked", [False, True], ids=["fast", "checked"])
def test_a_product_of_simdgroup_matrices(gpu: EmulatedDevice, checked: bool) -> None:
    source, n = (kernels.SAMPLES / "product.metal").read_text(), 64
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (n, n)).astype(np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    pointers = [gpu.upload(c)]
    pointers += [gpu.upload((x.view(np.uint32) >> 16).astype(np.uint16)) for x in (a, b)]

    def product(text: str) -> np.ndarray:
        kernel = gpu.load(text, "product", dialect="metal", checked=checked)
        gpu.launch(kernel, (n // 32, n // 32), 128, *pointers, n)
        gpu.synchronize()
        return gpu.download(pointers[0], c)

    np.testing.assert_array_equal(product(source), a @ b)
    without = kernels.without(source, "the operands are there")
    if checked:
        with pytest.raises(cuda_calls.CallError, match="kernel product on device 6: .* race"):
            product(without)
    else:
        assert not np.array_equal(product(without), a @ b)


PRODUCT = """
extern "C" __global__ void __launch_bounds__(128) test_it(float *out, const unsigned short *a) {
  __shared__ __align__(1024) unsigned short s[8192];
  int t = threadIdx.x;
  float sums[32];
  for (int i = t; i < 8192; i += 128) s[i] = a[i];
  for (int i = 0; i < 32; i++) sums[i] = 1;
  async_fence();
  block_barrier();
  wgmma_begin();
  wgmma_m64n64k16_bf16<0, 0>(sums, matrix_descriptor(s, 8192), matrix_descriptor(s + 4096, 8192));
  wgmma_commit();
  wgmma_wait<0>(sums);
  for (int i = 0; i < 32; i++) out[t * 32 + i] = sums[i];
}
"""
COMMIT = "wgmma_commit();"
FAULTS = {
    "no async_fence": ("async_fence();", ""),
    "no wgmma_begin": ("wgmma_begin();", ""),
    "a sum is written while": (COMMIT, COMMIT + " sums[t % 32] = 2;"),
    "its sums are read too early": (COMMIT, COMMIT + " out[t * 32] = sums[0]; return;"),
}


def test_a_product_of_four_warps_uses_its_registers_until_it_is_awaited(
    gpu: EmulatedDevice, both_orders: None
) -> None:
    def run(source: str) -> np.ndarray:
        ones = np.full(8192, 0x3F80, np.uint16)
        out, a = gpu.upload(np.zeros(4096, np.float32)), gpu.upload(ones)
        gpu.launch(gpu.load(source, "test_it"), 1, 128, out, a)
        gpu.synchronize()
        return gpu.download(out, np.zeros(4096, np.float32))

    np.testing.assert_array_equal(run(PRODUCT), 17)
    for message, (old, new) in FAULTS.items():
        assert PRODUCT.count(old) == 1
        source = PRODUCT.replace(old, new)
        if "early" in message:
            assert np.isnan(run(source)[::32]).all()
            continue
        with pytest.raises(cuda_calls.CallError, match=message):
            run(source)
        gpu.reset()


@pytest.mark.parametrize("load", ["load_matrix_x2", "load_matrix_x4_transposed"])
def test_rows_of_loaded_matrices_are_aligned(gpu: EmulatedDevice, load: str) -> None:
    kind = f"u32x{load[13]}"
    source = f"""
struct {kind} {{ unsigned lane[{kind[-1]}]; }};
extern "C" __global__ void test_it(unsigned *out) {{
  __shared__ __align__(16) unsigned short s[512];
  out[threadIdx.x] = {load}(s + threadIdx.x * 8 + START).lane[0];
}}"""
    out = gpu.upload(np.zeros(32, np.uint32))
    gpu.launch(gpu.load(source.replace("START", "8"), "test_it"), 1, 32, out)
    gpu.synchronize()
    gpu.launch(gpu.load(source.replace("START", "4"), "test_it"), 1, 32, out)
    with pytest.raises(cuda_calls.CallError, match="row of a matrix .* not a multiple of 16"):
        gpu.synchronize()
