"""The base class of optimizers: gradients in, parameters updated in place.

Input: the tensors to train, each with its `grad` from `backward()`. Output: `step()` runs one
update; `schedule_step()` returns the tensors to realize instead, to be part of another `realize`.
Invariant: the state of a parameter (momenta) has the layout and device of that parameter, so an
update needs no communication. State is assigned first and the parameter computed from it
elementwise, so that one kernel does both and reads each element once.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tinygrad.dtype import dtypes, least_upper_dtype
from tinygrad.helpers import FUSE_OPTIM, dedup
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import TensorDevice


class Optimizer(ABC):
    """The base class of optimizers. `params` with `requires_grad=False` are realized with each
    step but not trained (running statistics); None becomes True.

    `lr` is a tensor of shape (1,): `optimizer.lr.assign(...)` changes it, also under the JIT. With
    `fused`, parameters of one dtype and device are updated as one flat tensor.
    Raises ValueError if there is nothing to train.

    A subclass gives `_step`:

    >>> class Halver(nn.optim.Optimizer):
    ...     def _step(self, params, grads):
    ...         return [param / 2 for param in params], []
    >>> weight = Tensor([6.0])
    >>> optimizer = Halver([weight], lr=0.1)
    >>> with Tensor.train():
    ...     _ = (weight * 3).sum().backward()
    ...     optimizer.step()
    >>> weight.tolist()
    [3.0]
    """

    elementwise = True
    """Whether the update is elementwise, so that tensors may be concatenated."""

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
        """Drop the gradients; otherwise the next `backward()` adds to them.

        >>> weight = Tensor([6.0])
        >>> optimizer = nn.optim.SGD([weight])
        >>> _ = (weight * 3).sum().backward()
        >>> optimizer.zero_grad()
        >>> weight.grad is None
        True
        """
        for param in self.params:
            param.grad = None

    def step(self) -> None:
        """Update every parameter and realize the result. Raises as `schedule_step` does.

        >>> weight = Tensor([6.0])
        >>> optimizer = nn.optim.SGD([weight], lr=1.0)
        >>> _ = (weight * 3).sum().backward()
        >>> with Tensor.train():
        ...     optimizer.step()
        >>> weight.tolist()
        [3.0]
        """
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Update every parameter lazily; return the tensors to realize, untrained ones included.

        Raises RuntimeError outside `Tensor.train()`, if a parameter has no gradient, and if one
        was moved after the optimizer was made.

        >>> weight = Tensor([6.0])
        >>> optimizer = nn.optim.SGD([weight], lr=1.0)
        >>> loss = (weight * 3).sum()
        >>> with Tensor.train():
        ...     loss.backward().realize(*optimizer.schedule_step()).item()
        18.0
        >>> weight.tolist()
        [3.0]
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
        """The new value of each of `params`, and the assigned state tensors.

        `params` are detached and concatenated by group, as the tensors of `_new_state` are.
        """

    def _gradients(self) -> list[Tensor]:
        missing = [
            f"number {index}, {describe(param)}"
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
        """Groups of parameters that are updated as one tensor: positions in `params`."""
        if not self.fused:
            return [[index] for index in range(len(self.params))]
        groups: dict[object, list[int]] = {}
        for index, param in enumerate(self.params):
            split = isinstance(param.device, Sharding) and not param.device.is_replicated
            # concatenating sharded tensors would move them between devices
            key = index if split else (param.dtype, param.device)
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def _join(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One detached tensor for each group: a single tensor unchanged, several flat and
        concatenated.
        """
        joined = []
        for group in self.groups:
            first, *rest = [tensors[index].detach() for index in group]
            flat = [member.flatten() for member in rest]
            joined.append(first.flatten().cat(*flat) if rest else first)
        return joined

    def _apply(self, group: Sequence[int], update: Tensor) -> None:
        """Assign the parameters of a group their slices of the concatenated tensor."""
        params = [self.params[index] for index in group]
        if len(params) == 1:
            params[0].assign(update.cast(params[0].dtype))
            return
        stops = list(itertools.accumulate(param.numel() for param in params))
        for param, start, stop in zip(params, [0, *stops], stops, strict=False):
            param.assign(update[start:stop].reshape(param.shape).cast(param.dtype))

    def _new_state(self) -> list[Tensor]:
        """Zeros for each group, with the shape and the layout of its (concatenated) parameters."""
        dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
        state = [
            param.zeros_like(dtype=dtype, requires_grad=False).contiguous()
            for param in self._join(self.params)
        ]
        return _give_memory(state)

    def _scalar(self, value: float) -> Tensor:
        """A stored number, (1,), replicated on the devices of the parameters."""
        dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
        scalar = Tensor([value], dtype=dtype, requires_grad=False)
        return _give_memory([scalar.to(_replicated(self.params[0]))])[0]

    def _beside(self, scalar: Tensor, param: Tensor) -> Tensor:
        """`scalar` on the devices of `param`; a copy if parameters are on different devices."""
        device = _replicated(param)
        return scalar if scalar.device == device else scalar.to(device)


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


def describe(param: Tensor) -> str:
    """A parameter, for an error message."""
    return f"a {param.dtype} of shape {param.shape} on {param.device}"


def norm(tensor: Tensor) -> Tensor:
    """The L2 norm of a tensor, flattened."""
    return tensor.square().sum().sqrt()


def trust_ratio(size: Tensor, slope: Tensor, ratio: Tensor) -> Tensor:
    """`ratio` if both norms are positive, else 1: a new layer may be all zeros."""
    return (size > 0).where((slope > 0).where(ratio, 1.0), 1.0)


def _give_memory(tensors: list[Tensor]) -> list[Tensor]:
    """Realize tensors that are not stored yet, and return them.

    An unrealized value would be computed in the first step, whose kernels would then differ from
    those of later steps.
    """
    for tensor in tensors:
        tensor.replace(tensor.contiguous())
    if tensors:
        Tensor.realize(*tensors)
    return tensors


def _replicated(param: Tensor) -> TensorDevice:
    """The replicated layout of the devices of `param`."""
    device = param.device
    return device.replicated() if isinstance(device, Sharding) else device
