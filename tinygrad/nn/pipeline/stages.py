"""`Pipeline`: a model in stages, each on its own devices, trained on microbatches.

Input: stages, the device of each stage's input, and a batch. Output: the loss of the batch and the
gradients, equal to those on one device. Invariants: stages send only the input of the next stage
and its gradient, once for each microbatch. A stage keeps the inputs of its microbatches in flight
and recomputes other values in the backward pass, except values marked with `.contiguous()`, which
are stored in the forward pass.

Tasks run in the order of the timetable, each as one `realize`. Tasks of one tick are independent,
so devices with their own queues run concurrently. All CPU devices share one thread pool and take
turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tinygrad.nn.pipeline.shared import (
    add_gradients,
    copies_for,
    replicate_shared,
    replicated_over,
    substituted,
)
from tinygrad.nn.pipeline.timetable import make_timetable
from tinygrad.nn.state import get_parameters
from tinygrad.sharding import Mesh, ShardingError
from tinygrad.storage.placement import canonical_device
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.device_value import DeviceLike, TensorDevice, device_names

Stage: TypeAlias = Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class Pipeline:
    """A model in stages: `stages[i]` is a function, or a list of them, from a tensor to a tensor.

    `devices[i]` is the device of its input, or the layout over several: a `Sharding`, a tuple of
    names or a `Mesh` (both replicated). Parameters of a stage that are not on these devices are
    moved there; others keep their layout. A parameter that stages on different devices share is
    replicated on all of them. With `schedule` "gpipe" a stage keeps all microbatches; with "1f1b"
    it keeps as many as there are stages from itself to the last. `timetable` is the task of each
    stage in each tick. Raises ValueError if there is not one place for each stage, and as
    `make_timetable` does.

    >>> first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    >>> model = Pipeline([[first, Tensor.relu], second], ["CPU", "CPU:1"], 2)
    >>> print(model.timetable)
    stage 0: F0 F1 .  B0 .  B1
    stage 1: .  F0 B0 F1 B1 .
    >>> model(Tensor.ones(6, 4)).device
    'CPU:1'
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        devices: Sequence[DeviceLike | Mesh],
        microbatches: int,
        schedule: str = "1f1b",
    ) -> None:
        if len(stages) != len(devices):
            raise ValueError(
                f"{len(stages)} stages on {len(devices)} devices; give each stage one device, or "
                "the layout of its input over several"
            )
        self.timetable = make_timetable(len(stages), microbatches, schedule)
        self.stages = list(stages)
        self.devices = [_place(device) for device in devices]
        self.microbatches = microbatches
        replicate_shared([get_parameters(stage) for stage in self.stages], self.devices)

    def __call__(self, x: Tensor) -> Tensor:
        """Call the stages in order, lazily, for inference."""
        for number, (stage, place) in enumerate(zip(self.stages, self.devices, strict=True)):
            with substituted(copies_for(place, get_parameters(stage))):
                x = self.run(number, x.to(place))
        return x

    def run(self, number: int, x: Tensor) -> Tensor:
        """The output of a stage.

        Raises TypeError if it is not a tensor, and ShardingError if a parameter of the stage is on
        other devices.
        """
        stage = self.stages[number]
        try:
            found = stage(x) if callable(stage) else x.sequential(stage)
        except ShardingError as error:
            error.add_note(
                f"This is stage {number} of a pipeline, on {self.devices[number]}. Layers inside "
                "of functions are not found and not moved: give the layer itself, in a list."
            )
            raise
        if not isinstance(found, Tensor):
            raise TypeError(
                f"stage {number} of a pipeline gave a {type(found).__name__}; a stage "
                "must return one tensor"
            )
        return found

    def step(self, loss_fn: LossFunction, x: Tensor, y: Tensor) -> Tensor:
        """Add the gradients of a batch to `grad` of all parameters, and return its loss.

        `x` and `y` hold the examples along axis 0. Microbatch i takes every `microbatches`-th
        example, starting at number i, so that a sharded batch is not moved. The loss is the mean of
        `loss_fn(output, y)` over the microbatches, which is the loss of the batch if `loss_fn`
        takes a mean over examples. Layers that use batch statistics, such as BatchNorm, see a
        microbatch. Gradients are as after `backward()`: they go to tensors that require one. All
        work is done when this returns. Raises ValueError for a batch that is not a multiple of the
        number of microbatches, and for a stage from which no gradient comes back.

        >>> layers = nn.Linear(4, 8), nn.Linear(8, 2)
        >>> model = Pipeline(layers, ["CPU", "CPU:1"], microbatches=2)
        >>> optimizer = nn.optim.SGD(nn.state.get_parameters(layers), lr=0.1)
        >>> x, y = Tensor.ones(6, 4), Tensor([0, 1, 0, 1, 0, 1])
        >>> with Tensor.train():
        ...     loss = model.step(Tensor.sparse_categorical_crossentropy, x, y)
        ...     optimizer.step()
        >>> loss.shape, layers[1].weight.grad.device
        ((), 'CPU:1')
        """
        batch = _Batch(self, loss_fn, x, y)
        for tick in self.timetable.ticks:
            for stage, task in enumerate(tick):
                if task is None:
                    continue
                if task.kind == "forward":
                    batch.forward(stage, task.microbatch)
                else:
                    batch.backward(stage, task.microbatch)
        return batch.end()


class _Batch:
    """The state of one batch: the values that each stage keeps of each microbatch in flight."""

    def __init__(self, pipeline: Pipeline, loss_fn: LossFunction, x: Tensor, y: Tensor) -> None:
        self.pipeline = pipeline
        self.loss_fn = loss_fn
        self.x = _in_microbatches(x, pipeline.microbatches)
        last = pipeline.devices[-1]
        # the loss of each microbatch reads the targets: they are sent first, all at once
        is_there = device_names(y.device) == device_names(last)
        targets = y if is_there else y.to(replicated_over(last)).realize()
        self.y = _in_microbatches(targets, pipeline.microbatches)
        self.parameters = [get_parameters(stage) for stage in pipeline.stages]
        self.copies = [
            copies_for(place, parameters, detached=True)
            for place, parameters in zip(pipeline.devices, self.parameters, strict=True)
        ]
        self.losses: dict[int, Tensor] = {}
        # by stage and microbatch: the stored input; the output, with its graph; and the stored
        # gradient of the output
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self.outputs: dict[tuple[int, int], Tensor] = {}
        self.gradients: dict[tuple[int, int], Tensor] = {}

    def forward(self, stage: int, number: int) -> None:
        """Store the output of a stage on the devices of the next, or of the last stage the loss."""
        key = stage, number
        if stage == 0:
            self.inputs[key] = self.received(self.x[:, number], stage)
        is_last = stage == len(self.pipeline.stages) - 1
        with substituted(self.copies[stage]):
            output = self.pipeline.run(stage, self.inputs[key])
            if is_last:
                output = self.loss_fn(output, self.y[:, number]) / self.pipeline.microbatches
        self.outputs[key] = output
        also = [*_marked(output), *_assigned(self.parameters[stage])]
        if is_last:
            self.losses[number] = output.detach()
            Tensor.realize(self.losses[number], *also)
        else:
            self.inputs[stage + 1, number] = self.received(output, stage + 1, *also)

    def received(self, value: Tensor, stage: int, *also: Tensor) -> Tensor:
        """A stored value on the devices of a stage's input, which requires a gradient."""
        place = self.pipeline.devices[stage]
        sent = value.detach()
        # a sent value has its own memory
        sent = sent.contiguous() if sent.device == place else sent.to(place)
        Tensor.realize(sent, *also)
        return sent.requires_grad_(sent.is_floating_point())

    def backward(self, stage: int, number: int) -> None:
        """Accumulate the gradients of a stage's parameters, and send back the gradient of its
        input.
        """
        key = stage, number
        x, output = self.inputs.pop(key), self.outputs.pop(key)
        output.backward(self.gradients.pop(key, None))
        results = _gradients([*self.parameters[stage], *self.copies[stage].values()])
        if stage > 0:
            if x.grad is None:
                raise ValueError(
                    f"no gradient comes out of stage {stage} of a pipeline, whose input is a "
                    f"{x.dtype}; stages after the first need an input that is a float, and used"
                )
            before = self.outputs[stage - 1, number]
            self.gradients[stage - 1, number] = x.grad.to(before.device)
            results.append(self.gradients[stage - 1, number])
        if results:
            with Tensor.accumulate_gradients():
                Tensor.realize(*results)

    def end(self) -> Tensor:
        """Reduce the gradients of the parameters, and return the loss of the batch."""
        add_gradients(self.copies)
        # the partial sums of the batch are reduced over the devices here
        if gradients := _gradients([x for owned in self.parameters for x in owned]):
            Tensor.realize(*gradients)
        return Tensor.stack(*(self.losses[number] for number in sorted(self.losses))).sum()


def _place(device: DeviceLike | Mesh) -> TensorDevice:
    place = canonical_device(device.devices if isinstance(device, Mesh) else device)
    if place is None:
        raise ValueError(
            "a stage of a pipeline needs a device, not None; pass a device or layout for each stage"
        )
    return place


def _in_microbatches(x: Tensor, count: int) -> Tensor:
    """(batch, ...) as (batch / count, count, ...)."""
    if not x.shape or x.shape[0] % count:
        raise ValueError(
            f"a batch of shape {x.shape} is not {count} microbatches; make axis 0 a multiple of "
            f"{count}"
        )
    return x.reshape(x.shape[0] // count, count, *x.shape[1:])


def _gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    return [x.grad for x in parameters if x.grad is not None]


def _marked(output: Tensor) -> list[Tensor]:
    """The values below an output that must be stored, such as random numbers, drawn only once."""
    nodes = output.uop.toposort()
    return [Tensor.from_uop(node) for node in nodes if node.op is Ops.CONTIGUOUS]


def _assigned(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The running statistics that a stage has updated."""
    return [x for x in parameters if x.uop.op is Ops.ASSIGN]
