"""`OptimizerGroup`: several optimizers, for different parameters, that step together."""

from __future__ import annotations

from tinygrad.garbage import no_garbage
from tinygrad.nn.optim.optimizer import Optimizer
from tinygrad.tensor import Tensor


class OptimizerGroup:
    """Several optimizers for different parameters that step together; `group[0]` is the first.

    >>> matrix, vector = Tensor.eye(2), Tensor([1.0, 1.0])
    >>> optimizer = nn.optim.OptimizerGroup(nn.optim.Muon([matrix]), nn.optim.AdamW([vector]))
    >>> len(optimizer.params)
    2
    """

    def __init__(self, *optimizers: Optimizer | OptimizerGroup) -> None:
        self.optimizers = optimizers
        self.params: list[Tensor] = [
            param for optimizer in optimizers for param in optimizer.params
        ]
        self.buffers: list[Tensor] = [
            buffer for optimizer in optimizers for buffer in optimizer.buffers
        ]

    def __getitem__(self, index: int) -> Optimizer | OptimizerGroup:
        return self.optimizers[index]

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters.

        >>> weight = Tensor([6.0])
        >>> optimizer = nn.optim.OptimizerGroup(nn.optim.SGD([weight]))
        >>> _ = (weight * 3).sum().backward()
        >>> optimizer.zero_grad()
        >>> weight.grad is None
        True
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """Update all parameters in one realize.

        >>> slow, fast = Tensor([6.0]), Tensor([6.0])
        >>> optimizer = nn.optim.OptimizerGroup(
        ...     nn.optim.SGD([slow], lr=1.0), nn.optim.SGD([fast], lr=2.0)
        ... )
        >>> _ = (slow + fast).sum().backward()
        >>> with Tensor.train():
        ...     optimizer.step()
        >>> slow.item(), fast.item()
        (5.0, 4.0)
        """
        with no_garbage():
            Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """The tensors to realize of all optimizers, in order.

        >>> weight = Tensor([6.0])
        >>> optimizer = nn.optim.OptimizerGroup(nn.optim.SGD([weight], lr=1.0))
        >>> _ = weight.sum().backward()
        >>> with Tensor.train():
        ...     _ = Tensor.realize(*optimizer.schedule_step())
        >>> weight.item()
        5.0
        """
        return [tensor for optimizer in self.optimizers for tensor in optimizer.schedule_step()]
