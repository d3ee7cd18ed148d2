"""Gradient descent with momentum: `SGD`, layerwise `LARS`, orthogonalised `Muon`.

A step takes parameters, gradients and momenta, and gives new parameters and new momenta.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygrad.nn.optim.adam import AdamW
from tinygrad.nn.optim.optimizer import Optimizer, norm, trust_ratio
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike


class LARS(Optimizer):
    """SGD with momentum and layerwise learning rates (https://arxiv.org/abs/1708.03888).

    `tcoef` scales the rate of a layer by |parameter| / |gradient|; 0 disables it. `classic`
    multiplies by the rate before the momentum, so that an old gradient keeps its old rate.
    `weight_decay` is added to the gradient if `pre_wd`, else it scales the parameter. `ns_steps`
    steps of Newton-Schulz with `ns_coefficients` make the update orthogonal, as `Muon` does.

    >>> weight = Tensor([3.0, 4.0])
    >>> optimizer = nn.optim.LARS([weight], lr=1.0, momentum=0.0, weight_decay=0.0, tcoef=0.1)
    >>> with Tensor.train():
    ...     _ = weight.sum().backward()
    ...     optimizer.step()
    >>> weight.numpy().round(3)  # by 0.1 * |weight| / |gradient|
    array([2.646, 3.646], dtype=float32)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        ns_steps: int = 0,
        ns_coefficients: tuple[float, float, float] | None = None,
        nesterov: bool = False,
        classic: bool = True,
        pre_wd: bool = True,
        tcoef: float = 0.001,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        self.elementwise = tcoef == 0 and ns_coefficients is None
        super().__init__(params, lr, fused, device=device)
        self._check_not_negative(momentum=momentum, weight_decay=weight_decay)
        self.momentum, self.wd, self.tcoef = momentum, weight_decay, tcoef
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        self.nesterov, self.classic, self.pre_wd = nesterov, classic, pre_wd
        self.b = self._new_state() if momentum else []

    def _step(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        pairs = enumerate(zip(params, grads, strict=True))
        return [self._updated(index, param, grad) for index, (param, grad) in pairs], self.b

    def _updated(self, index: int, param: Tensor, grad: Tensor) -> Tensor:
        """The new value of a parameter."""
        rate = self._beside(self.lr, param)
        if self.tcoef:
            size, slope = norm(param), norm(grad)
            rate = rate * trust_ratio(size, slope, self.tcoef * size / (slope + self.wd * size))
        if self.pre_wd and self.wd:
            grad = grad + self.wd * param
        if self.classic:
            grad = grad * rate
        if self.momentum:
            grad = self._brought(self._with_momentum(index, grad), param)
        if self.ns_coefficients is not None:
            grad = _orthogonal(grad, self.ns_steps, self.ns_coefficients)
        if not self.pre_wd and self.wd:
            param = param * (1 - self.wd * self._beside(self.lr, param))
        return param - (grad if self.classic else grad * rate)

    def _with_momentum(self, index: int, grad: Tensor) -> Tensor:
        """Update the momentum of a parameter; return the update direction."""
        momentum = self.b[index]
        grad = grad.to(momentum.device)
        momentum.assign((self.momentum * momentum + grad).cast(momentum.dtype))
        return grad + self.momentum * momentum if self.nesterov else momentum


class SGD(LARS):
    """Gradient descent: `param -= lr * grad`, with momentum and weight decay as in torch.

    `classic` multiplies by the rate before the momentum.

    >>> weight = Tensor([1.0])
    >>> optimizer = nn.optim.SGD([weight], lr=0.5, momentum=0.5)
    >>> with Tensor.train():
    ...     for _ in range(2):
    ...         optimizer.zero_grad()
    ...         _ = weight.sum().backward()
    ...         optimizer.step()
    >>> weight.tolist()  # 1 - 0.5 * 1 - 0.5 * (0.5 * 1 + 1)
    [-0.25]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        classic: bool = False,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            nesterov=nesterov,
            classic=classic,
            tcoef=0.0,
            fused=fused,
            device=device,
        )


class Muon(LARS):
    """Orthogonalised momentum (https://kellerjordan.github.io/posts/muon/).

    Vectors and numbers, which cannot be orthogonalised, are trained by `AdamW`, with the same rate
    and weight decay. For another rate, put both optimizers into an `OptimizerGroup`.

    >>> weight = Tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> optimizer = nn.optim.Muon([weight], lr=0.1, weight_decay=0.0)
    >>> with Tensor.train():
    ...     _ = (weight * Tensor([[100.0, 0.0], [0.0, 1.0]])).sum().backward()
    ...     optimizer.step()
    >>> bool((weight.numpy().diagonal() < 0.95).all())  # both directions take a step of about lr
    True
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        ns_steps: int = 5,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        nesterov: bool = True,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum,
            weight_decay,
            ns_steps,
            ns_coefficients,
            nesterov,
            classic=False,
            pre_wd=False,
            tcoef=0.0,
            fused=fused,
            device=device,
        )
        vectors = [param for param in self.params if param.ndim < 2]
        self.vectors = (
            AdamW(vectors, lr, weight_decay=weight_decay, fused=0, device=device)
            if vectors
            else None
        )

    def _step(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        if self.vectors is None:
            return super()._step(params, grads)
        self.vectors.lr = self.lr
        self.vectors._follow_parameters()
        flat = [index for index, param in enumerate(params) if param.ndim < 2]
        values, state = self.vectors._step([params[i] for i in flat], [grads[i] for i in flat])
        updated = dict(zip(flat, values, strict=True))
        for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
            if index not in updated:
                updated[index] = self._updated(index, param, grad)
                state += self.b[index : index + 1]
        return [updated[index] for index in range(len(params))], state


def _orthogonal(grad: Tensor, steps: int, coefficients: tuple[float, float, float]) -> Tensor:
    """Approximate the nearest (semi-)orthogonal matrix; axes after the first are flattened."""
    return grad.reshape(grad.shape[0], -1).newton_schulz(steps, coefficients).reshape(grad.shape)
