"""Convolutions in float32 and their gradients: the shapes of a residual network, and one more."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms
from tinygrad import Tensor


@dataclass(frozen=True)
class Layer:
    """Convolution of `size` images (channels, rows, columns) by a square kernel, stride 1 or 2."""

    name: str
    images: tuple[int, int, int, int]
    outputs: int
    kernel: int = 3
    stride: int = 1

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of the images, the weight, and the result."""
        batch, channels, *sizes = self.images
        weight = (self.outputs, channels, self.kernel, self.kernel)
        return self.images, weight, (batch, self.outputs, *(d // self.stride for d in sizes))

    @property
    def gflop(self) -> float:
        """GFLOP of a forward pass, or of one gradient."""
        _, weight, (batch, _, *sizes) = self.shapes
        return 2 * prod(weight) * batch * prod(sizes) / 1e9

    def forward(self) -> float:
        def conv(x: Tensor, w: Tensor) -> Tensor:
            return x.conv2d(w, stride=self.stride, padding=self.kernel // 2)

        return jitted_ms(conv, *random_tensors(*self.shapes[:2]))

    def gradient(self, number: int) -> float:
        def by(x: Tensor, w: Tensor, above: Tensor) -> Tensor:
            y = x.conv2d(w, stride=self.stride, padding=self.kernel // 2)
            return y.gradient((x, w)[number], gradient=above)[0]

        return jitted_ms(by, *random_tensors(*self.shapes))

    def torch_forward(self) -> float:
        import torch

        def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return torch.conv2d(x, w, stride=self.stride, padding=self.kernel // 2)

        return torch_ms(conv, *self.shapes[:2])

    def torch_gradient(self, number: int) -> float:
        import torch

        stride, padding = [self.stride] * 2, [self.kernel // 2] * 2
        wanted = [number == 0, number == 1, False]
        backward = torch.ops.aten.convolution_backward

        def by(x: torch.Tensor, w: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
            others = stride, padding, [1, 1], False, [0, 0], 1, wanted
            return backward(above, x, w, None, *others)[number]

        return torch_ms(by, *self.shapes)

    def benchmarks(self) -> list[Benchmark]:
        """Forward pass, and the gradients of the images and of the weight."""
        name, gflop = f"conv {self.name}", self.gflop
        return [
            Benchmark(name, self.forward, self.torch_forward, gflop),
            *(
                Benchmark(
                    f"{name}, by {operand}",
                    lambda i=i: self.gradient(i),
                    lambda i=i: self.torch_gradient(i),
                    gflop,
                )
                for i, operand in enumerate(("images", "weight"))
            ),
        ]


LAYERS = (
    Layer("3x3 64", (32, 64, 32, 32), 64),
    Layer("3x3 64, large", (8, 64, 56, 56), 64),
    Layer("3x3 128", (8, 128, 28, 28), 128),
    Layer("3x3 512", (8, 512, 7, 7), 512),
    Layer("3x3 64 to 128, stride 2", (8, 64, 56, 56), 128, stride=2),
    Layer("7x7 3 to 64, stride 2", (4, 3, 224, 224), 64, kernel=7, stride=2),
)
BENCHMARKS = [benchmark for layer in LAYERS for benchmark in layer.benchmarks()]
