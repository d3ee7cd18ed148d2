"""Plans of whole models: costs with few layers are those of all, plans run as predicted within
their limit, and are as good as layouts by hand, within 2 %.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from test.devices import nth, only_cpu
from test.models.transformer import Attention, Transformer
from test.sharding.training.test_planner import BYTES
from test.together import CommTrace, GlobalCounters
from tinygrad import Mesh, P, Sharding, Tensor, dtypes, nn
from tinygrad.planner import Plan, plan, predict
from tinygrad.planner import search as search_module
from tinygrad.planner.cost import Cost, TrialFunction, with_more_layers
from tinygrad.planner.layers import Group, group_tensors, named_tensors
from tinygrad.planner.optimizers import follow_parameters
from tinygrad.planner.search import Search

NULLS = Mesh((2, 4), ("dp", "tp"), tuple(f"NULL:{i}" for i in range(8)))
DATA = {"x": P("dp"), "y": P("dp")}
QUICK_NODES = 40_000


class Bottleneck:
    """A block of ResNet-50: (batch, channels, size, size) to (batch, 4 * width, size / stride,
    size / stride).
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        out = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn1, self.bn2, self.bn3 = (nn.BatchNorm(n) for n in (width, width, out))
        self.shortcut: list[Any] = []
        if stride != 1 or channels != out:
            conv = nn.Conv2d(channels, out, 1, stride=stride, bias=False)
            self.shortcut = [conv, nn.BatchNorm(out)]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + x.sequential(self.shortcut)).relu()


class ResNet:
    """Images (batch, 3, size, size) to scores; `depths` (3, 4, 6, 3) is ResNet-50."""

    def __init__(self, depths: tuple[int, ...], width: int = 8, classes: int = 8) -> None:
        self.conv, self.bn = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm(width)
        channels = width
        self.blocks: list[Bottleneck] = []
        for stage, depth in enumerate(depths):
            for k in range(depth):
                stride = 2 if stage and not k else 1
                self.blocks.append(Bottleneck(channels, width << stage, stride))
                channels = 4 * (width << stage)
        self.out = nn.Linear(channels, classes)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x)).relu().max_pool2d().sequential(self.blocks)
        return self.out(x.mean(axis=(2, 3)))


class ExpertLayer:
    """Attention, and the two best of several feed-forward networks for each token."""

    def __init__(self, dim: int, experts: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, 4)
        self.router = nn.Linear(dim, experts, bias=False)
        self.up, self.down = Tensor.empty(experts, dim, 64), Tensor.empty(experts, 64, dim)

    def __call__(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        weight, chosen = self.router(y).softmax(-1).topk(2)
        is_chosen = chosen.unsqueeze(-1).eq(Tensor.arange(self.up.shape[0]))
        gate = is_chosen.where(weight.unsqueeze(-1), 0).sum(-2)
        inner = Tensor.einsum("bsd,edh->ebsh", y, self.up).gelu()
        outer = Tensor.einsum("ebsh,ehd->ebsd", inner, self.down)
        return x + (outer * gate.permute(2, 0, 1).unsqueeze(-1)).sum(0)


class Experts:
    """Tokens (batch, seq) to the scores of the next ones."""

    def __init__(self, layers: int = 4, dim: int = 32, vocab: int = 64) -> None:
        self.tokens = nn.Embedding(vocab, dim)
        self.layers = [ExpertLayer(dim, 4) for _ in range(layers)]
        self.out = nn.Linear(dim, vocab, bias=False)

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.out(self.tokens(tokens).sequential(self.layers))


class Recurrent:
    """An LSTM over tokens (batch, seq)."""

    def __init__(self, dim: int = 32, vocab: int = 64) -> None:
        self.tokens, self.out = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.cell = nn.LSTMCell(dim, dim)

    def __call__(self, tokens: Tensor) -> Tensor:
        x, state, outputs = self.tokens(tokens), None, []
        for k in range(tokens.shape[1]):
            state = self.cell(x[:, k], state)
            outputs.append(state[0])
        return self.out(Tensor.stack(*outputs, dim=1))


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...], tuple[int, ...]]] = {
    "gpt": (lambda: Transformer(64, 32, 4, 4, 16), (8, 16), (8, 16)),
    "resnet": (lambda: ResNet((1, 2, 1, 1)), (8, 3, 16, 16), (8,)),
    "experts": (Experts, (8, 16), (8, 16)),
    "lstm": (Recurrent, (8, 6), (8, 6)),
}
DEEP: dict[str, Callable[[], Any]] = {
    "gpt": lambda: Transformer(2048, 256, 6, 4, 64),
    "experts": lambda: Experts(6, 256, 2048),
}
OPTIMIZERS: dict[str, Callable[[list[Tensor]], nn.optim.Optimizer]] = {
    "sgd": lambda params: nn.optim.SGD(params, momentum=0.9),
    "adamw": nn.optim.AdamW,
}


def inputs_of(name: str, optimizer: str, device: str = "NULL") -> dict[str, Any]:
    """A model, its optimizer, and a batch; nothing is allocated but on devices that compute."""
    make, x, y = MODELS[name]
    return with_data(make(), optimizer, x, y, device)


def with_data(
    model: Any, optimizer: str, x: tuple[int, ...], y: tuple[int, ...], device: str
) -> dict[str, Any]:
    for parameter in nn.state.get_parameters(model):
        kept = parameter.requires_grad
        empty = Tensor.empty(*parameter.shape, dtype=parameter.dtype, device=device)
        parameter.replace(empty).requires_grad_(kept)
    trained = [x for x in nn.state.get_parameters(model) if x.requires_grad is not False]
    kind = dtypes.float if len(x) > 2 else dtypes.int
    return {
        "model": model,
        "x": Tensor.empty(*x, dtype=kind, device=device),
        "y": Tensor.empty(*y, dtype=dtypes.int, device=device),
        "optimizer": OPTIMIZERS[optimizer](trained),
    }


def step(model: Any, x: Tensor, y: Tensor, optimizer: Any) -> list[Tensor]:
    """The loss, and all tensors that the optimizer updates."""
    with Tensor.train():
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        updates = optimizer.schedule_step()
        optimizer.zero_grad()
        return [loss, *updates]


# ---- layouts by hand ----

Rule = Callable[[Group], P]


def rows_over(*names: str) -> Rule:
    """The first axis over mesh dimensions, where every device gets a part."""
    count = 4 if len(names) == 2 else 2
    return lambda group: P(names) if group.shape and group.shape[0] % count == 0 else P()


def whole(group: Group) -> P:
    return P()


def megatron(group: Group) -> P:
    """Columns of the first matrix of each pair, rows of the second (arXiv:1909.08053)."""
    if len(group.shape) < 2 or group.shape[0] % 2:
        return P()
    second = ("wo.weight", "down.weight", "conv3.weight")
    return P(None, "tp") if group.name.endswith(second) else P("tp")


def both(group: Group) -> P:
    """Tensor parallel over one dimension, and fully sharded over the other along another axis."""
    spec = megatron(group)
    if spec == P("tp") and group.shape[1] % 2 == 0:
        return P("tp", "dp")
    return P("dp", "tp") if spec == P(None, "tp") else spec


BY_HAND: dict[str, tuple[Rule, Rule]] = {
    "data parallel": (whole, whole),
    "sharded state": (whole, rows_over("dp")),
    "fully sharded": (rows_over("dp"), rows_over("dp")),
    "fully sharded over all": (rows_over("dp", "tp"), rows_over("dp", "tp")),
    "tensor parallel": (megatron, megatron),
    "tensor parallel, sharded state": (megatron, both),
    "tensor parallel, fully sharded": (both, both),
}


def by_hand(inputs: Mapping[str, Any], mesh: Mesh) -> dict[str, dict[str, Sharding]]:
    """Usual layouts, of parameters and of the state of the optimizer, with a sharded batch."""
    found: dict[str, dict[str, Sharding]] = {}
    for name, (of_parameters, of_state) in BY_HAND.items():
        layouts = found[name] = {}
        for group in group_tensors(inputs):
            rule = of_parameters if group.parameter is None else of_state
            spec = DATA.get(group.name) or rule(group)
            layouts |= {x: mesh.sharding(spec) for x in group.tensors}
    return found


# ---- costs ----


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", DEEP)
def test_few_layers_tell_the_cost_of_many_whatever_was_built_before(
    name: str, optimizer: str
) -> None:
    inputs = with_data(DEEP[name](), optimizer, (32, 64), (32, 64), "NULL")
    trial = TrialFunction(step, inputs, group_tensors(inputs))
    assert trial.repeated
    by_name = by_hand(inputs, NULLS)
    found = []
    for layouts in (*by_name.values(), by_name["data parallel"]):
        chosen = [layouts[next(iter(group.tensors))] for group in trial.groups]
        few = trial.planned(chosen, trial.graphs(chosen))
        every = trial.cost(chosen)
        assert (few.kinds, few.inputs_nbytes) == (every.kinds, every.inputs_nbytes)
        assert few.working_nbytes == every.working_nbytes
        assert few.seconds == pytest.approx(every.seconds, rel=0.005)
        found.append(few)
    assert found[0] == found[-1]


@pytest.mark.parametrize("name", ["gpt", "experts"])
def test_a_short_list_of_layers_is_built_whole(name: str) -> None:
    inputs = inputs_of(name, "sgd")
    trial = TrialFunction(step, inputs, group_tensors(inputs))
    layouts = by_hand(inputs, NULLS)["fully sharded over all"]
    chosen = [layouts[next(iter(group.tensors))] for group in trial.groups]
    assert trial.planned(chosen, trial.graphs(chosen)) == trial.cost(chosen)


def test_a_trial_leaves_no_assignment_behind() -> None:
    inputs = inputs_of("gpt", "adamw")
    held = nn.state.get_parameters(inputs)
    before = [(x.uop, x._cell, x._steps, x.grad) for x in held]
    predict(step, inputs, by_hand(inputs, NULLS)["data parallel"])
    after = [(x.uop, x._cell, x._steps, x.grad) for x in held]
    assert all(a is b for x, y in zip(before, after, strict=True) for a, b in zip(x, y))


def test_costs_of_more_layers_are_never_below_that_of_one() -> None:
    one = Cost({"all_reduce": 8, "all_gather": 4}, 2.0, 1.0, 0, 100, 10)
    two = Cost({"all_reduce": 6, "all_to_all": 3}, 1.0, 2.5, 0, 90, 30)
    found = with_more_layers([(1, one), (5, two)])
    assert found.kinds == {"all_reduce": 8, "all_gather": 4, "all_to_all": 15}
    assert found == Cost(found.kinds, 2.0, 8.5, 0, 100, 110)


def test_a_search_ends_when_its_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MAX_NODES", QUICK_NODES)
    inputs = inputs_of("gpt", "adamw")
    search = Search(TrialFunction(step, inputs, group_tensors(inputs)), NULLS, None, {})
    search.run()
    largest = max(search.work / (len(search.lower_bounds) + 2 * len(search.planned)), 1)
    assert QUICK_NODES <= search.work <= QUICK_NODES + 4 * largest
    assert not search.is_exact


def test_hundreds_of_groups_are_combined_without_recursion() -> None:
    inputs = {f"x{i}": Tensor.empty(1, device="NULL") for i in range(2000)}
    search = Search(TrialFunction(lambda **_: [], inputs, group_tensors(inputs)), NULLS, 8000, {})
    assert len(next(iter(search.fitting()))) == 2000


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 2 * 10**9, 430 * 10**6])
def test_a_step_of_a_gpt_is_planned_within_a_minute(limit: int | None) -> None:
    model = Transformer(vocab=8192, dim=512, layers=6, heads=8, seq=256)
    inputs = with_data(model, "adamw", (32, 256), (32, 256), "NULL")
    start = time.process_time()
    found = plan(step, inputs, NULLS, limit)
    assert time.process_time() - start < 60
    assert found.cost.seconds > 0
    assert limit is None or found.cost.memory_nbytes <= limit
    assert found.cost == predict(step, inputs, found.layouts)


@pytest.mark.slow
def test_a_step_of_resnet_50_is_planned_within_a_minute() -> None:
    inputs = with_data(ResNet((3, 4, 6, 3), 64), "adamw", (64, 3, 64, 64), (64,), "NULL")
    start = time.process_time()
    found = plan(step, inputs, NULLS, fixed=DATA)
    assert time.process_time() - start < 60
    assert (
        found.cost.seconds <= predict(step, inputs, by_hand(inputs, NULLS)["data parallel"]).seconds
    )


# ---- plans that run ----


def run(name: str, optimizer: str, found: Plan) -> tuple[dict[str, int], int, int]:
    """The bytes that a step moves, and the memory of the inputs and at the peak."""
    inputs = inputs_of(name, optimizer, nth(40))
    for tensor, x in named_tensors(inputs).items():
        ones = Tensor.ones(*x.shape, dtype=x.dtype).to(found.layouts[tensor])
        x.replace(ones.contiguous()).realize()
    follow_parameters([inputs["optimizer"]])
    gc.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used_per_device[nth(41)]
    with CommTrace() as trace:
        Tensor.realize(*step(**inputs))
    return trace.kinds(), before, GlobalCounters.mem_peak_per_device[nth(41)]


def models_and_optimizers() -> Iterator[Any]:
    reason = "with a tight limit, a search of 600,000 nodes may end before it finds what fits"
    for name in MODELS:
        for optimizer in OPTIMIZERS:
            is_cut = (name, optimizer) == ("resnet", "adamw")
            fails = pytest.mark.xfail(reason=reason, raises=MemoryError, strict=False)
            marks = [fails] if is_cut else []
            yield pytest.param(name, optimizer, marks=marks, id=f"{name}-{optimizer}")


@pytest.mark.slow
@only_cpu  # on devices that nothing else uses
@pytest.mark.parametrize(("name", "optimizer"), [*models_and_optimizers()])
def test_plans_run_as_predicted_and_layouts_by_hand_are_no_more_than_a_little_better(
    name: str, optimizer: str
) -> None:
    mesh = Mesh((2, 2), ("dp", "tp"), tuple(nth(i) for i in range(40, 44)))
    inputs = inputs_of(name, optimizer, nth(40))
    with BYTES:
        layouts = by_hand(inputs, mesh)
        costs = {name: predict(step, inputs, found) for name, found in layouts.items()}
        tight = min(cost.memory_nbytes for cost in costs.values()) * 9 // 8
        for limit in (None, tight):
            found = plan(step, inputs, mesh, limit, DATA)
            assert found.cost == predict(step, inputs, found.layouts)
            kinds, before, peak = run(name, optimizer, found)
            cost = found.cost
            assert (kinds, before, peak) == (cost.kinds, cost.inputs_nbytes, cost.memory_nbytes)
            fits = {n: c for n, c in costs.items() if limit is None or c.memory_nbytes <= limit}
            assert fits
            # only bytes take time here: those over the busiest link; a local search may end near
            # the best layouts
            worse = {n: c.seconds for n, c in fits.items() if c.seconds < 0.98 * found.cost.seconds}
            assert not worse, (limit, found.cost.seconds)
