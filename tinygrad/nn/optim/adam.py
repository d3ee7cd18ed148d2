"""Adam and its variants: `AdamW`, and `LAMB` with layerwise learning rates.

A step takes parameters, gradients and the running means of both moments, and gives new parameters
and new means. All three classes compute it in `LAMB`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygrad.dtype import least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.nn.optim.optimizer import Optimizer, norm, trust_ratio
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike


class LAMB(Optimizer):
    """Adam with layerwise learning rates (https://arxiv.org/abs/1904.00962); `adam` disables them.

    `weight_decay` is decoupled from the gradient, as in AdamW. `m` and `v` are the running mean and
    mean square of the gradients, `b1_t` and `b2_t` the powers that correct their start at zero.

    >>> weight = Tensor([3.0, 4.0])
    >>> optimizer = nn.optim.LAMB([weight], lr=0.1)
    >>> with Tensor.train():
    ...     _ = weight.sum().backward()
    ...     optimizer.step()
    >>> weight.numpy().round(3)  # by 0.1 * |weight|, in the direction (1, 1) / |(1, 1)|
    array([2.646, 3.646], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        self.elementwise = adam
        super().__init__(params, lr, fused, device=device)
        self._check_not_negative(weight_decay=weight_decay, eps=eps)
        if not (0 <= b1 < 1 and 0 <= b2 < 1):
            raise ArgumentError(f"{type(self).__name__}: b1={b1} and b2={b2} must be in [0, 1)")
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        self.b1_t, self.b2_t = self._scalar(1.0), self._scalar(1.0)
        self.m, self.v = self._new_state(), self._new_state()

    def _step(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        mean_scale, square_scale = 1 - self.b1_t, 1 - self.b2_t
        updated = []
        for param, grad, m, v in zip(params, grads, self.m, self.v, strict=True):
            # if the state is sharded, the all-reduce of the gradient becomes a reduce-scatter
            grad = grad.to(m.device).cast(least_upper_dtype(grad.dtype, m.dtype))
            m.assign((self.b1 * m + (1 - self.b1) * grad).cast(m.dtype))
            v.assign((self.b2 * v + (1 - self.b2) * grad.square()).cast(v.dtype))
            mean = m / self._beside(mean_scale, m)
            mean_square = v / self._beside(square_scale, v)
            direction = self._brought(mean / (mean_square.sqrt() + self.eps), param)
            if self.wd:
                direction = direction + self.wd * param
            rate = self._beside(self.lr, param)
            if not self.adam:
                size, step = norm(param), norm(direction)
                rate = rate * trust_ratio(size, step, size / step)
            updated.append(param - rate * direction)
        return updated, [self.b1_t, self.b2_t, *self.m, *self.v]


class AdamW(LAMB):
    """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101).

    >>> weight = Tensor([1.0])
    >>> optimizer = nn.optim.AdamW([weight], lr=0.1, weight_decay=0.5)
    >>> with Tensor.train():
    ...     _ = (weight * 7).sum().backward()
    ...     optimizer.step()
    >>> weight.numpy().round(3)  # 1 - 0.1 * 1 - 0.1 * 0.5 * 1
    array([0.85], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        super().__init__(
            params, lr, b1, b2, eps, weight_decay, adam=True, fused=fused, device=device
        )


class Adam(LAMB):
    """Steps of about `lr` in the direction of the mean gradient (https://arxiv.org/abs/1412.6980).

    >>> weight = Tensor([1.0])
    >>> optimizer = nn.optim.Adam([weight], lr=0.1)
    >>> with Tensor.train():
    ...     _ = (weight * 7).sum().backward()
    ...     optimizer.step()
    >>> weight.numpy().round(3)
    array([0.9], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        super().__init__(params, lr, b1, b2, eps, 0.0, adam=True, fused=fused, device=device)
