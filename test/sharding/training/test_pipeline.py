"""Pipeline parallelism: messages between stages, the timetable, live activations, and gradients.

In KiB, of float32: a batch (64, 128) is 32, a microbatch of it (8, 128) is 4.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any, Literal

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth, only_one_process
from test.sharding.common import DEVICES, GRID, KIB, TWO, Array, array, parts, placed
from test.together import CommTrace, GlobalCounters
from tinygrad import Mesh, P, Tensor, TinyJit, nn
from tinygrad.device import Sharding
from tinygrad.execution.capture import Capture, capturing
from tinygrad.execution.realize import ExecItem, ScheduleItem
from tinygrad.execution.schedule import plan_cache
from tinygrad.nn.optim import SGD
from tinygrad.nn.pipeline import Pipeline, Task, make_timetable
from tinygrad.nn.pipeline.stages import _Batch
from tinygrad.nn.state import get_parameters
from tinygrad.sharding import ShardingError

SCHEDULES = ("gpipe", "1f1b")
OTHERS = DEVICES[2:]
BATCH = (64, 128)


# ---- the timetable ----


def test_gpipe_goes_forward_then_backward() -> None:
    assert str(make_timetable(4, 8, "gpipe")).split("\n") == [
        "stage 0: F0 F1 F2 F3 F4 F5 F6 F7 .  .  .  .  .  .  B7 B6 B5 B4 B3 B2 B1 B0",
        "stage 1: .  F0 F1 F2 F3 F4 F5 F6 F7 .  .  .  .  B7 B6 B5 B4 B3 B2 B1 B0 .",
        "stage 2: .  .  F0 F1 F2 F3 F4 F5 F6 F7 .  .  B7 B6 B5 B4 B3 B2 B1 B0 .  .",
        "stage 3: .  .  .  F0 F1 F2 F3 F4 F5 F6 F7 B7 B6 B5 B4 B3 B2 B1 B0 .  .  .",
    ]


def test_one_forward_one_backward_alternates() -> None:
    assert str(make_timetable(4, 8, "1f1b")).split("\n") == [
        "stage 0: F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 F6 B3 F7 B4 .  B5 .  B6 .  B7",
        "stage 1: .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 .  B6 .  B7 .",
        "stage 2: .  .  F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 .  B7 .  .",
        "stage 3: .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 .  .  .",
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_timetable_has_minimum_length_and_respects_dependencies(schedule: str) -> None:
    for stages in range(1, 6):
        for microbatches in range(1, 9):
            table = make_timetable(stages, microbatches, schedule)
            when = {
                (stage, task): tick
                for tick, row in enumerate(table.ticks)
                for stage, task in enumerate(row)
                if task
            }
            assert len(when) == 2 * stages * microbatches
            # a microbatch passes through all stages, and another one starts each tick
            assert len(table) == 2 * (stages + microbatches - 1)
            assert table.idle == pytest.approx((stages - 1) / (stages + microbatches - 1))
            for number in range(microbatches):
                path = [(stage, Task("forward", number)) for stage in range(stages)]
                path += [(stage, Task("backward", number)) for stage in reversed(range(stages))]
                times = [when[step] for step in path]
                assert times == sorted(set(times))
            left = [stages - stage for stage in range(stages)]
            most = [microbatches if schedule == "gpipe" else min(microbatches, s) for s in left]
            assert list(table.in_flight) == most


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 4, "2f2b"), "no schedule '2f2b'; use one of gpipe, 1f1b"),
        ((0, 4, "gpipe"), "0 stages and 4 microbatches does nothing"),
        ((2, 0, "gpipe"), "2 stages and 0 microbatches does nothing"),
    ],
)
def test_an_impossible_timetable_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_timetable(*arguments)


# ---- the pipeline ----


class Stage:
    """`tanh(x @ w)`: (batch, 128) to (batch, 128)."""

    def __init__(self, seed: int) -> None:
        self.w = Tensor(array(128, 128, seed=seed) * 0.1, requires_grad=True)

    def __call__(self, x: Tensor) -> Tensor:
        return (x @ self.w).tanh()


def mean_squared(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).square().mean()


def batch(x_device: Any = None, y_device: Any = None) -> tuple[Tensor, Tensor]:
    x, y = placed(array(*BATCH, seed=10), x_device), placed(array(*BATCH, seed=11), y_device)
    return x.requires_grad_(False), y.requires_grad_(False)


def assert_trained_as_on_one_device(stages: list[Any], plain: list[Any], loss: Tensor) -> None:
    """Loss and gradients equal those of `plain`, without a pipeline."""
    x, y = batch()
    expected = mean_squared(x.sequential(plain), y).backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for found, wanted in zip(get_parameters(stages), get_parameters(plain), strict=True):
        assert found.grad is not None
        assert wanted.grad is not None
        np.testing.assert_allclose(found.grad.numpy(), wanted.grad.numpy(), rtol=1e-4, atol=1e-7)


@pytest.mark.sample(2, values=False)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_four_stages_send_each_of_eight_microbatches_forward_and_back(schedule: str) -> None:
    stages = [Stage(seed) for seed in range(4)]
    pipeline = Pipeline(stages, DEVICES, microbatches=8, schedule=schedule)
    x, y = batch(DEVICES[0], DEVICES[-1])
    with CommTrace() as trace:
        loss = pipeline.step(mean_squared, x, y)
    assert trace.kinds() == {"copy": 48 * 4 * KIB}
    assert {record.nbytes for record in trace.records} == {4 * KIB}
    sent = [(record.source, record.destination) for record in trace.records]
    for before, after in pairwise(DEVICES):
        assert sent.count((before, after)) == 8
        assert sent.count((after, before)) == 8
    assert_trained_as_on_one_device(stages, [Stage(seed) for seed in range(4)], loss)


def test_targets_are_sent_to_the_last_stage_at_once() -> None:
    pipeline = Pipeline([Stage(0), Stage(1)], TWO, microbatches=8)
    x, y = batch()
    with CommTrace() as trace:
        pipeline.step(mean_squared, x, y)
    assert [record.nbytes for record in trace.records] == [32 * KIB] + [4 * KIB] * 16


def test_the_forward_pass_of_gpipe_takes_eleven_ticks() -> None:
    ticks = make_timetable(4, 8, "gpipe").ticks
    forward = [any(task and task.kind == "forward" for task in tick) for tick in ticks]
    assert forward == [True] * 11 + [False] * 11


@pytest.mark.sample(6)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 1), (3, 2), (2, 4)])
def test_any_numbers_of_stages_and_microbatches(
    schedule: str, stages: int, microbatches: int
) -> None:
    layers = [Stage(seed) for seed in range(stages)]
    pipeline = Pipeline(layers, DEVICES[:stages], microbatches, schedule)
    loss = pipeline.step(mean_squared, *batch())
    assert_trained_as_on_one_device(layers, [Stage(seed) for seed in range(stages)], loss)


def test_stages_may_share_a_device() -> None:
    layers = [Stage(seed) for seed in range(3)]
    pipeline = Pipeline([layers[:2], [layers[2]]], [DEVICE, DEVICE], 4)
    with CommTrace() as trace:
        loss = pipeline.step(mean_squared, *batch())
    assert trace.nbytes == 0
    assert_trained_as_on_one_device(layers, [Stage(seed) for seed in range(3)], loss)


def test_gradients_of_several_batches_add_up() -> None:
    layers, plain = [Stage(0), Stage(1)], [Stage(0), Stage(1)]
    pipeline = Pipeline(layers, TWO, 4)
    for _ in range(2):
        pipeline.step(mean_squared, *batch())
    x, y = batch()
    (mean_squared(x.sequential(plain), y) * 2).backward()
    for found, wanted in zip(layers, plain, strict=True):
        assert found.w.grad is not None
        assert wanted.w.grad is not None
        np.testing.assert_allclose(found.w.grad.numpy(), wanted.w.grad.numpy(), 1e-4, 1e-7)


def test_a_pipeline_is_called_as_a_model() -> None:
    layers = [Stage(0), Stage(1)]
    x, _ = batch()
    expected = x.sequential([Stage(0), Stage(1)]).numpy()
    out = Pipeline(layers, TWO, 4)(x)
    assert out.device == TWO[1]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)


# ---- order and memory ----


@only_one_process("looks at the items of all stages")
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tasks_of_one_tick_are_independent(monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    pipeline = Pipeline([Stage(seed) for seed in range(4)], DEVICES, 8, schedule)
    items: dict[tuple[int, Task], list[ScheduleItem]] = {}

    def record(kind: Literal["forward", "backward"]) -> None:
        run = getattr(_Batch, kind)

        def recorded(self: _Batch, stage: int, number: int) -> None:
            capturing().append(Capture())
            run(self, stage, number)
            items[stage, Task(kind, number)] = capturing().pop().items

        monkeypatch.setattr(_Batch, kind, recorded)

    record("forward")
    record("backward")
    pipeline.step(mean_squared, *batch(DEVICES[0], DEVICES[-1]))
    for tick in pipeline.timetable.ticks:
        tasks = [items[stage, task] for stage, task in enumerate(tick) if task]
        for one, other in permutations(tasks, 2):
            written = {id(buffer.base or buffer) for item in one for buffer in item.written}
            touched = {id(buffer.base or buffer) for item in other for buffer in item.bufs}
            assert written
            assert not written & touched
    # a task computes on the devices of its stage
    for (stage, _), done in items.items():
        assert {item.device for item in done if isinstance(item, ExecItem)} == {DEVICES[stage]}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_second_step_takes_its_plans_from_the_cache(schedule: str) -> None:
    pipeline = Pipeline([Stage(seed) for seed in range(3)], DEVICES[:3], 4, schedule)
    optimizer = SGD(get_parameters(pipeline.stages), lr=0.1)
    planned = []
    plan_cache.clear()
    with Tensor.train():
        for _ in range(3):
            optimizer.zero_grad()
            pipeline.step(mean_squared, *batch(DEVICES[0], DEVICES[2]))
            optimizer.step()
            planned.append(len(plan_cache))
    assert planned[0] == planned[1] == planned[2]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_stage_keeps_the_activations_that_its_timetable_needs(schedule: str) -> None:
    inputs: dict[int, list[weakref.ref[Tensor]]] = {stage: [] for stage in range(4)}
    most = [0] * 4

    def watch(stage: int) -> Callable[[Tensor], Tensor]:
        def look(x: Tensor) -> Tensor:
            inputs[stage].append(weakref.ref(x))
            most[stage] = max(most[stage], sum(ref() is not None for ref in inputs[stage]))
            return x

        return look

    stages: list[Any] = [[watch(stage), Stage(stage)] for stage in range(4)]
    pipeline = Pipeline(stages, DEVICES, 8, schedule)
    pipeline.step(mean_squared, *batch(DEVICES[0], DEVICES[-1]))
    assert tuple(most) == pipeline.timetable.in_flight
    assert most == ([8] * 4 if schedule == "gpipe" else [4, 3, 2, 1])


def test_one_forward_one_backward_takes_less_memory() -> None:
    def peak_memory(schedule: str) -> int:
        found = 0

        def watch(x: Tensor) -> Tensor:
            nonlocal found
            found = max(found, GlobalCounters.mem_used)
            return x

        stages: list[Any] = [[watch, Stage(seed)] for seed in range(4)]
        pipeline = Pipeline(stages, DEVICES, 8, schedule)
        x, y = batch(DEVICES[0], DEVICES[-1])
        before = GlobalCounters.mem_used
        # gradients stay, of 64 KiB each
        pipeline.step(mean_squared, x, y)
        assert GlobalCounters.mem_used - before == 4 * 64 * KIB
        found = 0
        pipeline.step(mean_squared, x, y)
        return found - before

    # 8 x 4 inputs of 4 KiB, or 4 + 3 + 2 + 1; the last one does not exist yet, and under the other
    # schedule there may be gradients in flight
    assert peak_memory("gpipe") - peak_memory("1f1b") >= (32 - 10 - 4) * 4 * KIB


# ---- stages over several devices ----


class Megatron:
    """Two layers, column then row parallel over a mesh: (batch, 128) to (batch, 128)."""

    def __init__(self, seed: int, mesh: Mesh | None = None, out: P | None = None) -> None:
        self.up = Tensor(array(128, 256, seed=seed) * 0.1, requires_grad=True)
        self.down = Tensor(array(256, 128, seed=seed + 1) * 0.1, requires_grad=True)
        self.mesh, self.out = mesh, out
        if mesh is not None:
            self.up.shard_(mesh, P(None, "tp"))
            self.down.shard_(mesh, P("tp"))

    def __call__(self, x: Tensor) -> Tensor:
        out = (x @ self.up).tanh() @ self.down
        return out if self.mesh is None or self.out is None else out.shard(self.mesh, self.out)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [P(), P(None, "tp")], ids=str)
def test_a_pipeline_of_tensor_parallel_stages(spec: P) -> None:
    first, second = Mesh(GRID, ("pp", "tp"), DEVICES).split("pp")
    stages = [Megatron(0, first, spec), Megatron(2, second, spec)]
    pipeline = Pipeline(stages, [first.sharding(spec), second.sharding(spec)], 8)
    assert [stage.up.device for stage in stages] == [Sharding(TWO, 1), Sharding(OTHERS, 1)]
    x, y = batch(first.sharding(spec), second.sharding(P()))
    with CommTrace() as trace:
        loss = pipeline.step(mean_squared, x, y)
    # replicated on each device of the next stage, or a half
    copies = 2 if spec == P() else 1
    sent = [record.nbytes for record in trace.records if record.kind == "send"]
    assert sent == [copies * 4 * KIB] * 16
    assert_trained_as_on_one_device(stages, [Megatron(0), Megatron(2)], loss)


@pytest.mark.slow
def test_microbatches_of_a_sharded_batch_are_sliced_without_communication() -> None:
    mesh = Mesh(GRID, ("pp", "dp"), DEVICES)
    layouts = [stage.sharding(P("dp")) for stage in mesh.split("pp")]
    stages = [Stage(0), Stage(1)]
    pipeline = Pipeline(stages, layouts, 8)
    with CommTrace() as trace:
        loss = pipeline.step(mean_squared, *batch(*layouts))
    # 4 KiB forward and back for each microbatch; an all-reduce of 64 KiB over two devices for each
    # stage, once a batch; and one of the loss, 4 bytes, for each microbatch
    assert trace.kinds() == {"send": 16 * 4 * KIB, "all_reduce": 2 * 2 * 64 * KIB + 8 * 2 * 4}
    assert_trained_as_on_one_device(stages, [Stage(0), Stage(1)], loss)


@pytest.mark.slow
def test_stages_of_a_mesh_with_three_dimensions() -> None:
    eight = (*DEVICES, *(nth(number) for number in range(4, 8)))
    meshes = Mesh((2, 2, 2), ("pp", "dp", "tp"), eight).split("pp")
    layouts = [mesh.sharding(P("dp")) for mesh in meshes]
    stages = [Megatron(2 * number, mesh) for number, mesh in enumerate(meshes)]
    pipeline, (x, y) = Pipeline(stages, layouts, 4), batch(*layouts)
    with CommTrace() as trace:
        loss = pipeline.step(mean_squared, x, y)
    # each of four devices sends its half of a microbatch of 8, for 4 microbatches, both ways
    assert trace.kinds()["send"] == 4 * 2 * 2 * 8 * KIB
    assert set(trace.kinds()) == {"send", "all_reduce"}
    assert_trained_as_on_one_device(stages, [Megatron(0), Megatron(2)], loss)


def test_a_mesh_of_one_dimension_is_split_into_devices() -> None:
    stages = Mesh((4,), ("pp",), DEVICES).split("pp")
    assert Pipeline([Stage(0)] * 4, stages, 4).devices == list(DEVICES)


# ---- layers with a state, random numbers, the JIT ----


@pytest.mark.slow
def test_a_stage_uses_the_same_dropout_mask_backward() -> None:
    layers = [nn.Linear(32, 32, bias=False) for _ in range(2)]
    for layer in layers:
        layer.weight.requires_grad_(True)
    stages: list[Any] = [[layer, lambda x: x.dropout(0.5)] for layer in layers]
    x, factor = Tensor(array(64, 32)), Tensor(array(64, 32, seed=1))
    with Tensor.train():
        loss = Pipeline(stages, TWO, 4).step(lambda out, y: (out * y).sum(), x, factor)
    for layer in layers:
        # linear in each weight, if both directions have the same zeros
        assert layer.weight.grad is not None
        through = (layer.weight * layer.weight.grad).sum().item()
        assert through == pytest.approx(loss.item(), rel=1e-4)


def test_running_statistics_are_updated_by_microbatches_in_order() -> None:
    norm, plain = nn.BatchNorm(128), nn.BatchNorm(128)
    value = array(*BATCH, seed=10)
    with Tensor.train():
        pipeline = Pipeline([[norm, Stage(0)], Stage(1)], TWO, 4)
        pipeline.step(mean_squared, *batch())
        for part in range(4):
            plain(Tensor(value[part::4]))
    np.testing.assert_allclose(norm.running_mean.numpy(), plain.running_mean.numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), plain.running_var.numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_training_under_the_jit_equals_training_without(schedule: str) -> None:
    def losses(jit: bool) -> list[float]:
        layers = [Stage(0), Stage(1)]
        pipeline = Pipeline(layers, TWO, 4, schedule)
        optimizer = SGD(get_parameters(layers), lr=5.0)

        @Tensor.train()
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = pipeline.step(mean_squared, x, y)
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if jit else step
        return [run(*(z.realize() for z in batch())).item() for _ in range(4)]

    expected = losses(False)
    assert expected == sorted(expected, reverse=True)
    assert losses(True) == pytest.approx(expected, rel=1e-5)


def test_a_pipeline_on_null_devices() -> None:
    devices = [f"NULL:{number}" for number in range(4)]
    pipeline = Pipeline([Stage(seed) for seed in range(4)], devices, 8)
    x, y = batch(devices[0], devices[-1])
    with CommTrace() as trace:
        pipeline.step(mean_squared, x, y)
    assert [record.nbytes for record in trace.records] == [4 * KIB] * 48


# ---- tied weights ----


class Embed:
    """Token ids to rows of a table: (batch,) to (batch, 16)."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def __call__(self, words: Tensor) -> Tensor:
        return self.table[words]


class Score(Embed):
    """Scores of all words, by the same table: (batch, 16) to (batch, 96)."""

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.table.T


def tied() -> tuple[list[Any], Tensor]:
    """Three stages whose first and last share a table; and the table."""
    table = Tensor(array(96, 16), requires_grad=True)
    inner = Tensor(array(16, 16, seed=1) * 0.3, requires_grad=True)
    return [Embed(table), [Score(inner), Tensor.tanh], Score(table)], table


def words() -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    return Tensor(rng.integers(0, 96, 32)), Tensor(rng.integers(0, 96, 32))


@pytest.mark.slow
@pytest.mark.sample(3, values=False)
@pytest.mark.parametrize(
    ("places", "copies"),
    [
        (list(device_names(3)), 2),
        ([TWO, nth(2), nth(3)], 3),
        ([Sharding(TWO, 0), Sharding(OTHERS, 0), Sharding(OTHERS, 0)], 4),
    ],
    ids=["one device each", "replicated", "sharded microbatches"],
)
def test_a_table_of_two_stages_is_trained_by_both(places: list[Any], copies: int) -> None:
    (stages, table), (plain, expected) = tied(), tied()
    x, y = words()
    loss = Pipeline(plain, [DEVICE] * 3, 4).step(Tensor.sparse_categorical_crossentropy, x, y)
    pipeline = Pipeline(stages, places, 4)
    assert isinstance(table.device, Sharding)
    assert len(table.device) == copies
    with CommTrace() as trace:
        found = pipeline.step(Tensor.sparse_categorical_crossentropy, x, y)
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    assert table.grad is not None
    assert expected.grad is not None
    assert table.grad.device is table.device
    np.testing.assert_allclose(table.grad.numpy(), expected.grad.numpy(), rtol=1e-4, atol=1e-6)
    # its gradient is sent to each device of the other stage that holds it, after the last
    # microbatch
    sent = [record.nbytes for record in trace.records if record.nbytes % table.nbytes() == 0]
    assert sum(sent[-2:]) == copies * table.nbytes()
    np.testing.assert_allclose(pipeline(x).numpy(), x.sequential(flat(plain)).numpy(), 1e-4, 1e-5)


def flat(stages: list[Any]) -> list[Any]:
    return [layer for stage in stages for layer in (stage if isinstance(stage, list) else [stage])]


@pytest.mark.slow
def test_a_table_is_shared_by_stages_that_share_devices_in_another_order() -> None:
    (stages, table), (plain, expected) = tied(), tied()
    x, y = words()
    places = [nth(1), nth(2), Sharding(TWO, 0)]
    for layers, devices in ((stages, places), (plain, [DEVICE] * 3)):
        Pipeline(layers, devices, 4).step(Tensor.sparse_categorical_crossentropy, x, y)
    assert table.device is Sharding((nth(1), DEVICE))
    assert table.grad is not None
    assert expected.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), expected.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_shared_table_is_trained_through_the_model_too() -> None:
    (stages, table), (plain, expected) = tied(), tied()
    x, y = words()
    for model in (Pipeline(stages, DEVICES[:3], 4), lambda x: x.sequential(flat(plain))):
        out = model(x)
        out.sparse_categorical_crossentropy(y.to(out.device)).backward()
    assert table.grad is not None
    assert expected.grad is not None
    np.testing.assert_allclose(table.grad.numpy(), expected.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_an_optimizer_keeps_the_replicas_of_a_shared_table_equal() -> None:
    stages, table = tied()
    pipeline = Pipeline(stages, DEVICES[:3], 4)
    optimizer = SGD(get_parameters(stages), lr=1.0)
    losses = []
    with Tensor.train():
        for _ in range(4):
            optimizer.zero_grad()
            loss = pipeline.step(Tensor.sparse_categorical_crossentropy, *words())
            optimizer.step()
            losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    first, last = parts(table)
    np.testing.assert_array_equal(first, last)


@pytest.mark.slow
def test_shared_tables_statistics_and_dropout_under_the_jit() -> None:
    def train(jit: bool) -> tuple[list[float], Array]:
        Tensor.manual_seed(0)
        stages, _ = tied()
        norm = nn.BatchNorm(16)
        stages[1] = [norm, *stages[1], lambda x: x.dropout(0.1)]
        pipeline = Pipeline(stages, [TWO, nth(2), nth(3)], 4)
        optimizer = SGD(get_parameters(stages), lr=0.5)

        @Tensor.train()
        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = pipeline.step(Tensor.sparse_categorical_crossentropy, x, y)
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if jit else step
        losses = [run(*(z.realize() for z in words())).item() for _ in range(4)]
        return losses, norm.running_mean.numpy()

    (expected, statistics), (losses, replayed) = train(False), train(True)
    assert expected == sorted(expected, reverse=True)
    assert losses == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(replayed, statistics, rtol=1e-5)


def test_statistics_that_stages_share_are_refused() -> None:
    norm = nn.BatchNorm(128)
    pipeline = Pipeline([[Stage(0), norm], [Stage(1), norm]], TWO, 4)
    with Tensor.train(), pytest.raises(ValueError, match="writes to .* shares with a stage on"):
        pipeline.step(mean_squared, *batch())


# ---- errors ----


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pipeline([Stage(0)], TWO, 4), "1 stages on 2 devices; give each stage one"),
        (lambda: Pipeline([Stage(0)], [None], 4), "a stage of a pipeline needs a device"),
        (
            lambda: Pipeline([Stage(0)], [DEVICE], 5).step(mean_squared, *batch()),
            r"batch of shape \(64, 128\) is not 5 microbatches; make axis 0 a multiple of 5",
        ),
    ],
)
def test_a_pipeline_that_does_not_fit_is_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_layer_hidden_in_a_function_is_an_error() -> None:
    hidden = Stage(1)
    pipeline = Pipeline([Stage(0), lambda x: hidden(x).relu()], TWO, 4)
    with pytest.raises(ShardingError, match=f"operands live on {nth(1)} and {DEVICE}") as error:
        pipeline.step(mean_squared, *batch())
    assert error.value.__notes__ == [
        f"This is stage 1 of a pipeline, on {nth(1)}. Layers inside of functions are not found and "
        "not moved: give the layer itself, in a list."
    ]


def test_a_stage_without_an_input_gradient_is_refused() -> None:
    pipeline = Pipeline([lambda x: x, [lambda x: x > 0, Tensor.float, Stage(0)]], TWO, 4)
    with pytest.raises(ValueError, match="no gradient comes out of stage 1 of a pipeline, whose"):
        pipeline.step(mean_squared, *batch())


def test_a_stage_that_returns_no_tensor_is_refused() -> None:
    pipeline = Pipeline([lambda x: (x, x), Stage(0)], TWO, 4)
    with pytest.raises(
        TypeError, match="stage 0 of a pipeline gave a tuple; a stage must return one tensor"
    ):
        pipeline(batch()[0])


def test_names_of_tasks() -> None:
    tasks: list[Any] = [Task("forward", 3), Task("backward", 12)]
    assert [str(task) for task in tasks] == ["F3", "B12"]
