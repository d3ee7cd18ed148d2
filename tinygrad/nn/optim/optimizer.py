"""The base class of optimizers: gradients in, parameters updated in place.

Input: the tensors to train, each with its `grad` from `backward()`. Output: `step()` runs one
update; `schedule_step()` returns the tensors to realize instead, to be part of another `realize`.
Invariant: the state of a parameter (momenta) has the layout and device of that parameter, also
after the parameter was moved, so an update needs no communication; only state that the user placed
elsewhere stays there. State is assigned first and the parameter computed from it elementwise, so
that one kernel does both and reads each element once.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from tinygrad.dtype import DType, dtypes, least_upper_dtype
from tinygrad.errors import ArgumentError
from tinygrad.garbage import no_garbage
from tinygrad.helpers import FUSE_OPTIM, dedup, prod
from tinygrad.mixin.precision import in_float32
from tinygrad.sharding import Sharding
from tinygrad.storage.gradients.leaves import make_leaf
from tinygrad.storage.placement import canonical_device
from tinygrad.storage.views import is_constant, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import DeviceLike, TensorDevice, device_names, is_file


class Optimizer(ABC):
    """The base class of optimizers. `params` with `requires_grad=False` are realized with each
    step but not trained (running statistics); None becomes True.

    `lr` is a tensor of shape (1,): `optimizer.lr.assign(...)` changes it, also under the JIT. A
    number that is set becomes a new tensor, and `TinyJit` captures again. State is float32, or
    float64 for parameters of float64. With `fused`, parameters of one dtype and device are
    updated as one flat tensor. Raises ValueError if there is nothing to train, and for a negative
    rate, momentum or weight decay.

    State, such as a running mean, is made where its parameter is. After the parameter was moved
    or sharded, the next step moves its state there too. State that you moved elsewhere stays where
    you put it, and is updated there: on another device (offloading), or sharded where its parameter
    is replicated (ZeRO). With `device`, all state is made there, and `lr` too.

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

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        fused: int | None = None,
        *,
        device: DeviceLike = None,
    ) -> None:
        if not isinstance(params, Iterable):
            raise TypeError(f"{type(self).__name__} takes a list of tensors, not {params!r}")
        params = list(params)
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"{type(self).__name__} trains tensors, not {param!r}")
            if param.requires_grad is None:
                param.requires_grad = True
        self.params = dedup([param for param in params if param.requires_grad])
        self.buffers = dedup([param for param in params if not param.requires_grad])
        if not self.params:
            raise ArgumentError(
                f"{type(self).__name__} got no parameter to train among {len(params)} tensors; "
                "pass nn.state.get_parameters(model), with requires_grad left None or True"
            )
        self.state_device = canonical_device(device)
        self.devices = self._training_devices()
        _give_memory(self.params + self.buffers)
        for param in self.params:
            make_leaf(param)
        self.fused = bool(FUSE_OPTIM.value if fused is None else fused) and self.elementwise
        self.groups = self._split([list(range(len(self.params)))])
        self.lr = lr

    @property
    def lr(self) -> Tensor:
        """The learning rate, (1,)."""
        rate: Tensor = vars(self)["lr"]  # so that state dictionaries call it lr
        return rate

    @lr.setter
    def lr(self, rate: Tensor | float) -> None:
        if not isinstance(rate, Tensor):
            self._check_not_negative(lr=rate)
            rate = self._scalar(rate)
        vars(self)["lr"] = rate

    @property
    def device(self) -> TensorDevice:
        """The device of `lr`: that given for state, else that of the first parameter."""
        return self.params[0].device if self.state_device is None else self.state_device

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
        with no_garbage():
            Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Update every parameter lazily; return the tensors to realize, untrained ones included.

        State follows parameters that were moved. Raises RuntimeError outside `Tensor.train()`, and
        if a parameter has no gradient.

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
        gradients = self._gradients()
        self._follow_parameters()
        params, grads = self._join(self.params), self._join(gradients)
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

    def _check_not_negative(self, **numbers: float) -> None:
        """Raises ArgumentError for a number that is negative, or is none."""
        for name, number in numbers.items():
            if not number >= 0:
                raise ArgumentError(f"{type(self).__name__}: {name}={number} must be nonnegative")

    def _training_devices(self) -> list[TensorDevice]:
        """The device of each parameter. Raises ArgumentError for one in a file."""
        for index, param in enumerate(self.params):
            if is_file(param.device):
                raise ArgumentError(
                    f"{type(self).__name__}: parameter number {index}, {describe(param)}, is in a "
                    "file, where nothing is computed; move it to a device first: param.to_(None)"
                )
        return [param.device for param in self.params]

    def _gradients(self) -> list[Tensor]:
        missing = [
            f"number {index}, {describe(param)}"
            for index, param in enumerate(self.params)
            if param.grad is None
        ]
        if missing:
            raise RuntimeError(
                f"{type(self).__name__}: {len(missing)} of {len(self.params)} parameters have no "
                f"gradient: "
                f"{'; '.join(missing)}. Call loss.backward() first; leave out those that the loss "
                "does not depend on, or set their requires_grad to False "
                "(get_state_dict(model) names them in this order)"
            )
        return [param.grad for param in self.params if param.grad is not None]

    def _split(self, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        """Groups of parameters that are updated as one tensor, positions in `params`: those given,
        split where parameters cannot be concatenated.
        """
        if not self.fused:
            return [[index] for group in groups for index in group]
        found: dict[object, list[int]] = {}
        for number, group in enumerate(groups):
            for index in group:
                param = self.params[index]
                split = isinstance(param.device, Sharding) and not param.device.is_replicated
                # concatenating sharded tensors would move them between devices
                key = index if split else (number, param.dtype, param.device)
                found.setdefault(key, []).append(index)
        return list(found.values())

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

    def _pieces(self, group: Sequence[int], joined: Tensor) -> list[Tensor]:
        """The (concatenated) tensor of a group as one tensor for each parameter."""
        if len(group) == 1:
            return [joined]
        shapes = [self.params[index].shape for index in group]
        stops = list(itertools.accumulate(prod(shape) for shape in shapes))
        return [
            joined[start:stop].reshape(shape)
            for shape, start, stop in zip(shapes, [0, *stops], stops, strict=False)
        ]

    def _apply(self, group: Sequence[int], update: Tensor) -> None:
        """Assign the parameters of a group their slices of the concatenated tensor."""
        for index, piece in zip(group, self._pieces(group, update), strict=True):
            param = self.params[index]
            param.assign(piece.cast(param.dtype))

    def _follow_parameters(self) -> None:
        """Move state to parameters that were moved, unless it had been placed elsewhere."""
        before, self.devices = self.devices, self._training_devices()
        if before == self.devices:
            return
        lists = self._state_lists()
        groups, self.groups = self.groups, self._split(self.groups)
        moved = [x for x in vars(self).values() if isinstance(x, Tensor)]
        for number in moved:
            if self.state_device is None and number.device == _replicated(before[0]):
                number.to_(_replicated(self.devices[0]))
        for tensors in lists:
            if groups != self.groups:
                tensors[:] = self._regrouped(groups, tensors)
            for group, tensor in zip(self.groups, tensors, strict=True):
                if self.state_device is None and tensor.device == before[group[0]]:
                    tensor.to_(self.devices[group[0]])
            moved += tensors
        _give_memory(moved + self.params)

    def _state_lists(self) -> list[list[Tensor]]:
        """The attributes that hold a tensor of state for each group."""
        return [
            value
            for name, value in vars(self).items()
            if isinstance(value, list)
            and name not in {"params", "buffers"}
            and len(value) == len(self.groups)
            and all(isinstance(x, Tensor) for x in value)
        ]

    def _regrouped(
        self, groups: Sequence[Sequence[int]], tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        """Tensors of `groups`, concatenated by the groups of now."""
        pieces: dict[int, Tensor] = {}
        for group, tensor in zip(groups, tensors, strict=True):
            pieces.update(zip(group, self._pieces(group, tensor), strict=True))
        return self._join([pieces[index] for index in range(len(self.params))])

    def _new_state(self) -> list[Tensor]:
        """Zeros for each group, with the shape of its (concatenated) parameters, and in their
        layout unless a device was given.
        """
        state = [
            param.zeros_like(
                dtype=_state_dtype(param),
                device=param.device if self.state_device is None else self.state_device,
                requires_grad=False,
            ).contiguous()
            for param in self._join(self.params)
        ]
        return _give_memory(state)

    def _scalar(self, value: float) -> Tensor:
        """A stored number, (1,), replicated on the devices of the parameters, or of state."""
        scalar = Tensor([value], dtype=_state_dtype(*self.params), requires_grad=False)
        return scalar.to(_replicated(self.device)).realize()

    def _beside(self, scalar: Tensor, tensor: Tensor) -> Tensor:
        """`scalar` on the devices of `tensor`, to combine with it: a copy if parameters are on
        different devices, and without axes if `tensor` has none.
        """
        device = _replicated(tensor.device)
        beside = scalar if scalar.device == device else scalar.to(device)
        return beside if tensor.ndim else beside.reshape(())

    def _brought(self, direction: Tensor, param: Tensor) -> Tensor:
        """The direction of an update, from where the state is to the devices of the parameter.

        On the same devices, it keeps its layout, and the updated parameter is moved.
        """
        here, there = direction.device, param.device
        if here == there or set(device_names(here)) == set(device_names(there)):
            return direction
        return direction.to(there)


def describe(param: Tensor) -> str:
    """A parameter, for an error message."""
    return f"a {param.dtype} of shape {param.shape} on {param.device}"


@in_float32
def norm(tensor: Tensor) -> Tensor:
    """The L2 norm of a tensor, flattened."""
    return tensor.square().sum().sqrt()


def trust_ratio(size: Tensor, slope: Tensor, ratio: Tensor) -> Tensor:
    """`ratio` if both norms are positive, else 1: a new layer may be all zeros."""
    return (size > 0).where((slope > 0).where(ratio, 1.0), 1.0)


def _state_dtype(*params: Tensor) -> DType:
    """The dtype of state beside parameters: float32, or that of the parameters if it is larger."""
    types = [param.dtype for param in params]
    return least_upper_dtype(dtypes.default_float, dtypes.float32, *types)


def _give_memory(tensors: list[Tensor]) -> list[Tensor]:
    """Realize tensors that are not stored yet, and return them. Views of them stay views.

    An unrealized value would be computed in the first step, whose kernels would then differ from
    those of later steps.
    """
    for tensor in tensors:
        if is_constant(tensor.uop) or view_base(tensor.uop) is not tensor.uop:
            tensor.replace(tensor.contiguous())
    if tensors:
        Tensor.realize(*tensors)
    return tensors


def _replicated(device: TensorDevice) -> TensorDevice:
    """`device`; for a layout, the replicated one over the same devices."""
    return device.replicated() if isinstance(device, Sharding) else device
