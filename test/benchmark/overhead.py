"""Python overhead: ops on small Tensors, realizing and writing them, replaying a captured function,
and building and scheduling a transformer's training step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from test.benchmark.measure import Benchmark, median_ms, random_tensors
from test.models.transformer import Transformer
from tinygrad import Tensor, TinyJit, nn

OPS = 1000
BATCH, SEQ, VOCAB = 2, 64, 512


def add_ops() -> float:
    """Milliseconds for 1000 lazy additions, so microseconds per op."""
    (x,) = random_tensors((4, 4))

    def chain() -> Tensor:
        y = x
        for _ in range(OPS):
            y = y + x
        return y

    return median_ms(chain)


def torch_add_ops() -> float:
    import torch

    x = torch.randn(4, 4)

    def chain() -> object:
        y = x
        for _ in range(OPS):
            y = y + x
        return y

    return median_ms(chain)


def repeated(statement: Callable[[], object]) -> float:
    """Milliseconds for 1000 runs of a statement, so microseconds for one."""

    def run() -> None:
        for _ in range(OPS):
            statement()

    return median_ms(run)


def build(function: Callable[..., object], *shapes: tuple[int, ...]) -> Callable[[], float]:
    """Microseconds to build the graph of an op on small Tensors."""

    def measure() -> float:
        tensors = random_tensors(*shapes)
        return repeated(lambda: function(*tensors))

    return measure


def torch_build(function: Callable[..., object], *shapes: tuple[int, ...]) -> Callable[[], float]:
    """Microseconds of the op in torch, which computes it."""

    def measure() -> float:
        import torch

        tensors = [torch.randn(shape) for shape in shapes]
        return repeated(lambda: function(*tensors))

    return measure


def matmul(x: Any, y: Any) -> object:
    return x @ y


def softmax(x: Any) -> object:
    return x.softmax(-1)


def backward() -> float:
    """A product, a sum, and their gradients."""
    x, weight = random_tensors((4, 4), (4, 4))
    weight.requires_grad_()

    def step() -> None:
        weight.grad = None
        (x * weight).sum().backward()

    return repeated(step)


def torch_backward() -> float:
    import torch

    x, weight = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)

    def step() -> None:
        weight.grad = None
        (x * weight).sum().backward()

    return repeated(step)


def layer_norm() -> float:
    (x,) = random_tensors((4, 4))
    norm = nn.LayerNorm(4)
    return repeated(lambda: norm(x))


def torch_layer_norm() -> float:
    import torch

    norm, x = torch.nn.LayerNorm(4), torch.randn(4, 4)
    return repeated(lambda: norm(x))


def realize_computed() -> float:
    (x,) = random_tensors((4, 4))

    def realize() -> None:
        (x + 1).realize()

    return repeated(realize)


def realize_again() -> float:
    (x,) = random_tensors((4, 4))
    return repeated(x.realize)


def assign() -> float:
    x, y = random_tensors((4, 4), (4, 4))
    return repeated(lambda: x.assign(y).realize())


def assign_computed() -> float:
    (x,) = random_tensors((4, 4))
    return repeated(lambda: x.assign(x + 1).realize())


def set_item() -> float:
    (x,) = random_tensors((64,))
    return repeated(lambda: x.__setitem__(5, 1))


def replay() -> float:
    (x,) = random_tensors((4, 4))
    function = TinyJit(lambda x: (x + 1).realize())
    return repeated(lambda: function(x))


def read_on_the_way() -> float:
    """Milliseconds for a chain of 24 stored products, each of which is read once it is made."""
    x, *weights = random_tensors((4, 64), *[(64, 64)] * 24)

    def chain() -> None:
        y = x
        for weight in weights:
            y = (y @ weight).contiguous()
            y.sum().realize()

    return median_ms(chain)


def replay_write() -> float:
    """A captured function that writes a tensor which it reaches by name."""
    count, one = random_tensors((1,), (1,))
    function = TinyJit(lambda x: count.assign(count + x))
    return repeated(lambda: function(one))


def hash_numbers() -> float:
    """Fifty blocks of 24 rounds, realized block by block."""
    (x,) = random_tensors((2,))
    return median_ms(lambda: x.hash().realize(), repeats=3, warmup=1)


def torch_statement(run: Callable[[Any, Any], object]) -> Callable[[], float]:
    """The same with two torch tensors."""

    def measure() -> float:
        import torch

        x, y = torch.randn(8, 8), torch.randn(8, 8)
        return repeated(lambda: run(x, y))

    return measure


class Step:
    """The transformer's loss and gradients, built and scheduled but not run."""

    def __init__(self) -> None:
        self.model = Transformer(vocab=VOCAB, dim=256, layers=12, seq=SEQ)
        self.parameters = nn.state.get_parameters(self.model)
        for parameter in self.parameters:
            parameter.requires_grad_()
        Tensor.realize(*self.parameters)
        self.tokens = Tensor.randint(BATCH, SEQ, high=VOCAB).realize()

    def build(self) -> list[Tensor]:
        for parameter in self.parameters:
            parameter.grad = None
        loss = self.model(self.tokens).sparse_categorical_crossentropy(self.tokens).backward()
        return [loss, *[p.grad for p in self.parameters if p.grad is not None]]

    def schedule_ms(self) -> float:
        """Milliseconds to schedule, without building."""
        first, *rest = self.build()
        start = time.perf_counter()
        first.schedule(*rest)
        return (time.perf_counter() - start) * 1e3


def schedule_again() -> float:
    step = Step()
    step.schedule_ms()
    return statistics.median(step.schedule_ms() for _ in range(3))


SQUARE = (4, 4)
BENCHMARKS = [
    Benchmark("1000 Tensor ops", add_ops, torch_add_ops),
    Benchmark(
        "1000 products, build",
        build(matmul, SQUARE, SQUARE),
        torch_build(matmul, SQUARE, SQUARE),
    ),
    Benchmark("1000 softmax, build", build(softmax, SQUARE), torch_build(softmax, SQUARE)),
    Benchmark("1000 LayerNorm, build", layer_norm, torch_layer_norm),
    Benchmark("1000 gradients, build", backward, torch_backward),
    Benchmark("1000 small realizes", realize_computed, torch_statement(lambda x, y: x + 1)),
    Benchmark("1000 realizes of stored", realize_again),
    Benchmark("1000 small assigns", assign, torch_statement(lambda x, y: x.copy_(y))),
    Benchmark("1000 x += 1", assign_computed, torch_statement(lambda x, y: x.add_(1))),
    Benchmark("1000 x[5] = 1", set_item, torch_statement(lambda x, y: x.__setitem__(5, 1))),
    Benchmark("1000 small replays", replay),
    Benchmark("1000 replays that write", replay_write),
    Benchmark("24 reads on the way", read_on_the_way),
    Benchmark("hash of 2 numbers", hash_numbers),
    Benchmark("transformer fwd+bwd, build", lambda: median_ms(Step().build, repeats=3, warmup=1)),
    Benchmark("transformer fwd+bwd, schedule", lambda: Step().schedule_ms()),
    Benchmark("transformer fwd+bwd, again", schedule_again),
]
