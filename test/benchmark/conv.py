"""Convolutions in float32 and their gradients: the shapes of a residual network, of a separable one
and of a decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from test.benchmark.measure import Benchmark, jitted_ms, random_tensors, torch_ms
from tinygrad import Tensor


@dataclass(frozen=True)
class Layer:
    """Convolution of `size` images (channels, rows, columns) by a square kernel, stride 1 or 2.

    `groups` is the number of channels of a depthwise one. A transposed one has padding 1.
    """

    name: str
    images: tuple[int, int, int, int]
    outputs: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1
    transposed: bool = False

    @property
    def padding(self) -> int:
        return 1 if self.transposed else self.kernel // 2

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The shapes of the images, the weight, and the result."""
        batch, channels, *sizes = self.images
        square = self.kernel, self.kernel
        if self.transposed:
            sizes = [(d - 1) * self.stride + self.kernel - 2 * self.padding for d in sizes]
            return self.images, (channels, self.outputs, *square), (batch, self.outputs, *sizes)
        weight = (self.outputs, channels // self.groups, *square)
        return self.images, weight, (batch, self.outputs, *(d // self.stride for d in sizes))

    @property
    def gflop(self) -> float:
        """GFLOP of a forward pass, or of one gradient."""
        images, weight, result = self.shapes
        batch, _, *sizes = images if self.transposed else result
        return 2 * prod(weight) * batch * prod(sizes) / 1e9

    def ours(self, x: Tensor, w: Tensor) -> Tensor:
        conv = Tensor.conv_transpose2d if self.transposed else Tensor.conv2d
        return conv(x, w, groups=self.groups, stride=self.stride, padding=self.padding)

    def forward(self) -> float:
        return jitted_ms(self.ours, *random_tensors(*self.shapes[:2]))

    def gradient(self, number: int) -> float:
        def by(x: Tensor, w: Tensor, above: Tensor) -> Tensor:
            return self.ours(x, w).gradient((x, w)[number], gradient=above)[0]

        return jitted_ms(by, *random_tensors(*self.shapes))

    def torch_forward(self) -> float:
        import torch

        conv = torch.conv_transpose2d if self.transposed else torch.conv2d

        def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return conv(x, w, groups=self.groups, stride=self.stride, padding=self.padding)

        return torch_ms(forward, *self.shapes[:2])

    def torch_gradient(self, number: int) -> float:
        import torch

        stride, padding = [self.stride] * 2, [self.padding] * 2
        wanted = [number == 0, number == 1, False]
        backward = torch.ops.aten.convolution_backward

        def by(x: torch.Tensor, w: torch.Tensor, above: torch.Tensor) -> torch.Tensor:
            others = stride, padding, [1, 1], self.transposed, [0, 0], self.groups, wanted
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
    Layer("3x3 256", (8, 256, 14, 14), 256),
    Layer("3x3 depthwise", (8, 128, 56, 56), 128, groups=128),
    Layer("3x3 depthwise, stride 2", (8, 128, 56, 56), 128, stride=2, groups=128),
    Layer("4x4 transposed", (8, 64, 32, 32), 32, kernel=4, stride=2, transposed=True),
)
BENCHMARKS = [benchmark for layer in LAYERS for benchmark in layer.benchmarks()]
