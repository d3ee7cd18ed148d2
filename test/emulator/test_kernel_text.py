"""The text of kernels, before it is compiled."""

from __future__ import annotations

import pytest

from test.emulator.kernel_text import (
    UNBOUND_METAL_THREADS,
    Kernel,
    definitions,
    find_kernels,
    to_cpp,
)

TEXT = """\
#define twice(x) \\
  asm("" : : "r"(x))
#define NAN __int_as_float(0x7fc00000)
// A pair's lanes; /* not a comment
struct pair { float lane[2]; };
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_all; }");
}
template <class T> __device__ inline T warp_shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ inline int thread_number() { return threadIdx.x; }
extern "C" __global__ void __launch_bounds__(256, 2) first(float *out) {
  extern __shared__ __align__(16) unsigned char shared[];
  out[0] = shared[0];
}
extern "C" __global__ void second(const int *in) {}
"""


def test_definitions_are_cut_at_file_scope() -> None:
    assert "".join(definitions(TEXT)) == TEXT
    starts = [part.strip().split("\n")[0] for part in definitions(TEXT) if part.strip()]
    assert [start.split("(")[0].split("{")[0].strip() for start in starts] == [
        "#define twice",
        "#define NAN __int_as_float",
        "// A pair's lanes; /* not a comment",
        "__device__ inline void wait_for_copies",
        "template <class T> __device__ inline T warp_shuffle",
        "__device__ inline int thread_number",
        'extern "C" __global__ void __launch_bounds__',
        'extern "C" __global__ void second',
    ]


def test_what_the_headers_define_is_dropped_and_lines_keep_their_numbers() -> None:
    assert find_kernels(TEXT, "cuda") == [Kernel("first", 256), Kernel("second")]
    lines = to_cpp(TEXT, "cuda").split("\n")
    assert lines[:2] == ['#include "cuda.h"', '#line 1 "kernel"']
    body = lines[2:]
    assert "asm volatile" not in "\n".join(body) and "define twice" not in "\n".join(body)
    for number in (3, 5, 12, 17):
        assert body[number - 1] in TEXT.split("\n")[number - 1]
    assert body[13].strip().startswith("unsigned char *const shared = ")
    assert "EMULATOR_KERNEL(first, first, 256, 1, 32, 0);" in body
    pair = "__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64, 1) pair() {}"
    assert find_kernels(pair, "cuda") == [Kernel("pair", 64, 2)]


def test_a_kernel_of_metal_has_the_threads_that_it_asks_for_and_31_buffers() -> None:
    bound, free = find_kernels(
        "[[max_total_threads_per_threadgroup(64)]] kernel void f(device int *x [[buffer(0)]]) {}\n"
        "kernel void g(device int *x [[buffer(0)]], uint n [[thread_position_in_threadgroup]]) {}",
        "metal",
    )
    assert (bound.name, bound.max_threads) == ("f", 64)
    assert (free.name, free.max_threads) == ("g", UNBOUND_METAL_THREADS)

    def of(count: int) -> str:
        return ", ".join(f"device int *x{i} [[buffer({i})]]" for i in range(count))

    find_kernels(f"kernel void f({of(31)}) {{}}", "metal")
    with pytest.raises(ValueError, match="f: 32 buffers; Metal has 31"):
        find_kernels(f"kernel void f({of(32)}) {{}}", "metal")
