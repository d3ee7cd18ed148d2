"""Optimizers: gradients in, parameters changed in place.

In: the tensors to train, each with its `grad` from `backward()`. Out: `step()` runs one update of
everything; `schedule_step()` gives the tensors to realize instead, to join another `realize`.
Always true: the state of a parameter (momenta) has the layout and device of that parameter, so an
update crosses no devices. State is assigned first and the parameter computed from it element by
element, so that one kernel does both and reads each once.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.helpers import FUSE_OPTIM, dedup
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor


class Optimizer(ABC):
    """What all optimizers share. `params` with `requires_grad=False` are kept up to date but not
    trained (running statistics); None becomes True.

    `lr` is a tensor of shape (1,): `optimizer.lr.assign(...)` changes it, also under the JIT. With
    `fused`, parameters of one dtype and device are updated as one flat tensor.
    Raises ValueError if there is nothing to train.
    """

    elementwise = True
    """Whether an element's update depends on that element alone, so that tensors may be joined."""

    def __init__(self, params: Sequence[Tensor], lr: float, fused: int | None = None) -> None:
        for param in params:
            if param.requires_grad is None:
                param.requires_grad = True
        self.params = dedup([param for param in params if param.requires_grad])
        self.buffers = dedup([param for param in params if not param.requires_grad])
        if not self.params:
            raise ValueError(
                f"{type(self).__name__} got no parameter to train among {len(params)} tensors; "
                "pass nn.state.get_parameters(model), with requires_grad left None or True"
            )
        _give_memory(self.params + self.buffers)
        self.devices = [param.device for param in self.params]
        self.fused = bool(FUSE_OPTIM.value if fused is None else fused) and self.elementwise
        self.groups = self._group()
        self.lr = self._scalar(lr)

    def zero_grad(self) -> None:
        """Forgets the gradients; without it, the next `backward()` adds to them."""
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Updates every parameter and runs it. Raises as `schedule_step` does."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Updates every parameter lazily: the tensors to realize, also the untrained ones.

        Raises RuntimeError outside `Tensor.train()`, if a parameter has no gradient, and if one
        was moved after the optimizer was made.
        """
        if not Tensor.training:
            raise RuntimeError(
                f"{type(self).__name__}.step() needs Tensor.training, which is False; "
                "put the training step in `with Tensor.train():`"
            )
        for index, (param, device) in enumerate(zip(self.params, self.devices, strict=True)):
            if param.device != device:
                raise RuntimeError(
                    f"parameter number {index} was moved from {device} to {param.device}, and its "
                    f"state was not; make the {type(self).__name__} after moving the parameters"
                )
        params, grads = self._join(self.params), self._join(self._gradients())
        updates, state = self._step(params, grads)
        for group, update in zip(self.groups, updates, strict=True):
            self._apply(group, update)
        return state + self.params + self.buffers

    @abstractmethod
    def _step(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The new value of each of `params`, and the state tensors, already assigned to.

        `params` are detached, and joined by group, as the tensors of `_new_state` are.
        """

    def _gradients(self) -> list[Tensor]:
        missing = [
            f"number {index}, {_describe(param)}"
            for index, param in enumerate(self.params)
            if param.grad is None
        ]
        if missing:
            raise RuntimeError(
                f"{len(missing)} of {len(self.params)} parameters have no gradient: "
                f"{'; '.join(missing)}. Call loss.backward() first; leave out those that the loss "
                "does not depend on, or set their requires_grad to False "
                "(get_state_dict(model) names them in this order)"
            )
        return [param.grad for param in self.params if param.grad is not None]

    def _group(self) -> list[list[int]]:
        """Which parameters are updated as one tensor: positions in `params`."""
        if not self.fused:
            return [[index] for index in range(len(self.params))]
        groups: dict[object, list[int]] = {}
        for index, param in enumerate(self.params):
            split = isinstance(param.device, Sharding) and not param.device.is_replicated
            # joining tensors that are split would move them between devices
            key = index if split else (param.dtype, param.device)
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def _join(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One tensor a group: a tensor alone as it is, several flat and end to end; detached."""
        joined = []
        for group in self.groups:
            members = [tensors[index].detach() for index in group]
            first, *rest = [member.flatten() for member in members]
            joined.append(first.cat(*rest) if rest else members[0])
        return joined

    def _apply(self, group: Sequence[int], update: Tensor) -> None:
        """Gives the parameters of a group their values out of the joined one."""
        params = [self.params[index] for index in group]
        if len(params) == 1:
            params[0].assign(update.cast(params[0].dtype))
            return
        stops = list(itertools.accumulate(param.numel() for param in params))
        for param, start, stop in zip(params, [0, *stops], stops, strict=False):
            param.assign(update[start:stop].reshape(param.shape).cast(param.dtype))

    def _new_state(self) -> list[Tensor]:
        """Zeros for each group, with the shape and the layout of its (joined) parameters."""
        dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
        state = [
            param.zeros_like(dtype=dtype, requires_grad=False).contiguous()
            for param in self._join(self.params)
        ]
        return _give_memory(state)

    def _scalar(self, value: float) -> Tensor:
        """A number kept in memory, (1,), on the devices of the parameters: a full copy on each."""
        dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
        scalar = Tensor([value], dtype=dtype, requires_grad=False)
        return _give_memory([scalar.to(_replicated(self.params[0]))])[0]

    def _beside(self, scalar: Tensor, param: Tensor) -> Tensor:
        """`scalar` where `param` lives: only parameters on different devices need a copy."""
        device = _replicated(param)
        return scalar if scalar.device == device else scalar.to(device)


class LARS(Optimizer):
    """Gradient descent with momentum, and a rate for each layer (https://arxiv.org/abs/1708.03888).

    `tcoef` scales the rate of a layer by |parameter| / |gradient|; 0 turns that off. `classic`
    multiplies by the rate before the momentum, so that an old gradient keeps its old rate.
    `weight_decay` joins the gradient if `pre_wd`, else shrinks the parameter. `ns_steps` steps of
    Newton-Schulz with `ns_coefficients` make the update orthogonal, as `Muon` does.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
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
    ) -> None:
        self.elementwise = tcoef == 0 and ns_coefficients is None
        super().__init__(params, lr, fused)
        self.momentum, self.wd, self.tcoef = momentum, weight_decay, tcoef
        self.ns_steps, self.ns_coefficients = ns_steps, ns_coefficients
        self.nesterov, self.classic, self.pre_wd = nesterov, classic, pre_wd
        self.b = self._new_state() if momentum else []

    def _step(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        updated = []
        for index, (param, grad) in enumerate(zip(params, grads, strict=True)):
            rate = self._beside(self.lr, param)
            if self.tcoef:
                size, slope = _norm(param), _norm(grad)
                rate = rate * _trust(size, slope, self.tcoef * size / (slope + self.wd * size))
            if self.pre_wd and self.wd:
                grad = grad + self.wd * param
            if self.classic:
                grad = grad * rate
            if self.momentum:
                grad = self._with_momentum(index, grad)
            if self.ns_coefficients is not None:
                grad = _orthogonal(grad, self.ns_steps, self.ns_coefficients)
            if not self.pre_wd and self.wd:
                param = param * (1 - self.wd * self._beside(self.lr, param))
            updated.append(param - (grad if self.classic else grad * rate))
        return updated, self.b

    def _with_momentum(self, index: int, grad: Tensor) -> Tensor:
        """Moves the momentum of a parameter; gives the direction to go."""
        momentum = self.b[index]
        momentum.assign((self.momentum * momentum + grad).cast(momentum.dtype))
        return grad + self.momentum * momentum if self.nesterov else momentum


def SGD(
    params: Sequence[Tensor],
    lr: float = 0.001,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    classic: bool = False,
    fused: int | None = None,
) -> LARS:
    """Gradient descent: `param -= lr * grad`, with momentum and weight decay as in torch.

    `classic` multiplies by the rate before the momentum.
    """
    return LARS(
        params,
        lr,
        momentum,
        weight_decay,
        nesterov=nesterov,
        classic=classic,
        tcoef=0.0,
        fused=fused,
    )


def Muon(
    params: Sequence[Tensor],
    lr: float = 0.001,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
    ns_steps: int = 5,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
    nesterov: bool = True,
    fused: int | None = None,
) -> LARS:
    """Momentum made orthogonal, for parameters of two axes or more.

    https://kellerjordan.github.io/posts/muon/. Raises ValueError for a vector, which has no
    orthogonal form: train those with `AdamW` and put both into an `OptimizerGroup`.
    """
    for param in params:
        if param.ndim < 2 and param.requires_grad is not False:
            raise ValueError(
                f"Muon got {_describe(param)}; it trains tensors of two axes or more. "
                "Use OptimizerGroup(Muon(matrices), AdamW(vectors))"
            )
    return LARS(
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
    )


class LAMB(Optimizer):
    """Adam with a rate for each layer (https://arxiv.org/abs/1904.00962); `adam` turns that off.

    `weight_decay` is decoupled from the gradient, as in AdamW. `m` and `v` are the running mean and
    mean square of the gradients, `b1_t` and `b2_t` the powers that correct their start at zero.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        fused: int | None = None,
    ) -> None:
        self.elementwise = adam
        super().__init__(params, lr, fused)
        self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
        self.b1_t, self.b2_t = self._scalar(1.0), self._scalar(1.0)
        self.m, self.v = self._new_state(), self._new_state()

    def _step(
        self, params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        self.b1_t.assign(self.b1_t * self.b1)
        self.b2_t.assign(self.b2_t * self.b2)
        updated = []
        for param, grad, m, v in zip(params, grads, self.m, self.v, strict=True):
            m.assign((self.b1 * m + (1 - self.b1) * grad).cast(m.dtype))
            v.assign((self.b2 * v + (1 - self.b2) * grad.square()).cast(v.dtype))
            mean = m / (1 - self._beside(self.b1_t, param))
            mean_square = v / (1 - self._beside(self.b2_t, param))
            direction = mean / (mean_square.sqrt() + self.eps)
            if self.wd:
                direction = direction + self.wd * param
            rate = self._beside(self.lr, param)
            if not self.adam:
                size, step = _norm(param), _norm(direction)
                rate = rate * _trust(size, step, size / step)
            updated.append(param - rate * direction)
        return updated, [self.b1_t, self.b2_t, *self.m, *self.v]


def AdamW(
    params: Sequence[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    fused: int | None = None,
) -> LAMB:
    """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101)."""
    return LAMB(params, lr, b1, b2, eps, weight_decay, adam=True, fused=fused)


def Adam(
    params: Sequence[Tensor],
    lr: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    fused: int | None = None,
) -> LAMB:
    """Steps of about `lr` in the direction of the mean gradient (https://arxiv.org/abs/1412.6980)."""
    return LAMB(params, lr, b1, b2, eps, 0.0, adam=True, fused=fused)


class OptimizerGroup:
    """Several optimizers, for different parameters, that step as one; `group[0]` is the first."""

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
        """Forgets the gradients of all parameters."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        """Updates every parameter and runs it, at once."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """What the optimizers give, in their order."""
        return [tensor for optimizer in self.optimizers for tensor in optimizer.schedule_step()]


def _give_memory(tensors: list[Tensor]) -> list[Tensor]:
    """Stores tensors that are not stored yet, and returns them.

    A constant or unrealized value would be computed in the first step, whose kernels then would
    differ from those of all other steps.
    """
    for tensor in tensors:
        tensor.replace(tensor.contiguous())
    if tensors:
        Tensor.realize(*tensors)
    return tensors


def _replicated(param: Tensor) -> str | Sharding:
    """Where a full copy on each device of `param` lives."""
    device = param.device
    return device.replicated() if isinstance(device, Sharding) else device


def _describe(param: Tensor) -> str:
    return f"a {param.dtype} of shape {param.shape} on {param.device}"


def _norm(tensor: Tensor) -> Tensor:
    return tensor.square().sum().sqrt()


def _orthogonal(grad: Tensor, steps: int, coefficients: tuple[float, float, float]) -> Tensor:
    """The nearest (semi-)orthogonal matrix, about; later axes count as one."""
    return grad.reshape(grad.shape[0], -1).newton_schulz(steps, coefficients).reshape(grad.shape)


def _trust(size: Tensor, slope: Tensor, ratio: Tensor) -> Tensor:
    """`ratio` where both norms are positive, else 1: a new layer may be all zeros."""
    return (size > 0).where((slope > 0).where(ratio, 1.0), 1.0)
