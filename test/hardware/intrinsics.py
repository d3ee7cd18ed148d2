"""Small kernels that together use every definition of the CUDA prelude, with their inputs.

Sums of matrix instructions are of small integers, hence exact: hardware does not say in which order
it adds. NaN is one value: payloads are not specified.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tinygrad.dtype import dtypes
from tinygrad.renderer.cstyle.cuda import CUDA
from tinygrad.renderer.cstyle.prelude import read_prelude, used_definitions
from tinygrad.renderer.cstyle.warp import (
    async_product_definition,
    bulk_copy_definition,
    bulk_copy_name,
    map_name,
)
from tinygrad.renderer.matrix_instruction import WGMMA, WGMMA_TF32
from tinygrad.renderer.tensor_map import TensorMap

PRELUDE = "cuda.cu"
STRUCTS = {
    name: f"struct __align__({size}) {name} {{ {kind} lane[{count}]; }};\n"
    for name, kind, count, size in (
        ("u32x2", "unsigned int", 2, 8),
        ("u32x4", "unsigned int", 4, 16),
        ("f32x2", "float", 2, 8),
        ("f32x4", "float", 4, 16),
    )
}

# boxes of 16 rows of tensors of 67 columns in rows of 72, of every rank
BOX_SIZES = (67, 5, 3, 2, 2)
BOX_STRIDES = (144, 720, 2160, 4320)
BOX_SOURCES = tuple(
    TensorMap(2, 0, BOX_SIZES[: len(box)], BOX_STRIDES[: len(box) - 1], box)
    for box in ((64, 16), (64, 4, 4), (64, 4, 2, 2), (64, 2, 2, 2, 2))
)
BOX_PLACES = ((-3, 2, -1, 1, 0), (8, 0, 1, 0, 1))
"""Coordinates of two boxes."""

DYNAMIC_BYTES = 160 << 10
"""More than a kernel has without asking for it, and less than on an A100."""

BOX_COPIES = [(len(x.box), blocks) for x in BOX_SOURCES for blocks in (1, 2)]
"""Ranks, and blocks that a box is copied to."""

GENERATED = {x.name: async_product_definition(x) for x in (*WGMMA, *WGMMA_TF32)} | {
    bulk_copy_name(*x): bulk_copy_definition(*x) for x in BOX_COPIES
}


@dataclass(frozen=True, eq=False)
class Check:
    """A kernel with parameters `out` and the inputs `a`, `b` and so on."""

    name: str
    body: str
    """Statements; `t` is the thread, and `i` its number in the grid."""
    inputs: tuple[np.ndarray, ...]
    out: np.ndarray
    """An array of the output's shape and dtype."""
    threads: int = 32
    blocks: int = 1
    architecture: str = ""
    """The only architecture that can run it, if it is one."""
    maps: tuple[tuple[int, TensorMap], ...] = ()
    """Tensor maps, `map0` and so on, each with the number of its argument."""
    cluster: int = 1
    """Blocks that run together."""
    shared: int = 0
    """Bytes of dynamic shared memory."""

    @property
    def source(self) -> str:
        """The text of the kernel `check`."""
        arrays = [("out", self.out), *zip("abc", self.inputs)]
        parameters = [f"{C_TYPES[str(array.dtype)]} *{name}" for name, array in arrays]
        parameters += [CUDA.tensor_map.format(name=map_name(i)) for i in range(len(self.maps))]
        cluster = CUDA.cluster.format(blocks=self.cluster) if self.cluster > 1 else ""
        kernel = (
            f'extern "C" __global__ void {cluster}__launch_bounds__({self.threads}) '
            f"check({', '.join(parameters)}) {{\n"
            "  int t = thread_number(), i = block_number() * blockDim.x + t;\n"
            f"  {self.body}\n}}\n"
        )
        known = {**read_prelude(PRELUDE), **STRUCTS, **GENERATED}
        return used_definitions(kernel, known) + kernel


C_TYPES = {
    "float32": "float",
    "int32": "int",
    "int64": "long long",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
}


def uncovered() -> list[str]:
    """The names of the prelude that no kernel uses."""
    used = set(re.findall(r"\w+", "".join(check.source for check in checks())))
    return [name for name in {**read_prelude(PRELUDE), **GENERATED} if name not in used]


def _random_floats(count: int) -> np.ndarray:
    """Floats of all magnitudes, subnormals, infinities, NaN and ties among them."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    # half of them with few bits, which are exact or in the middle between two narrow floats
    bits[: count // 2] &= np.uint32(0xFFFFF000)
    return bits.view(np.float32)


def _integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-8, 9, shape).astype(np.float32)


def _bfloat16_pairs(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)


def _half_pairs(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).view(np.uint16).view(np.uint32)


def checks(architecture: str = "") -> list[Check]:
    """All kernels, or those that an architecture can run."""
    made = [*_positions(), *_conversions(), *_copies(), *_loads(), *_products()]
    made += [*_asynchronous_products(), *_boxes(), _roles()]
    return [x for x in made if not architecture or x.architecture in {"", architecture}]


def _positions() -> list[Check]:
    numbers = np.arange(256, dtype=np.int32)
    return [
        Check("thread and block", "out[i] = block_number() * 1000 + t;", (), numbers, 64, 4),
        Check(
            "barrier",
            "__shared__ int s[256]; s[t] = a[t]; block_barrier(); out[t] = s[255 - t];",
            (numbers,),
            numbers,
            256,
        ),
        Check(
            "shuffle of 32 bits",
            "out[i] = warp_shuffle(a[i], (t * 7 + 3) % 32);",
            (numbers,),
            numbers,
            64,
            4,
        ),
        Check(
            "shuffle of 64 bits",
            "out[i] = warp_shuffle(a[i], t / 2);",
            (np.arange(32, dtype=np.int64) << 40,),
            np.zeros(32, np.int64),
        ),
        Check(
            "dynamic shared memory",
            "extern __shared__ __align__(1024) unsigned char s[];\n"
            f"  s[(t + 1) * {DYNAMIC_BYTES // 32} - 1] = t; block_barrier();\n"
            f"  out[t] = s[(32 - t) * {DYNAMIC_BYTES // 32} - 1] + shared_address(s) % 1024;",
            (),
            np.zeros(32, np.int32),
            shared=DYNAMIC_BYTES,
        ),
        Check("constants", "out[t] = t % 2 ? INFINITY : NAN;", (), np.zeros(32, np.float32)),
    ]


def _conversions() -> list[Check]:
    patterns = np.arange(1 << 16, dtype=np.uint16)
    floats = _random_floats(1 << 16)
    shape = {"threads": 256, "blocks": 256}
    made = [
        Check(
            "TF32 of float32",
            "out[i] = round_to_tf32(a[i]);",
            (floats,),
            floats.view(np.uint32),
            **shape,
        )
    ]
    for kind in ("half", "bfloat16"):
        widen = f"out[i] = {kind}_to_float({kind}_of_bits(a[i]));"
        narrow = f"out[i] = bits_of_{kind}(float_to_{kind}(a[i]));"
        made += [
            Check(f"float32 of {kind}", widen, (patterns,), floats, **shape),
            Check(f"{kind} of float32", narrow, (floats,), patterns, **shape),
        ]
    return made


def _copies() -> list[Check]:
    values = np.arange(512, dtype=np.uint32)
    made = []
    for words in (1, 2, 4):
        size = words * 4
        body = (
            f"__shared__ __align__(16) unsigned int s[256]; int w = t * {words};\n"
            "  for (int x = 0; x < 256; x += 32) s[x + t] = 7;\n  block_barrier();\n"
            f"  copy_async_{size}(&s[w], a + w); copy_async_commit();\n"
            f"  copy_async_{size}_or_zero(&s[w + 128], a + w + 128, t % 3 == 0);\n"
            "  copy_async_commit(); copy_async_wait<1>(); block_barrier();\n"
            f"  for (int x = 0; x < {words}; x++) out[w + x] = s[w + x];\n"
            "  copy_async_wait<0>(); block_barrier();\n"
            "  for (int x = 0; x < 128; x += 32) out[x + t + 128] = s[x + t + 128];\n"
            f"  for (int x = {words * 32} + t; x < 128; x += 32) out[x] = 0;"
        )
        made.append(Check(f"copies of {size} bytes", body, (values,), np.zeros(256, np.uint32)))
    return made


def _loads() -> list[Check]:
    rows = np.arange(1024, dtype=np.uint16)
    made = []
    for matrices in (2, 4):
        for suffix in ("", "_transposed"):
            body = (
                "__shared__ __align__(16) unsigned short s[1024];\n"
                "  for (int x = t; x < 1024; x += 32) s[x] = a[x];\n  block_barrier();\n"
                f"  u32x{matrices} r = load_matrix_x{matrices}{suffix}(&s[(t * 5 % 32) * 8]);\n"
                f"  for (int x = 0; x < {matrices}; x++) out[t * {matrices} + x] = r.lane[x];"
            )
            out = np.zeros(32 * matrices, np.uint32)
            made.append(Check(f"load {matrices} matrices{suffix}", body, (rows,), out))
    return made


def _products() -> list[Check]:
    c = _integers(32 * 4)
    body = "((f32x4 *)out)[t] = {name}((({a} *)a)[t], (({b} *)b)[t], ((f32x4 *)c)[t]);"
    made = []
    for name, pack in (
        ("mma_m16n8k16_f16", _half_pairs),
        ("mma_m16n8k16_bf16", _bfloat16_pairs),
    ):
        inputs = (pack(_integers(32 * 8)), pack(_integers(32 * 4)), c)
        made.append(Check(name, body.format(name=name, a="u32x4", b="u32x2"), inputs, c))
    name = "mma_m16n8k8_tf32"
    inputs = (_integers(32 * 4), _integers(32 * 2), c)
    made.append(Check(name, body.format(name=name, a="f32x4", b="f32x2"), inputs, c))
    return made


def _asynchronous_products() -> list[Check]:
    """Products of matrices in panels of 64 elements a row, both contiguous or both transposed. Of
    TF32, of columns in panels of 32.
    """
    made = []
    for x in WGMMA_TF32:
        body = (
            "__shared__ __align__(1024) float s[256 * 32];\n"
            "  for (int x = t; x < 256 * 32; x += 128) s[x] = b[x];\n"
            f"  float sums[{x.c.count}];\n"
            f"  for (int x = 0; x < {x.c.count}; x++) sums[x] = c[t * {x.c.count} + x];\n"
            "  async_fence(); block_barrier(); wgmma_begin();\n"
            f"  {x.name}(sums, ((f32x4 *)a)[t], matrix_descriptor(s + 8, 32768));\n"
            "  wgmma_commit(); wgmma_wait<0>(sums);\n"
            f"  for (int x = 0; x < {x.c.count}; x++) out[t * {x.c.count} + x] = sums[x];"
        )
        sums = _integers(128 * x.c.count)
        inputs = (_integers(128 * 4), _integers(256 * 32), sums)
        made.append(Check(x.name, body, inputs, sums, 128, architecture="sm_90a"))
    for x in WGMMA:
        pack = _half_pairs if x.operand is dtypes.float16 else _bfloat16_pairs
        a, b = (pack(_integers(rows * 64)).view(np.uint16) for rows in (64, 256))
        sums = _integers(128 * x.c.count)
        # the second step of a stage: all rows of a panel are those of the instruction, and elements
        # 16 to 31 of a row are read, or a panel has 32 rows, of which the last 16 are
        for order, panels, first in (
            ("<0, 1>", (8192, 4096), (16, 16 * 64)),
            ("<1, 0>", (4096, 8 * 4096), (16 * 64, 16)),
        ):
            body = (
                "__shared__ __align__(1024) unsigned short s[64 * 64 + 256 * 64];\n"
                "  for (int x = t; x < 64 * 64; x += 128) s[x] = a[x];\n"
                "  for (int x = t; x < 256 * 64; x += 128) s[64 * 64 + x] = b[x];\n"
                f"  float sums[{x.c.count}];\n"
                f"  for (int x = 0; x < {x.c.count}; x++) sums[x] = c[t * {x.c.count} + x];\n"
                "  async_fence(); block_barrier(); wgmma_begin();\n"
                f"  {x.name}{order}(sums, matrix_descriptor(s + {first[0]}, {panels[0]}),\n"
                f"    matrix_descriptor(s + 64 * 64 + {first[1]}, {panels[1]}));\n"
                "  wgmma_commit(); wgmma_wait<0>(sums);\n"
                f"  for (int x = 0; x < {x.c.count}; x++) out[t * {x.c.count} + x] = sums[x];"
            )
            name = f"{x.name}{order}"
            made.append(Check(name, body, (a, b, sums), sums, 128, architecture="sm_90a"))
    return made


def _roles() -> Check:
    """Four warps give registers to the others, which wait until these have arrived at mbarriers, of
    both blocks of a cluster.
    """
    values = np.arange(768, dtype=np.uint32)
    body = (
        "__shared__ unsigned long long m[2];\n"
        "  if (t == 0) { mbarrier_init(m, 128); mbarrier_init(m + 1, 2); }\n"
        "  async_fence(); cluster_barrier();\n"
        "  if (t >= 256) {\n"
        "    release_registers<40>();\n"
        "    out[i] = a[i] * 2;\n"
        "    mbarrier_arrive(m);\n"
        "    if (t < 258) mbarrier_arrive_in(m + 1, t - 256);\n"
        "  } else {\n"
        "    acquire_registers<232>();\n"
        "    mbarrier_wait(m, 0); mbarrier_wait(m + 1, 0);\n"
        "    out[i] = a[i] * 3;\n"
        "  }"
    )
    return Check(
        "roles of the threads of a cluster",
        body,
        (values,),
        np.zeros_like(values),
        threads=384,
        blocks=2,
        architecture="sm_90a",
        cluster=2,
    )


def _boxes() -> list[Check]:
    """Boxes that are partly outside of a tensor, in two phases of an mbarrier. Of a cluster, each
    block copies one of them to both. A box of floats of all magnitudes is rounded to TF32.
    """
    floats = _random_floats(512)
    made = [
        Check(
            "box of float32 rounded to TF32",
            "__shared__ __align__(1024) float s[512];\n"
            "  __shared__ unsigned long long m[1];\n"
            "  if (t == 0) mbarrier_init(m, 1);\n  async_fence(); block_barrier();\n"
            "  if (t == 0) mbarrier_expect(m, 2048);\n"
            "  if (t == 0) copy_box_2d(s, m, map0, 0, 0);\n  mbarrier_wait(m, 0);\n"
            "  for (int x = t; x < 512; x += 32) out[x] = s[x];",
            (floats,),
            np.zeros(512, np.float32),
            architecture="sm_90a",
            maps=((1, TensorMap(4, 0, (32, 16), (128,), (32, 16), rounds_to_tf32=True)),),
        )
    ]
    values = np.arange(1, 4321, dtype=np.uint16)
    for source, (rank, blocks) in (
        (x, y) for x in BOX_SOURCES for y in BOX_COPIES if y[0] == len(x.box)
    ):
        first, second = (", ".join(map(str, x[:rank])) for x in BOX_PLACES)
        copy = bulk_copy_name(rank, blocks)
        barrier = "cluster_barrier();" if blocks > 1 else "block_barrier();"
        begin = (
            "__shared__ __align__(1024) unsigned short s[2048];\n"
            "  __shared__ unsigned long long m[1];\n"
            f"  if (t == 0) mbarrier_init(m, 1);\n  async_fence(); {barrier}\n"
        )
        if blocks > 1:
            body = (
                "  if (t == 0) mbarrier_expect(m, 4096);\n"
                f"  if (i == 0) {copy}(s, m, map0, {first});\n"
                f"  if (i == 32) {copy}(s + 1024, m, map0, {second});\n"
                "  mbarrier_wait(m, 0);\n"
            )
        else:
            body = (
                "  if (t == 0) mbarrier_expect(m, 2048);\n"
                f"  if (t == 0) {copy}(s, m, map0, {first});\n"
                "  mbarrier_wait(m, 0); block_barrier();\n"
                "  if (t == 0) mbarrier_expect(m, 2048);\n"
                f"  if (t == 0) {copy}(s + 1024, m, map0, {second});\n"
                "  mbarrier_wait(m, 1);\n"
            )
        store = "  for (int x = t; x < 2048; x += 32) out[block_number() * 2048 + x] = s[x];"
        made.append(
            Check(
                f"boxes of rank {rank} to {blocks} blocks",
                begin + body + store,
                (values,),
                np.zeros(2048 * blocks, np.uint16),
                blocks=blocks,
                architecture="sm_90a",
                maps=((1, source),),
                cluster=blocks,
            )
        )
    return made
