"""Compilation: the mean CPU time to generate and to compile a kernel of a training step, in ms."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from test.benchmark.measure import Benchmark
from test.benchmark.overhead import Step
from test.benchmark.recurrent import training_step
from test.models.mnist_cnn import MnistCnn
from tinygrad import Device, Tensor, nn
from tinygrad.codegen import get_program
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.runtime.support.llvm import Flags, emit_object
from tinygrad.schedule.pipeline import lower_kernel
from tinygrad.uop.known_orders import orders_kept
from tinygrad.uop.ops import UOp

REPEATS = 3


def kernels(first: Tensor, *rest: Tensor) -> list[UOp]:
    """The tensor forms of the kernels that compute some tensors, each once."""
    return list(dict.fromkeys(x.ast for x in first.schedule(*rest) if x.ast is not None))


def transformer() -> list[UOp]:
    """The kernels of a transformer's loss and gradients."""
    return kernels(*Step().build())


def mnist() -> list[UOp]:
    """The kernels of a training step of the MNIST network."""
    model = MnistCnn()
    images, labels = Tensor.rand(512, 1, 28, 28), Tensor.randint(512, high=10)
    Tensor.realize(images, labels)
    optimizer = nn.optim.Adam(nn.state.get_parameters(model))
    with Tensor.train():
        loss = model(images).sparse_categorical_crossentropy(labels).backward()
        return kernels(loss, *optimizer.schedule_step())


def lstm() -> list[UOp]:
    """The kernels of a training step of two LSTM layers."""
    return kernels(*training_step(256)())


def generate(kernel: UOp) -> ProgramSpec:
    """The source text of a kernel."""
    with orders_kept():
        return get_program(lower_kernel(kernel), find_renderer(Device[Device.DEFAULT].target))


def mean_ms(function: Callable[[Any], object], values: Sequence[Any]) -> float:
    """The mean over `values` of the shortest CPU time of several calls."""
    total = 0.0
    for value in values:
        times: list[float] = []
        for _ in range(REPEATS):
            start = time.process_time()
            function(value)
            times.append(time.process_time() - start)
        total += min(times)
    return total * 1e3 / len(values)


def compile_with_llvm(program: ProgramSpec) -> bytes:
    """The object file of a kernel, without the disk cache."""
    return emit_object(program.source, Flags(is_vectorized=program.is_vectorized))


def by_python(made: Callable[[], list[UOp]]) -> Callable[[], float]:
    """A benchmark of code generation."""
    return lambda: mean_ms(generate, made())


def by_llvm(made: Callable[[], list[UOp]]) -> Callable[[], float]:
    """A benchmark of LLVM."""
    return lambda: mean_ms(compile_with_llvm, [generate(kernel) for kernel in made()])


def few_rows() -> list[UOp]:
    """Functions of a few rows, whose reduction is short."""
    rows = Tensor.rand(10, 512).realize()
    return kernels(*(x.sum(0) for x in (rows.exp(), rows.log(), rows.sin())))


PROGRAMS = (
    ("transformer", transformer),
    ("mnist step", mnist),
    ("lstm step", lstm),
    ("functions of 10 rows", few_rows),
)
BENCHMARKS = [
    Benchmark(f"a kernel in {name}, {program}", measured(made), small=measured(few_rows))
    for name, measured in (("Python", by_python), ("LLVM", by_llvm))
    for program, made in PROGRAMS
]
