"""Products on GPUs: the text of their kernels, which needs no GPU, and their values, on any device.

`CUDA=1 pytest` runs the values on CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from test.benchmark import roofline
from test.benchmark.roofline import predict
from test.devices import DEVICE
from test.gpu_programs import BF16, PROGRAMS, GPUProgram, inputs, of_one, product
from tinygrad import Context, Tensor, dtypes
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.product.block_tile import BlockTile
from tinygrad.codegen.optimize.threads.search import mappings, prune, with_mapping
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.matrix_instruction import NVIDIA
from tinygrad.renderer.tensor_map import TensorMap

H100 = nvidia_target("sm_90a", units=132)


def kernel(program: GPUProgram, **changes: object) -> ProgramSpec:
    """The only kernel of a program."""
    (found,) = program.kernels(replace(H100, **changes))  # type: ignore[arg-type]
    return found


def body(found: ProgramSpec) -> str:
    """The text of a kernel without its prelude."""
    return found.source[found.source.index("__global__") :]


def test_a_product_of_narrow_floats_uses_matrix_instructions_and_asynchronous_copies():
    found = kernel(product(4096, BF16), matrix=NVIDIA)
    text = body(found)
    assert text.count("mma_m16n8k16_bf16(") == 1
    # a stage ahead of the loop for each but one, and one in the loop; two operands each
    stages = int(found.applied[-1].split()[-2])
    assert text.count("copy_async_16(") == 2 * (stages - 1)
    assert text.count("copy_async_16_or_zero(") == 2
    assert text.count("copy_async_commit()") == stages
    assert f"copy_async_wait<{stages - 2}>" in text
    assert text.count("block_barrier()") == 1
    # the fragments of two neighbouring tiles of columns are loaded at once
    assert text.count("load_matrix_x4(") == 1
    assert text.count("load_matrix_x4_transposed(") == 1
    assert found.inputs == (1, 2) and found.outputs == (0,)
    assert found.alignment == 16
    # more shared memory than a kernel may declare
    assert found.launch.shared > 48 << 10
    assert "extern __shared__" in text
    transposed = body(kernel(product(4096, BF16, transposed=True), matrix=NVIDIA))
    assert transposed.count("load_matrix_x4(") == 2


def test_a_large_product_of_an_h100_multiplies_while_its_threads_continue():
    found = kernel(product(4096, BF16), has_bulk_copy=False)
    text = body(found)
    assert found.applied[-1].startswith("block 128 x 256 x 64 of 256 threads, 1 x 1 wgmma_m64n256")
    assert found.launch.shared == 4 * (128 + 256) * 64 * 2
    assert "__align__(1024)" in text and "load_matrix" not in text
    # rows of 64 elements; the columns of the other operand are contiguous, in panels of 64
    assert text.count("wgmma_m64n256k16_bf16<0, 1>(") == 1
    assert len(re.findall(r"matrix_descriptor\(\w+ \+ [^,]*, (?:16384|8192)\)", text)) == 2
    names = "copy_async_wait<1>|async_fence|block_barrier|wgmma_\\w+|copy_async_\\w+"
    order = re.findall(names, text[text.index("for (int k") :])
    assert order[:3] == ["copy_async_wait<1>", "async_fence", "block_barrier"]
    assert order[3:6] == ["wgmma_begin", "wgmma_m64n256k16_bf16", "wgmma_commit"]
    assert order[6:9] == ["copy_async_16_or_zero"] * 2 + ["copy_async_commit"]
    # the products of one step run while the next one begins; all are complete at the end
    assert order[9:] == ["wgmma_wait", "wgmma_wait"]
    assert text.index("wgmma_wait<1>") < text.index("wgmma_wait<0>")
    assert "wgmma_m64n256k16_bf16<0, 0>(" in body(kernel(product(4096, BF16, transposed=True)))


def test_one_thread_of_an_h100_begins_bulk_copies_of_the_operands():
    found = product(4096, BF16).kernel_without_producer(H100)
    text = body(found)
    assert found.applied[-1].endswith("4 stages, filled in bulk, clusters of 2")
    assert found.inputs == (1, 2) and found.outputs == (0,) and found.alignment == 16
    # the operands, and mbarriers beside them
    assert found.launch.shared == 4 * (128 + 256) * 64 * 2 + 1024
    rows, columns = (TensorMap(2, 0, (4096, 4096), (8192,), (64, x)) for x in (128, 64))
    assert found.launch.maps == ((1, rows), (2, columns))
    assert "const __grid_constant__ TensorMap map0, const __grid_constant__ TensorMap map1)" in text
    names = "async_fence|\\w+_barrier|mbarrier_\\w+|wgmma_\\w+|copy_\\w+"
    begin, loop = (re.findall(names, x) for x in text.split("for (int k"))
    # two blocks have other rows and the same columns, of which each copies a half to both
    assert text.startswith("__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1)")
    fill = ["mbarrier_expect", "copy_box_2d", "copy_box_2d_to_2"]
    assert begin == ["mbarrier_init", "async_fence", "cluster_barrier", *fill, *fill]
    products = ["wgmma_begin", "wgmma_m64n256k16_bf16", "wgmma_commit"]
    assert loop[:5] == ["mbarrier_wait", *products, "cluster_barrier"]
    assert loop[5:] == [*fill, "wgmma_wait", "wgmma_wait"]
    assert text.count(f", {(128 + 256) * 64 * 2});") == 3


def test_a_role_of_the_threads_of_an_h100_begins_bulk_copies_while_others_multiply():
    found = kernel(product(4096, BF16))
    text = body(found)
    assert found.applied[-1].endswith("4 stages, filled in bulk by a producer, clusters of 2")
    assert found.launch.block == 384 and found.launch.shared == 4 * (128 + 256) * 64 * 2 + 1024
    assert text.startswith("__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)")
    # one statement, or the compiler moves no registers
    begin, producer, consumer = re.split(r"\n  if \(256 <= \w+\) \{|\n  \}\n  else \{", text)
    names = r"async_fence|\w+_barrier|\w+_registers<\d+>|mbarrier_\w+|wgmma_\w+|copy_\w+"
    found_names = [re.findall(names, x) for x in (begin, producer, consumer)]
    assert found_names[0] == ["mbarrier_init", "mbarrier_init", "async_fence", "cluster_barrier"]
    copies = ["copy_box_2d", "copy_box_2d_to_2"]
    assert found_names[1] == [
        *("release_registers<40>", "mbarrier_wait", "mbarrier_expect"),
        *copies,
    ]
    assert found_names[2] == [
        *("acquire_registers<232>", "mbarrier_wait"),
        *("wgmma_begin", "wgmma_m64n256k16_bf16", "wgmma_commit", "wgmma_wait"),
        *("mbarrier_arrive_in", "wgmma_wait"),
    ]
    # one arrival is that of the producer; eight warps of two blocks read a stage
    assert re.findall(r"mbarrier_init\([^;]*, (\d+)\)", text) == ["1", "16"]
    # what only the consumers use, only they compute
    assert text.index("mbarrier_arrive") > text.index("& 127") > text.index("acquire_registers")


def test_registers_move_where_threads_do_not_have_the_most_from_the_start():
    # an odd number of blocks along the rows is no number of pairs
    alone = kernel(of_one("product", Tensor.matmul, (64 * 33, 4096), (4096, 4096), dtype=BF16))
    assert alone.applied[-1].endswith("stages, filled in bulk by a producer")
    text = body(alone)
    assert "cluster" not in text and "copy_box_2d(" in text and "mbarrier_arrive(" in text
    assert "acquire_registers<232>" in text
    # one group of warps and the producer
    small = kernel(product(1024, BF16))
    assert small.launch.block == 256 and "mbarrier_arrive" in body(small)
    assert "_registers<" not in body(small)


@pytest.mark.parametrize(
    ("function", "shapes", "sizes"),
    [
        (lambda a, b: a @ b, ((4096, 4096), (4096, 4096)), (4096, 4096)),
        # any size where rows begin at multiples of 16 bytes, and views of such
        (lambda a, b: a[8:, 16:4001] @ b[:3985], ((4096, 4096), (4096, 4096)), (3985, 4088)),
        (lambda a, b: a @ b, ((8, 512, 1024), (8, 1024, 512)), (1024, 512, 8)),
        (lambda a, b: a @ b, ((4096, 4095), (4095, 4096)), None),
        (lambda a, b: a @ b.pad(((4, 4), None)), ((4096, 4096), (4088, 4096)), None),
        (lambda a, b: a.flip(0) @ b, ((4096, 4096), (4096, 4096)), None),
        (lambda a, b: a.relu() @ b, ((4096, 4096), (4096, 4096)), None),
    ],
    ids=["whole", "view", "batch", "odd rows", "padded", "flipped", "computed"],
)
def test_operands_are_copied_in_bulk_where_hardware_can(function, shapes, sizes):
    (*_, found) = of_one("product", function, *shapes, dtype=BF16).kernels(H100)
    if sizes is None:
        assert "wgmma" not in found.source or "copy_async" in found.source
        assert not found.launch.maps
    else:
        assert found.launch.maps[0][1].sizes == sizes
        assert "copy_async" not in found.source


def test_float32_products_round_factors_only_on_request():
    plain = body(kernel(product(1024)))
    assert "mma_" not in plain and plain.count("f32x4 ") >= 2
    rounded = kernel(product(1024, allow_tf32=True), matrix=NVIDIA)
    assert body(rounded).count("mma_m16n8k8_tf32(") == 1
    assert "k8_tf32(" in body(kernel(product(1024, allow_tf32=True)))


def test_a_target_without_asynchronous_copies_waits_by_barriers_alone():
    found = kernel(product(1024, BF16), has_async_copy=False, has_bulk_copy=False)
    text = body(found)
    assert "copy_async" not in text
    assert text.count("block_barrier()") == 1
    single = body(kernel(product(16), has_async_copy=False))
    assert single.count("block_barrier()") == 2


def test_a_target_without_matrix_instructions_multiplies_and_adds():
    text = body(kernel(product(1024, BF16), matrix=()))
    assert "mma_" not in text and "bfloat16_to_float" in text


def test_an_epilogue_is_part_of_the_product():
    def layer(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return (x @ w.T + bias).relu() + x

    found = kernel(of_one("layer", layer, (256, 256), (256, 256), (256,), dtype=BF16))
    assert found.applied[-1].startswith("block ")
    assert found.inputs == (1, 2, 3)


def test_an_unaligned_kernel_copies_elements():
    text = body(kernel(product(256), vector_bytes=1))
    assert "copy_async_4" in text and "copy_async_16" not in text
    assert "*)(data0" not in text


def test_short_sides_are_left_to_other_strategies():
    def vector_by_matrix() -> list[Tensor]:
        a, b = inputs((4, 512), (512, 512))
        return [a @ b]

    found = kernel(GPUProgram("skinny", vector_by_matrix))
    assert not any(x.startswith("block ") for x in found.applied)


def test_a_product_with_few_outputs_and_a_long_reduction_is_split():
    """Twice as many blocks as multiprocessors add partial sums, a second kernel adds these."""

    def gram(rows: int, columns: int) -> GPUProgram:
        return of_one("gram", lambda x: x.T @ x, (rows, columns))

    partial, final = gram(1 << 16, 64).kernels(H100)
    assert partial.applied[-1].startswith("block ")
    assert partial.launch.grid >= 64
    assert final.estimates.flops < partial.estimates.flops / 500
    assert len(gram(1 << 10, 64).kernels(H100)) == 1
    assert len(gram(1 << 12, 1 << 12).kernels(H100)) == 1
    norm = of_one("norm", lambda x: x.square().sum(-1), (1 << 10, 1 << 12))
    assert len(norm.kernels(H100)) == 1


def test_a_search_ranks_tiles_by_predicted_time_and_leaves_out_what_does_not_fit():
    (graph,) = product(4096, BF16).graphs(H100)
    renderer = find_renderer(H100)
    tiles = [x for x in mappings(graph, renderer) if isinstance(x, BlockTile)]
    assert {x.instruction.reads_shared for x in tiles} == {False, True}
    some = [tiles[0], next(x for x in tiles if not x.instruction.reads_shared), tiles[-1]]
    kept = prune(graph, renderer, some)
    # one block of 384 threads is resident, which is no reason against it
    assert [x.option for x in kept] == some and kept[0].occupancy == 384 / 2048
    assert kept[0].resources.shared_bytes == some[0].shared_bytes
    for option in some:
        spec = get_program(with_mapping(graph, option), renderer)
        assert spec.applied[-1] == str(option)
        assert spec.launch.block == option.threads
    small = find_renderer(replace(H100, shared_bytes=some[0].shared_bytes - 1))
    assert some[0] not in mappings(graph, small)


def test_predicted_bounds():
    """What bounds a kernel, and its time, by the machine's rates."""
    (copy,) = (x for x in PROGRAMS if x.name == "copy")
    (bound,) = predict(copy)
    assert bound.by == "memory"
    assert bound.seconds == 2 * 4096**2 * 4 / roofline.H100.bytes
    (bound,) = predict(product(8192, BF16))
    assert bound.by == "arithmetic"
    # all blocks of 128 x 256 take 15.5 rounds of 132
    rate = roofline.H100.rate("bf16") * (15.515 / 16)
    assert bound.seconds == pytest.approx(2 * 8192**3 / rate, rel=1e-3)
    (bound,) = predict(of_one("small", lambda x: x + 1, (16,)))
    assert bound.by == "launch"


# ---- values ----

PRECISION = {dtypes.float32: 2.0**-23, dtypes.bfloat16: 2.0**-8, dtypes.float16: 2.0**-11}
CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "edges": (Tensor.matmul, ((100, 72), (72, 90))),
    "odd": (Tensor.matmul, ((37, 41), (41, 53))),
    "transposed operands": (lambda a, b: a.T @ b.T, ((96, 64), (80, 96))),
    "batched": (Tensor.matmul, ((3, 40, 64), (3, 64, 48))),
    "epilogue": (
        lambda a, b, c, d: (a @ b + c).relu() + d,
        ((64, 96), (96, 64), (64,), (64, 64)),
    ),
    "convolution": (lambda x, w: x.conv2d(w, padding=1), ((2, 8, 12, 12), (16, 8, 3, 3))),
    "windows": (lambda x, w: x.conv2d(w, stride=2), ((1, 16, 17, 19), (24, 16, 3, 2))),
    "split reduction": (lambda a, b: a.T @ b, ((4096, 24), (4096, 16))),
    "several axes": (lambda a, b: a.permute(1, 0, 2) @ b, ((9, 4, 40), (40, 24))),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", PRECISION, ids=lambda x: x.name)
@pytest.mark.parametrize("name", CASES)
def test_values(name, dtype):
    """Against float64: an error of each factor and addition in float32, and of the result."""
    function, shapes = CASES[name]
    rng = np.random.default_rng(0)
    values = [Tensor(rng.normal(size=s).astype(np.float32)).cast(dtype) for s in shapes]
    exact = [Tensor(x.float().numpy().astype(np.float64), device="CPU") for x in values]
    with Context(DEV="CPU"):
        expected = function(*exact).numpy()
        scale = function(*(x.abs() for x in exact)).abs().numpy()
    found = function(*(x.realize() for x in values)).float().numpy()
    depth = max(96, shapes[0][0])
    bound = scale * (depth * PRECISION[dtypes.float32] + 2 * PRECISION[dtype])
    assert np.all(np.abs(found - expected) <= bound + 1e-30), np.abs(found - expected).max()


@pytest.mark.skipif(DEVICE == "CPU", reason="the CPU rounds no factors")
def test_values_with_rounded_factors():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((100, 72), (72, 90)))
    with Context(ALLOW_TF32=1):
        found = (Tensor(a) @ Tensor(b)).numpy()
    error = np.abs(found - a.astype(np.float64) @ b)
    assert np.all(error <= np.abs(a) @ np.abs(b) * 2.0**-10)
