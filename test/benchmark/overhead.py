"""Python overhead: ops on Tensors, and building and scheduling a transformer's training step."""

from __future__ import annotations

import statistics
import time

from test.benchmark.measure import Benchmark, median_ms, random_tensors
from test.models.transformer import Transformer
from tinygrad import Tensor, nn

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


BENCHMARKS = [
    Benchmark("1000 Tensor ops", add_ops, torch_add_ops),
    Benchmark("transformer fwd+bwd, build", lambda: median_ms(Step().build, repeats=3, warmup=1)),
    Benchmark("transformer fwd+bwd, schedule", lambda: Step().schedule_ms()),
    Benchmark("transformer fwd+bwd, again", schedule_again),
]
