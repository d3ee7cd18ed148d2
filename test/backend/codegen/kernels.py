"""Helpers to build kernel graphs and to run them on this machine, for tests of code generation."""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy

from tinygrad.codegen import get_program
from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.renderer import ProgramSpec, Renderer
from tinygrad.renderer.cstyle import CRenderer
from tinygrad.renderer.host_cpu import host_target
from tinygrad.renderer.llvm import LLVMRenderer
from tinygrad.runtime.support.c_compiler import compile_c
from tinygrad.runtime.support.llvm import Flags, emit_object, link
from tinygrad.settings import CPU_LLVM
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp, sym_infer


class Build:
    """Creates the ranges of one kernel, numbered in order."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def loops(self, *sizes: int | UOp) -> list[UOp]:
        return [UOp.range(n, next(self.numbers), AxisType.LOOP) for n in sizes]

    def reduces(self, *sizes: int | UOp) -> list[UOp]:
        return [UOp.range(n, next(self.numbers), AxisType.REDUCE) for n in sizes]


def buffer(slot: int, size: int, dtype: DType = dtypes.float32) -> UOp:
    return UOp(Ops.DEFINE_GLOBAL, dtype.ptr(size), (), slot)


def flat_index(axes: Sequence[UOp | int], sizes: Sequence[int]) -> UOp:
    """The row-major index of a point, as the scheduler builds it."""
    total = UOp.const(dtypes.index, 0)
    stride = 1
    for axis, size in zip(reversed(axes), reversed(sizes), strict=True):
        term = UOp.const(dtypes.index, axis) * stride
        total = term + total
        stride *= size
    return total.simplify()


def sink(*stores: UOp, name: str = "kernel") -> UOp:
    return UOp.sink(*stores, arg=KernelInfo(name))


class Runner:
    """A compiled kernel with its times. CPU_LLVM=0 compiles C instead of LLVM IR, with equal
    vectors.
    """

    def __init__(self, kernel: UOp, renderer: Renderer | None = None) -> None:
        renderer = renderer or LLVMRenderer(host_target())
        if not CPU_LLVM:
            renderer = CRenderer(replace(renderer.target, dialect="c", matrix=()))
        start = time.perf_counter()
        self.program: ProgramSpec = get_program(kernel, renderer)
        self.python_s = time.perf_counter() - start
        start = time.perf_counter()
        source = self.program.source
        if isinstance(renderer, CRenderer):
            code = compile_c(source)
        else:
            code = emit_object(source, Flags(is_vectorized=self.program.is_vectorized))
        self.llvm_s = time.perf_counter() - start
        self.object_code = code
        self.code = link(code, self.program.function)
        signature = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )
        self.function: Callable[..., None] = signature(self.code[self.program.function])

    def __call__(
        self, arrays: dict[int, numpy.ndarray], values: dict[str, int] | None = None, parts: int = 3
    ) -> None:
        """Runs on `arrays` by slot, with the grid divided into `parts` calls."""
        pointers = (ctypes.c_void_p * len(self.program.slots))(
            *[arrays[slot].ctypes.data for slot in self.program.slots]
        )
        names = [v.arg[0] for v in self.program.variables]
        integers = (ctypes.c_int64 * max(1, len(names)))(*[(values or {})[n] for n in names])
        grid = sym_infer(self.program.launch.grid, values or {})
        edges = [grid * i // parts for i in range(parts + 1)]
        for begin, end in itertools.pairwise(edges):
            if begin < end:
                self.function(pointers, integers, begin, end)


def random_array(rng: numpy.random.Generator, dtype: DType, *shape: int) -> numpy.ndarray:
    """Values that are exact in every dtype, so that comparisons are tight."""
    kind = to_numpy_dtype(dtype)
    if dtypes.is_bool(dtype):
        return rng.integers(0, 2, shape).astype(kind)
    low = 0 if dtypes.is_unsigned(dtype) else -4
    return rng.integers(low, 5, shape).astype(kind)
