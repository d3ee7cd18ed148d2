"""NVRTC compiles the kernels of representative programs for three architectures, without a GPU."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from test import kept_kernels, nvrtc
from test.gpu_programs import (
    ATTENTION,
    BF16,
    GRADIENTS,
    PROGRAMS,
    SYMBOLIC_GRADIENTS,
    of_one,
    product,
)
from tinygrad import dtypes
from tinygrad.renderer.gpu_targets import nvidia_target
from tinygrad.renderer.matrix_instruction import NVIDIA

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(nvrtc.why_not()), reason=nvrtc.why_not())]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda x: x.name)
def test_kernels_compile_and_keep_their_values_in_registers(program, architecture):
    target = nvidia_target(architecture)
    for kernel in program.kernels(target):
        compiled = nvrtc.compile_for(architecture, kernel.source)
        assert compiled.registers <= target.registers
        assert compiled.spills == 0 and compiled.stack == 0, f"{kernel.name}: {kernel.applied}"
        # a block fits: registers are allocated to warps by 8 a thread
        allocated = -(-compiled.registers // 8) * 8 * kernel.launch.blocks()[1]
        assert allocated <= 1 << 16
        assert compiled.shared + kernel.launch.shared <= target.shared_bytes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_a_symbolic_length_keep_their_values_in_registers(architecture):
    for kernel in SYMBOLIC_GRADIENTS.kernels(nvidia_target(architecture)):
        compiled = nvrtc.compile_for(architecture, kernel.source)
        assert compiled.spills == 0 and compiled.stack == 0, f"{kernel.name}: {kernel.applied}"


@pytest.mark.skipif(nvrtc.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES[:2])
def test_products_are_matrix_instructions(architecture):
    """Counts of instructions: the register tile times the steps of a stage, and no more."""
    target = replace(nvidia_target(architecture, units=132), matrix=NVIDIA)
    for program, step in ((product(4096, BF16), 16), (product(4096, allow_tf32=True), 8)):
        (kernel,) = program.kernels(target)
        rows, columns, depth = (int(x) for x in kernel.applied[-1].split(" of ")[0].split()[1::2])
        warps = kernel.launch.block // 32
        expected = rows // 16 * (columns // 8) * (depth // step) // warps
        counts = nvrtc.count_instructions(nvrtc.compile_for(architecture, kernel.source))
        assert counts["HMMA"] == expected
        assert counts["BAR"] == 1
        assert counts["LDGSTS"] > 0 and counts["STS"] == 0 and counts["LDL"] == counts["STL"] == 0
        if step == 16:
            assert counts["LDSM"] > 0


@pytest.mark.skipif(nvrtc.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("filled_by", ["threads", "bulk", "producer"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [BF16, dtypes.float16], ids=lambda x: x.name)
def test_large_products_of_an_h100_are_instructions_of_four_warps(dtype, transposed, filled_by):
    target = replace(nvidia_target("sm_90a", units=132), has_bulk_copy=filled_by != "threads")
    program = product(8192, dtype, transposed)
    (kernel,) = program.kernels(target)
    if filled_by == "bulk":
        kernel = program.kernel_without_producer(target)
    compiled = nvrtc.compile_for("sm_90a", kernel.source)
    # two groups of warps, which multiply 64 x 256 each, in four steps of a stage
    counts = nvrtc.count_instructions(compiled)
    assert counts["HGMMA"] == 4 and counts["HMMA"] == counts["LDSM"] == 0
    # half of the columns, for both blocks of a cluster: two panels of 64, or the rows of a box
    copies = 1 + (1 if transposed else 2)
    # two stages are filled ahead, and one in each step
    if filled_by == "producer":
        assert counts["UTMALDG"] == copies
        # of the mbarriers: eight made, bytes expected of one, two awaited, one arrived at
        assert counts["SYNCS"] == 8 + 1 + 2 * 2 + 1
        assert counts["LDGSTS"] == counts["STS"] == counts["BAR"] == 0
        # a barrier before the first stage; no step waits for memory
        assert counts["UCGABAR_ARV"] == counts["UCGABAR_WAIT"] == counts["MEMBAR"] == 1
        assert counts["USETMAXREG"] == 2 and nvrtc.MOVES_NO_REGISTERS not in compiled.messages
    elif filled_by == "bulk":
        assert counts["UTMALDG"] == 3 * copies
        # of the mbarriers: four made, three that bytes are expected of, one awaited in two ways
        assert counts["SYNCS"] == 4 + 3 + 2
        assert counts["LDGSTS"] == counts["STS"] == 0
        # no barrier of the block; those of the cluster wait for no memory
        assert counts["UCGABAR_ARV"] == counts["UCGABAR_WAIT"] == 2
        assert counts["BAR"] == 0 and counts["MEMBAR"] == 1 and counts["FENCE"] == 2
        assert compiled.registers <= 160
    else:
        assert counts["LDGSTS"] == 3 * (128 + 256) * 64 // 8 // 256 and counts["UTMALDG"] == 0
        assert counts["BAR"] == counts["FENCE"] == 1
        assert compiled.registers <= 168
    # the begin of a step, and the two waits: the compiler adds none between products
    assert counts["WARPGROUP"] == 3
    assert compiled.spills == 0 and "serialized" not in compiled.messages


def test_a_compiler_that_moves_no_registers_says_so():
    (kernel,) = product(4096, BF16).kernels(nvidia_target("sm_90a", units=132))
    unbounded = kernel.source.replace("__launch_bounds__(384, 1) ", "")
    assert nvrtc.MOVES_NO_REGISTERS in nvrtc.compile_for("sm_90a", unbounded).messages
    assert nvrtc.MOVES_NO_REGISTERS not in nvrtc.compile_for("sm_90a", kernel.source).messages


@pytest.mark.skipif(nvrtc.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("transposed", [False, True])
def test_large_products_of_tf32_of_an_h100_hold_an_operand_in_registers(transposed):
    (kernel,) = product(4096, transposed=transposed, allow_tf32=True).kernels(
        nvidia_target("sm_90a", units=132)
    )
    compiled = nvrtc.compile_for("sm_90a", kernel.source)
    counts = nvrtc.count_instructions(compiled)
    # in four steps of a stage, both groups of warps multiply 64 rows, or 128 columns
    assert counts["HGMMA"] == (4 if transposed else 8) and counts["HMMA"] == 0
    # of a row or a column of 8 words, lanes hold two: one by one, or with those of the next column
    assert counts["LDS"] == 16
    assert counts["STS"] == counts["BAR"] == counts["LDL"] == counts["STL"] == 0
    # the begin and the wait of a step
    assert counts["WARPGROUP"] == 2
    assert counts["USETMAXREG"] == 2 and nvrtc.MOVES_NO_REGISTERS not in compiled.messages
    assert compiled.spills == 0 and "serialized" not in compiled.messages


@pytest.mark.skipif(nvrtc.disassembler() is None, reason="nvdisasm is not installed")
@pytest.mark.parametrize("architecture", ARCHITECTURES[:2])
def test_both_products_of_attention_are_matrix_instructions(architecture):
    (kernel,) = ATTENTION.kernels(nvidia_target(architecture, units=132))
    rows, keys, threads = (int(x) for x in kernel.applied[-1].split(",")[0].split()[2::3])
    counts = nvrtc.count_instructions(nvrtc.compile_for(architecture, kernel.source))
    warps, depth, columns = threads // 32, 64, 64
    # what one step multiplies; the loop over blocks of keys is not unrolled
    assert (
        counts["HMMA"]
        == rows // 16 * (keys // 8 * depth // 16 + columns // 8 * keys // 16) // warps
    )
    assert counts["BAR"] == 2 and counts["STS"] == counts["LDL"] == counts["STL"] == 0
    assert counts["LDGSTS"] > 0 and counts["LDSM"] > 0
    # every product of the gradients too; a float32 factor is three of bfloat16
    found = []
    for kernel in GRADIENTS.kernels(nvidia_target(architecture, units=132)):
        if "mma_m16n8k16" in kernel.source:
            text = kernel.applied[-1].split(",")[0].split()
            tiles = int(text[2]) // 16 * (int(text[5]) // 8) * 4 // (int(text[8]) // 32)
            compiled = nvrtc.compile_for(architecture, kernel.source)
            found.append(nvrtc.count_instructions(compiled)["HMMA"] / tiles)
    assert sorted(found) == [2, 2, 5, 5]
    # two shuffles of the maxima in a step, and two of the sums at the end, for two rows of a lane
    assert counts["SHFL"] == 4 * rows // 16 // warps * 2


def test_float32_products_are_fused_multiply_adds():
    target = nvidia_target("sm_90a", units=132)
    (kernel,) = product(4096).kernels(target)
    assert kernel.estimates.flops == 2 * 4096**3
    if nvrtc.disassembler() is None:
        pytest.skip("nvdisasm is not installed")
    counts = nvrtc.count_instructions(nvrtc.compile_for("sm_90a", kernel.source))
    rows, columns, depth = (int(x) for x in kernel.applied[-1].split(" of ")[0].split()[1::2])
    assert counts["FFMA"] == rows * columns * depth // kernel.launch.block
    assert counts["FADD"] == counts["FMUL"] == 0
    assert dtypes.float32.itemsize * counts["LDS"] < counts["FFMA"]


@pytest.mark.parametrize("dtype", [BF16, dtypes.float16], ids=lambda x: x.name)
def test_narrow_floats_are_converted_where_there_are_no_matrix_instructions(dtype):
    target = nvidia_target("sm_75")
    assert not target.matrix
    for build in (lambda x: x * 2, lambda x: x @ x):
        for kernel in of_one("narrow", build, (256, 256), dtype=dtype).kernels(target):
            assert nvrtc.compile_for("sm_75", kernel.source).spills == 0


@pytest.mark.skipif(nvrtc.disassembler() is None, reason="nvdisasm is not installed")
def test_integers_that_wrap_around_are_compared():
    """NVRTC takes it that signed integers do not overflow: it would compute neither."""
    for dtype in (dtypes.int32, dtypes.int64):
        program = of_one("overflow", lambda x: x + 1 < x, (4096,), dtype=dtype)
        (kernel,) = program.kernels(nvidia_target("sm_90a"))
        counts = nvrtc.count_instructions(nvrtc.compile_for("sm_90a", kernel.source))
        assert counts["ISETP"] == dtype.itemsize // 4 and counts["LDG"] == 1


def test_kept_kernels_are_compiled_and_those_that_fail_or_spill_are_named(tmp_path):
    """A kernel for each architecture in turn, or for the only one that has its instructions."""
    for architecture in ("sm_80", "sm_90a"):
        (kernel,) = product(4096, BF16).kernels(nvidia_target(architecture, units=132))
        (tmp_path / f"{architecture}.cu").write_text(kernel.source)
    found = list(kept_kernels.jobs(tmp_path, is_all=True))
    assert [x for x, path in found if path.stem == "sm_80"] == list(ARCHITECTURES)
    assert [x for x, path in found if path.stem == "sm_90a"] == ["sm_90a"]
    for job in kept_kernels.jobs(tmp_path):
        assert kept_kernels.compile_kernel(job) == (True, "")
    # as many blocks resident as there are registers for a quarter of the sums
    text = (tmp_path / "sm_80.cu").read_text()
    crowded = text.replace("__launch_bounds__(256, 1)", "__launch_bounds__(256, 4)")
    roles = (tmp_path / "sm_90a.cu").read_text()
    bad = {
        "crowded": crowded,
        "broken": text.replace("block_barrier();", "no_such_name();"),
        "unbounded": roles.replace("__launch_bounds__(384, 1) ", ""),
    }
    messages = {
        "crowded": "stores .* bytes of registers",
        "broken": "does not compile",
        "unbounded": "moves no registers",
    }
    for name, source in bad.items():
        (tmp_path / f"{name}.cu").write_text(source)
        architecture = "sm_90a" if name == "unbounded" else "sm_80"
        is_right, message = kept_kernels.compile_kernel((architecture, tmp_path / f"{name}.cu"))
        assert not is_right and re.search(messages[name], message)
