"""The layout planner: its predictions equal the measured costs, and no manual layout is better."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, nth, only_cpu
from test.models.grouped import GroupedTransformer
from test.models.transformer import Layer, Transformer
from test.sharding.common import DEVICES, TWO, array, on
from test.together import CommTrace, GlobalCounters
from tinygrad import Mesh, P, Sharding, Tensor, dtypes, nn
from tinygrad.planner import Plan, plan, predict
from tinygrad.planner.communication import communication_costs
from tinygrad.planner.cost import Cost, TrialFunction
from tinygrad.planner.layers import group_tensors, named_tensors, repeated, shortened
from tinygrad.planner.optimizers import follow_parameters
from tinygrad.planner.search import Search
from tinygrad.schedule.multi import lower_layouts
from tinygrad.sharding import Link, LocalDevices, Partial, Processor, ShardingError, Topology
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

MESHES = {
    "two": Mesh((2,), ("dp",), TWO),
    "four": Mesh((4,), ("dp",), DEVICES),
    "grid": Mesh((2, 2), ("dp", "tp"), DEVICES),
}


class Perceptron:
    """Linear layers with a ReLU between: (batch, first) to (batch, last)."""

    def __init__(self, *sizes: int) -> None:
        self.layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


def step(model: Any, x: Tensor) -> list[Tensor]:
    """The loss of one step, and the gradients."""
    loss = model(x).square().mean()
    return [loss, *loss.gradient(*nn.state.get_parameters(model))]


def language_step(model: Any, tokens: Tensor, targets: Tensor) -> list[Tensor]:
    loss = model(tokens).sparse_categorical_crossentropy(targets)
    return [loss, *loss.gradient(*nn.state.get_parameters(model))]


def perceptron(batch: int) -> dict[str, Any]:
    return {"model": Perceptron(64, 128, 64), "x": Tensor.empty(batch, 64)}


def block() -> dict[str, Any]:
    return {"model": Layer(32, 4), "x": Tensor.empty(8, 16, 32)}


def filled(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs with random values in memory; constants would need no memory."""
    for seed, x in enumerate(nn.state.get_parameters(inputs)):
        x.replace(Tensor(array(*x.shape, seed=seed) * 0.2).realize())
    return inputs


def laid_out(inputs: Mapping[str, Any], layouts: Mapping[str, Sharding]) -> None:
    for name, x in named_tensors(inputs).items():
        x.to_(layouts[name]).realize()


def training_step(model: Any, optimizer: Any, x: Tensor) -> list[Tensor]:
    """The loss, and all tensors that the optimizer updates."""
    with Tensor.train():
        loss = model(x).square().mean().backward()
        updates = optimizer.schedule_step()
        # a requested gradient is stored, and reduced on all devices
        optimizer.zero_grad()
        return [loss, *updates]


def measured(inputs: Mapping[str, Any], function: Callable[..., Any] = step) -> dict[str, int]:
    with CommTrace() as trace:
        Tensor.realize(*function(**inputs))
    return trace.kinds()


def assert_runs_as_planned(inputs: dict[str, Any], found: Plan) -> None:
    """Bytes equal the prediction; values and gradients equal those on one device."""
    expected = [x.numpy() for x in step(**inputs)]
    found.apply()
    Tensor.realize(*nn.state.get_parameters(inputs))
    assert {n: x.device for n, x in nn.state.get_state_dict(inputs).items()} == found.layouts
    assert measured(inputs) == found.cost.kinds
    for result, value in zip(step(**inputs), expected, strict=True):
        np.testing.assert_allclose(result.numpy(), value, rtol=1e-4, atol=1e-5)


# ---- the cost of communication ----

ADD = Partial("ADD")
GRID_AXES: list[Any] = [(0, None), (None, 1), (0, 1), (1, 1), (2, 0), (None, None)]


def lowered_bytes(node: UOp) -> dict[str, int]:
    """The bytes of the messages that a node is lowered to."""
    kinds: dict[str, int] = {}
    with LocalDevices():
        lowered = lower_layouts(UOp.sink(node))
    for x in lowered.toposort():
        if x.op is Ops.TRANSFER:
            piece = x.arg.piece_size(x.size) * x.dtype.itemsize
            sent = sum(m.pieces for m in x.arg.messages if m.target != m.source) * piece
            kinds[x.arg.info.kind] = kinds.get(x.arg.info.kind, 0) + sent
    return {kind: nbytes for kind, nbytes in kinds.items() if nbytes}


@pytest.mark.parametrize("shape", [(8, 12, 16), (5, 7, 3), (64, 100, 40)])
def test_a_communication_node_costs_the_bytes_of_its_messages(shape: tuple[int, ...]) -> None:
    targets = [on(axes, (2, 2)) for axes in GRID_AXES]
    sources = [*targets, *(on(axes, (2, 2)) for axes in [(ADD, 0), (1, ADD), (ADD, ADD)])]
    for source in sources:
        for target in targets:
            value = UOp.new_buffer(source, shape, dtypes.float)
            op = Ops.ALLREDUCE if source.is_partial else Ops.COPY
            node = UOp(op, dtypes.float, (value,), target)
            kinds: dict[str, int] = {}
            for movement in communication_costs(node):
                kinds[movement.kind] = kinds.get(movement.kind, 0) + movement.nbytes
            assert kinds == lowered_bytes(node), (source, target)


# ---- plans that run ----


@pytest.mark.sample(8, values=False)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(
    ("batch", "fixed"),
    [
        pytest.param(32, {}, id="free"),
        pytest.param(512, {"x": P("dp")}, id="fixed batch", marks=pytest.mark.slow),
    ],
)
def test_a_plan_of_a_perceptron_runs_as_predicted(
    mesh: str, batch: int, fixed: dict[str, P]
) -> None:
    inputs = filled(perceptron(batch))
    found = plan(step, inputs, MESHES[mesh], fixed=fixed)
    assert (
        fixed.items() <= {name: P(*spec.entries[:1]) for name, spec in found.specs.items()}.items()
    )
    assert_runs_as_planned(inputs, found)


@pytest.mark.slow
def test_a_plan_of_a_transformer_layer_runs_as_predicted() -> None:
    inputs = filled(block())
    assert_runs_as_planned(inputs, plan(step, inputs, MESHES["grid"], fixed={"x": P("dp")}))


@pytest.mark.slow
@only_cpu  # on devices that nothing else uses
def test_memory_is_predicted_to_the_byte() -> None:
    devices = (nth(40), nth(41))
    inputs = filled(perceptron(512))
    found = plan(step, inputs, Mesh((2,), ("dp",), devices), fixed={"x": P("dp")}).apply()
    Tensor.realize(*nn.state.get_parameters(inputs))
    before = GlobalCounters.mem_used_per_device[nth(41)]
    assert before == found.cost.inputs_nbytes
    results = step(**inputs)
    Tensor.realize(*results)
    peak = GlobalCounters.mem_peak_per_device[nth(41)]
    assert peak == before + found.cost.working_nbytes == found.cost.memory_nbytes


@pytest.mark.slow
def test_uneven_sizes_are_sharded() -> None:
    inputs = filled({"model": Perceptron(63, 127, 65), "x": Tensor.empty(129, 63)})
    whole = plan(step, inputs, MESHES["two"], fixed=dict.fromkeys(weights(inputs), P()))
    limit = whole.cost.memory_nbytes - 20_000
    found = plan(step, inputs, MESHES["two"], limit)
    assert any(found.specs[name] in {P("dp", None), P(None, "dp")} for name in weights(inputs))
    assert found.cost.memory_nbytes <= limit
    assert_runs_as_planned(inputs, found)
    before = GlobalCounters.mem_used_per_device[DEVICE]
    GlobalCounters.reset()
    Tensor.realize(*step(**inputs))
    needed = GlobalCounters.mem_peak_per_device[DEVICE] - before
    assert needed == found.cost.working_nbytes


def weights(inputs: Mapping[str, Any]) -> list[str]:
    return [group.name for group in group_tensors(inputs) if group.name.endswith("weight")]


@pytest.mark.parametrize("shape", [(5, 6), (9, 7)])
def test_devices_with_empty_shards_send_no_partial_sums(shape: tuple[int, int]) -> None:
    x = Tensor.empty(*shape).to(Sharding(DEVICES, 0)).realize()
    cost = predict(lambda x: x.sum(0), {"x": x}, {})
    with CommTrace() as trace:
        x.sum(0).realize()
    assert trace.kinds() == cost.kinds


# ---- optimizers ----

OPTIMIZERS: dict[str, Callable[[list[Tensor]], nn.optim.Optimizer]] = {
    "adam": nn.optim.Adam,
    "momentum": lambda params: nn.optim.SGD(params, momentum=0.9),
}


def with_optimizer(inputs: dict[str, Any], name: str) -> dict[str, Any]:
    return inputs | {"optimizer": OPTIMIZERS[name](nn.state.get_parameters(inputs["model"]))}


@pytest.mark.sample(2)
@only_cpu  # on devices that nothing else uses
@pytest.mark.parametrize(
    ("make", "optimizer"),
    [
        pytest.param(lambda: perceptron(512), "momentum", id="perceptron"),
        pytest.param(block, "adam", id="layer", marks=pytest.mark.slow),
    ],
)
def test_a_training_step_takes_the_bytes_and_the_memory_predicted(
    make: Callable[[], dict[str, Any]], optimizer: str
) -> None:
    rows, whole = (Sharding((nth(40), nth(41)), axis) for axis in (0, None))
    kinds = [
        set(trained(with_optimizer(filled(make()), optimizer), parameters, state, rows).kinds)
        for parameters, state in [(whole, whole), (whole, rows), (rows, rows)]
    ]
    # replicated; sharded optimizer state (ZeRO-1); everything sharded (ZeRO-3)
    assert kinds[0] == {"all_reduce"}
    assert all({"reduce_scatter", "all_gather"} <= found for found in kinds[1:])


def trained(inputs: dict[str, Any], parameters: Sharding, state: Sharding, x: Sharding) -> Cost:
    """The cost of a training step, checked against the measurement."""
    layouts = {"x": x}
    for group in group_tensors(inputs):
        layout = parameters if group.parameter is None else state
        is_number = group.shape == (1,)
        for name in group.tensors:
            layouts.setdefault(name, x.replicated() if is_number else layout)
    cost = predict(training_step, inputs, layouts)
    laid_out(inputs, layouts)
    follow_parameters([inputs["optimizer"]])
    gc.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used_per_device[nth(41)]
    assert before == cost.inputs_nbytes
    assert measured(inputs, training_step) == cost.kinds
    assert GlobalCounters.mem_peak_per_device[nth(41)] == cost.memory_nbytes
    return cost


def test_state_is_laid_out_as_its_parameter_unless_it_is_named() -> None:
    inputs = with_optimizer(perceptron(64), "adam")
    layouts = {f"model.layers.{i}.{x}": on(0) for i in range(2) for x in ("weight", "bias")}
    layouts["x"] = on(0)
    alike = {f"optimizer.{x}.{i}": on(0) for i in range(4) for x in ("m", "v")}
    numbers = {f"optimizer.{x}": on(None) for x in ("lr", "b1_t", "b2_t")}
    expected = predict(training_step, inputs, layouts | alike | numbers)
    assert predict(training_step, inputs, layouts) == expected


@pytest.mark.slow
def test_a_plan_with_an_optimizer_trains_as_on_one_device() -> None:
    alone, inputs = (with_optimizer(filled(perceptron(256)), "adam") for _ in range(2))
    free = plan(training_step, inputs, MESHES["two"], fixed={"x": P("dp")}).cost
    limit = free.memory_nbytes - 1
    found = plan(training_step, inputs, MESHES["two"], limit, fixed={"x": P("dp")}).apply()
    assert found.cost.memory_nbytes <= limit
    Tensor.realize(*nn.state.get_parameters(inputs))
    for _ in range(3):
        assert measured(inputs, training_step) == found.cost.kinds
        Tensor.realize(*training_step(**alone))
    for x, y in zip(*(nn.state.get_parameters(i["model"]) for i in (inputs, alone)), strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-3, atol=1e-4)


def test_an_optimizer_with_fused_parameters_cannot_be_planned() -> None:
    inputs = perceptron(32)
    inputs["optimizer"] = nn.optim.Adam(nn.state.get_parameters(inputs["model"]), fused=True)
    with pytest.raises(ValueError, match="optimizer updates its parameters as one flat tensor"):
        plan(training_step, inputs, MESHES["two"])


def test_an_optimizer_is_shortened_with_the_layers_of_its_model() -> None:
    inputs = with_optimizer(language_model(5, DEVICE), "adam")
    optimizer = inputs["optimizer"]
    before = dict(vars(optimizer))
    lists = repeated(inputs)
    with shortened(inputs, lists, [2]):
        assert optimizer.params == nn.state.get_parameters(inputs["model"])
        assert len(optimizer.m) == len(optimizer.params) == len(optimizer.groups)
    assert vars(optimizer) == before
    names = [g.name for g in group_tensors(inputs) if g.parameter == "model.layers.*.up.weight"]
    assert names == ["optimizer of model.layers.*.up.weight"]


# ---- against manual layouts ----


def replicated(names: list[str], x: Sharding, whole: Sharding) -> dict[str, Sharding]:
    return {name: x if name == "x" else whole for name in names}


def tensor_parallel(names: list[str], x: Sharding, split: Callable[[int], Sharding]) -> Any:
    """Columns of the first weight of each pair, rows of the second (arXiv:1909.08053)."""
    rows = ("layers.0.weight", "layers.0.bias", "wq.weight", "wk.weight", "wv.weight", "up.weight")
    columns = ("layers.1.weight", "wo.weight", "down.weight")
    whole = x.replicated()

    def layout(name: str) -> Sharding:
        if name == "x":
            return x
        if name.endswith((*rows, "up.bias")):
            return split(0)
        return split(1) if name.endswith(columns) else whole

    return {name: layout(name) for name in names}


def by_hand(inputs: Mapping[str, Any], mesh: Mesh) -> dict[str, dict[str, Sharding]]:
    """The usual layouts: data parallel, fully sharded, tensor parallel, and two of them at once."""
    tensors = nn.state.get_state_dict(dict(inputs))
    names, size = list(tensors), len(mesh.shape)
    rows = mesh.sharding(P(mesh.names))
    whole = rows.replicated()
    fully = {name: rows if x.shape[0] % len(rows) == 0 else whole for name, x in tensors.items()}
    found = {
        "data parallel": replicated(names, rows, whole),
        "fully sharded": fully,
        "tensor parallel": tensor_parallel(
            names, whole, lambda axis: mesh.sharding(P(*[None] * axis, mesh.names))
        ),
    }
    if size == 2:
        found["both"] = tensor_parallel(
            names, mesh.sharding(P("dp")), lambda axis: mesh.sharding(P(*[None] * axis, "tp"))
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: perceptron(64), id="perceptron"),
        pytest.param(block, id="layer"),
    ],
)
@pytest.mark.parametrize("mesh", ["four", "grid"])
def test_no_manual_layout_is_better(mesh: str, make: Callable[[], dict[str, Any]]) -> None:
    inputs = filled(make())
    cost = plan(step, inputs, MESHES[mesh]).cost
    for name, layouts in by_hand(inputs, MESHES[mesh]).items():
        expected = predict(step, inputs, layouts)
        assert cost.seconds <= expected.seconds, name
        laid_out(inputs, layouts)
        assert measured(inputs) == expected.kinds, name


# here only bytes take time
BYTES = Topology(
    same_memory=Link("same memory", 0.0, 1e9),
    peer=Link("peer", 0.0, 1e9),
    host_processor=Processor(math.inf, math.inf),
    accelerator=Processor(math.inf, math.inf),
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("mesh", ["four", "grid"])
def test_with_a_sharded_batch_a_plan_moves_no_more_than_manual_layouts(mesh: str) -> None:
    inputs = filled(perceptron(512))
    names = MESHES[mesh].names
    with BYTES:
        found = plan(step, inputs, MESHES[mesh], fixed={"x": P(names)})
        moved = []
        for name in ("data parallel", "fully sharded"):
            laid_out(inputs, by_hand(inputs, MESHES[mesh])[name])
            moved.append(sum(measured(inputs).values()))
        laid_out(inputs, found.layouts)
        assert sum(measured(inputs).values()) == found.cost.nbytes <= min(moved)


# ---- limits, names, errors ----


@pytest.mark.slow
def test_a_memory_limit_is_respected() -> None:
    inputs = perceptron(512)
    whole = plan(step, inputs, MESHES["four"], fixed={"model.layers.0.weight": P()})
    limit = whole.cost.memory_nbytes - 1
    small = plan(step, inputs, MESHES["four"], limit)
    assert small.cost.memory_nbytes <= limit
    inputs = filled(perceptron(512))
    laid_out(inputs, plan(step, inputs, MESHES["four"], limit).layouts)
    assert measured(inputs) == small.cost.kinds


@pytest.mark.slow
def test_the_optimum_of_a_small_search_space_is_found() -> None:
    inputs = perceptron(500)
    mesh, groups = MESHES["four"], group_tensors(inputs)
    fixed = {group.name: P() for group in groups if len(group.shape) == 1}
    options = [(None, 0, 1) if len(group.shape) > 1 else (None,) for group in groups]
    search = Search(TrialFunction(step, inputs, groups), mesh, None, {})
    costs = []
    for axes in itertools.product(*options):
        choice = tuple((axis,) for axis in axes)
        least, cost = search.lower_bound(choice), search.plan(choice)
        assert cost.communication_s >= least.communication_s
        assert cost.computation_s >= least.computation_s
        assert cost.working_nbytes >= least.working_nbytes
        costs.append(cost)
    assert len(costs) == 27
    middle = sorted(cost.memory_nbytes for cost in costs)[5]
    for limit in (None, middle):
        found = plan(step, inputs, mesh, limit, fixed)
        fit = [cost for cost in costs if limit is None or cost.memory_nbytes <= limit]
        assert found.cost.seconds == min(cost.seconds for cost in fit)
        assert found.is_optimal
        assert "; all that can fit: none is better" in str(found)


def test_exceeding_memory_is_an_error_that_says_how_much_is_needed() -> None:
    message = r"choices of layouts fits into 1,000 bytes a device; the nearest needs [\d,]+ bytes"
    with pytest.raises(MemoryError, match=message):
        plan(step, perceptron(32), MESHES["two"], memory_limit=1000)


def test_an_unknown_name_is_an_error_that_lists_the_names() -> None:
    inputs = perceptron(32)
    names = "model.layers.0.weight, model.layers.0.bias"
    with pytest.raises(ShardingError, match=f"no tensor of the inputs is 'y'; use one of {names}"):
        plan(step, inputs, MESHES["two"], fixed={"y": P("dp")})
    with pytest.raises(ShardingError, match="no tensor of the inputs is 'y'"):
        predict(step, inputs, {"y": on(0)})


def test_a_function_that_returns_nothing_is_an_error() -> None:
    with pytest.raises(TypeError, match="the function returned no tensor"):
        plan(lambda x: None, {"x": Tensor.empty(4, 4)}, MESHES["two"])


@pytest.mark.slow
def test_planning_leaves_tensors_and_random_numbers_unchanged() -> None:
    inputs = filled(perceptron(32))
    x = inputs["x"]
    before, node = x.numpy(), x.uop
    x.grad = gradient = x.ones_like()
    Tensor.manual_seed(7)
    Tensor.rand(3).realize()
    expected = Tensor.rand(3).numpy()
    Tensor.manual_seed(7)
    Tensor.rand(3).realize()
    plan(lambda model, x: step(model, x.dropout(0.5)), inputs, MESHES["two"])
    assert x.uop is node
    assert x.grad is gradient
    np.testing.assert_array_equal(x.numpy(), before)
    np.testing.assert_array_equal(Tensor.rand(3).numpy(), expected)


# ---- many layers ----


def language_model(layers: int, device: str = "NULL") -> dict[str, Any]:
    model = Transformer(vocab=64, dim=32, layers=layers, heads=4, seq=16)
    tokens, targets = (Tensor.empty(8, 16, dtype=dtypes.int, device=device) for _ in range(2))
    for x in nn.state.get_parameters(model):
        x.replace(Tensor.empty(*x.shape, device=device))
    return {"model": model, "tokens": tokens, "targets": targets}


def test_equal_layers_share_layouts() -> None:
    groups = {group.name: group for group in group_tensors(language_model(5))}
    assert list(groups["model.layers.*.up.weight"].tensors)[-1] == "model.layers.4.up.weight"
    assert "model.layers.0.up.weight" not in groups
    # two linear layers of one shape may have different layouts
    pair = group_tensors({"model": Perceptron(8, 8, 8)})
    assert [group.name for group in pair][:2] == ["model.layers.0.weight", "model.layers.0.bias"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "spec", [P(), pytest.param(P("dp"), marks=pytest.mark.slow), P(None, "tp")]
)
def test_few_layers_predict_the_cost_of_many(spec: P) -> None:
    inputs = language_model(5)
    groups = group_tensors(inputs)
    mesh = Mesh((2, 2), ("dp", "tp"), ("NULL", "NULL:1", "NULL:2", "NULL:3"))
    layouts = [
        mesh.sharding(spec if len(group.shape) > 1 and not group.is_data else P())
        for group in groups
    ]
    whole = TrialFunction(language_step, inputs, groups)
    counted = whole.planned(layouts, whole.graphs(layouts))
    exact = whole.cost(layouts)
    assert len(whole.repeated) == 1
    assert counted.inputs_nbytes == exact.inputs_nbytes
    assert counted.kinds == exact.kinds
    assert counted.seconds == pytest.approx(exact.seconds, rel=1e-9)
    # between temporaries of a few KB, holes take a little
    assert counted.memory_nbytes == pytest.approx(exact.memory_nbytes, rel=0.01)
    assert len(inputs["model"].layers) == 5


@pytest.mark.slow
def test_a_language_model_runs_as_planned() -> None:
    inputs = language_model(3, DEVICE)
    random = np.random.default_rng(0)
    for x in nn.state.get_parameters(inputs):
        is_number = x.is_floating_point()
        value = array(*x.shape) * 0.2 if is_number else random.integers(0, 64, x.shape)
        x.replace(Tensor(value, dtype=x.dtype).realize())
    vectors = {group.name: P() for group in group_tensors(inputs) if len(group.shape) == 1}
    fixed = {**vectors, "tokens": P("dp"), "targets": P("dp")}
    found = plan(language_step, inputs, MESHES["two"], fixed=fixed)
    assert "model.layers.*.up.weight" in found.specs
    assert not found.is_optimal
    laid_out(inputs, found.layouts)
    assert measured(inputs, language_step) == found.cost.kinds


def test_a_table_shows_the_chosen_layouts() -> None:
    found = plan(step, perceptron(512), MESHES["grid"], fixed={"x": P(("dp", "tp"))})
    lines = str(found).splitlines()
    assert lines[0].startswith(f"Mesh(dp=2, tp=2, {DEVICE}:0-3), ")
    assert lines[1].split()[:2] == ["tensor", "count"]
    row = next(line for line in lines if line.startswith("x "))
    assert "P(('dp', 'tp'), None)" in row
    assert row.endswith(f"{128 * 64 * 4:,}")
    assert f"a step moves {found.cost.nbytes:,} bytes" in lines[-2]


def test_shards_and_stacks_cost_no_communication() -> None:
    def scaled(model: Any, x: Tensor) -> list[Tensor]:
        y = model(x).relu()
        if isinstance(y.device, Sharding):
            y = Tensor.from_shards([shard * 2 for shard in y.shards], y.device)
        return [y.square().mean()]

    inputs, mesh = perceptron(512), MESHES["two"]
    found = plan(scaled, inputs, mesh, fixed={"x": P("dp")})
    assert set(found.cost.kinds) <= {"all_reduce"}
    laid_out(inputs, found.layouts)
    assert measured(inputs, scaled) == found.cost.kinds


@pytest.mark.slow
def test_seventy_billion_parameters_on_64_devices_fit_a_limit() -> None:
    model = GroupedTransformer(128256, 8192, 80, 64, 8, 28672)
    assert sum(x.numel() for x in nn.state.get_parameters(model)) > 70e9
    tokens, targets = (Tensor.empty(64, 512, dtype=dtypes.int, device="NULL") for _ in range(2))
    mesh = Mesh((8, 8), ("dp", "tp"), tuple(f"NULL:{i}" for i in range(64)))
    inputs = {"model": model, "tokens": tokens, "targets": targets}
    found = plan(language_step, inputs, mesh, memory_limit=80 * 10**9)
    assert found.cost.inputs_nbytes < found.cost.memory_nbytes <= 80 * 10**9
    assert len(found.layouts) == 9 * 80 + 4
