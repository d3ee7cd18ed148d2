"""ResNet-18 (https://arxiv.org/abs/1512.03385) for images of 32x32, as on CIFAR-10."""

from __future__ import annotations

from tinygrad import Tensor, nn


class Block:
    """Two 3x3 convolutions and a shortcut: (batch, channels, size, size) to
    (batch, out_channels, size / stride, size / stride)."""

    def __init__(self, channels: int, out_channels: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm(out_channels)
        self.downsample: list[nn.Conv2d | nn.BatchNorm] = []
        if stride != 1 or channels != out_channels:
            self.downsample = [
                nn.Conv2d(channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm(out_channels),
            ]

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(inner)) + x.sequential(self.downsample)).relu()


class ResNet18:
    """Images (batch, 3, 32, 32) to scores (batch, classes); `width` channels in the first stage."""

    def __init__(self, classes: int = 10, width: int = 64) -> None:
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm(width)
        self.blocks: list[Block] = []
        channels = width
        for stage in range(4):
            for stride in (1 if stage == 0 else 2, 1):
                self.blocks.append(Block(channels, width << stage, stride))
                channels = width << stage
        self.fc = nn.Linear(channels, classes)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu().sequential(self.blocks)
        return self.fc(x.mean(axis=(2, 3)))
