"""`Pipeline`: a model in stages, each on devices of its own, trained on microbatches in turn.

In: stages, where the input of each lives, and a batch. Out: the loss of the batch, and gradients,
those of the model on one device. Always true: what crosses between stages is the input of the next
stage and its gradient, once for each microbatch; a stage remembers the inputs of the microbatches
that it has in flight and computes what else it needs again on the way back, except for what was
marked with `.contiguous()`, which is stored on the way forward.

Tasks run in the order of the timetable, each as one `realize`. Those of one tick depend on nothing
of each other, so devices with queues of their own work at the same time. All CPU devices share one
pool of threads and take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tinygrad.nn.pipeline.shared import (
    Place,
    add_gradients,
    bring_home,
    copies_on,
    full_copies,
    names,
    standing_in,
)
from tinygrad.nn.pipeline.timetable import Task, make_timetable
from tinygrad.nn.state import get_parameters
from tinygrad.sharding import Mesh, ShardingError
from tinygrad.storage.placement import canonical_device
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops

Stage: TypeAlias = Callable[[Any], Any] | Sequence[Callable[[Any], Any]]
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class Pipeline:
    """A model in stages: `stages[i]` is a function, or a list of them, from a tensor to a tensor.

    `devices[i]` is where its input lives: a device, or the layout over several, as a `Sharding`, a
    tuple of names or a `Mesh` (a full copy on each). Parameters of a stage that are not on these
    devices are moved there; those that are keep their layout. One that stages on different devices
    share has a full copy on each of them. `schedule` is "1f1b", under which a stage remembers as
    many microbatches as stages are left, or "gpipe", under which it remembers all. `timetable` says
    which stage does what when.
    Raises ValueError if there is not one place for each stage, and as `make_timetable` does.

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
        devices: Sequence[Any],
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
        bring_home([get_parameters(stage) for stage in self.stages], self.devices)

    def __call__(self, x: Tensor) -> Tensor:
        """The stages one after the other, lazily: the model as it is used once it is trained."""
        for number, (stage, place) in enumerate(zip(self.stages, self.devices, strict=True)):
            with standing_in(copies_on(place, get_parameters(stage))):
                x = self.run(number, x.to(place))
        return x

    def run(self, number: int, x: Tensor) -> Tensor:
        """What a stage makes of its input.

        Raises TypeError if that is no tensor, and ShardingError if a part of the stage is on other
        devices.
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
                f"stage {number} of a pipeline gave a {type(found).__name__}; what goes from "
                "stage to stage is one tensor"
            )
        return found

    def step(self, loss_fn: LossFunction, x: Tensor, y: Tensor) -> Tensor:
        """Adds the gradients of a batch to `grad` of all parameters, and returns its loss.

        `x` and `y` hold the examples along axis 0. Microbatch i takes every `microbatches`-th one
        from number i on, so that a batch which is split over devices stays where it is. The loss
        is the mean over the microbatches of `loss_fn(output, y)`, which is the loss of the batch
        where `loss_fn` takes a mean over examples. Layers that look at the whole batch, such as
        BatchNorm, see a microbatch. Gradients are as after `backward()`: they go to tensors that
        require one. All work is done when this returns.
        Raises ValueError for a batch that is not a multiple of the number of microbatches, and for
        a stage from which no gradient comes back.

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
                if task is not None:
                    batch.do(stage, task)
        return batch.end()


class _Batch:
    """One batch on its way: what each stage remembers of each microbatch in flight."""

    def __init__(self, pipeline: Pipeline, loss_fn: LossFunction, x: Tensor, y: Tensor) -> None:
        self.pipeline = pipeline
        self.loss_fn = loss_fn
        self.x = _in_microbatches(x, pipeline.microbatches)
        last = pipeline.devices[-1]
        # the loss of each microbatch reads them: they are sent before, at once
        targets = y if names(y.device) == names(last) else y.to(full_copies(last)).realize()
        self.y = _in_microbatches(targets, pipeline.microbatches)
        self.parameters = [get_parameters(stage) for stage in pipeline.stages]
        self.copies = [
            copies_on(place, parameters, detached=True)
            for place, parameters in zip(pipeline.devices, self.parameters, strict=True)
        ]
        self.losses: dict[int, Tensor] = {}
        # by stage and microbatch: the input, stored; the output, whose graph leads back to it; and
        # the gradient of the output, stored
        self.inputs: dict[tuple[int, int], Tensor] = {}
        self.outputs: dict[tuple[int, int], Tensor] = {}
        self.gradients: dict[tuple[int, int], Tensor] = {}

    def do(self, stage: int, task: Task) -> None:
        """One task: everything it makes is in memory afterwards, where it is needed next."""
        if task.kind == "forward":
            self.forward(stage, task.microbatch)
        else:
            self.backward(stage, task.microbatch)

    def forward(self, stage: int, number: int) -> None:
        """The output of a stage, on the devices of the next; after the last stage, the loss."""
        key = stage, number
        if stage == 0:
            self.inputs[key] = self.received(self.x[:, number], stage)
        is_last = stage == len(self.pipeline.stages) - 1
        with standing_in(self.copies[stage]):
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
        """A value stored where a stage takes its input, from which gradients come back."""
        place = self.pipeline.devices[stage]
        sent = value.detach()
        # what is sent is in memory of its own
        sent = sent.contiguous() if sent.device == place else sent.to(place)
        Tensor.realize(sent, *also)
        return sent.requires_grad_(sent.is_floating_point())

    def backward(self, stage: int, number: int) -> None:
        """The gradients by the parameters of a stage, added up, and by its input, sent back."""
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
        """The loss of the batch, once parameters have their gradients."""
        add_gradients(self.copies)
        # what each device found for the batch is added up over the devices here
        if gradients := _gradients([x for owned in self.parameters for x in owned]):
            Tensor.realize(*gradients)
        return Tensor.stack(*(self.losses[number] for number in sorted(self.losses))).sum()


def _place(device: Any) -> Place:
    place = canonical_device(device.devices if isinstance(device, Mesh) else device)
    if place is None:
        raise ValueError("a stage of a pipeline needs a device, not None")
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
    """What is to be stored below an output, such as random numbers, which must be drawn once."""
    nodes = output.uop.toposort()
    return [Tensor.from_uop(node) for node in nodes if node.op is Ops.CONTIGUOUS]


def _assigned(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Running statistics that a stage has brought up to date."""
    return [x for x in parameters if x.uop.op is Ops.ASSIGN]
