"""Memory: a model sharded over eight devices is never unsharded on any device.

From initialization to saving, the peak memory of a device is its shard of the state and the small
allowances named below.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, device_names
from test.models.transformer import Transformer
from test.sharding.common import KIB
from test.together import CommTrace, GlobalCounters
from tinygrad import Sharding, Tensor, TinyJit, dtypes, nn, ranks
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import (
    get_parameters,
    get_state_dict,
    ggml_data_to_tensor,
    load_state_dict,
    safe_load,
    safe_save,
)

EIGHT = device_names(8)
ROWS = Sharding(EIGHT, 0)

# the seeds of each tensor's random numbers, and their position in the sequence
SEEDS = 4 * KIB
# the learning rate and the powers of the decay rates
SCALARS = KIB
# activations of the small transformer for two tokens, replicated on each device
ACTIVATIONS = 26 * KIB
# alignment of memory that is sent or received
ALIGNMENT = 64
# Python objects: names, shapes, open files
PYTHON = 192 * KIB


class Usage:
    """Peak bytes of each device, beyond those held before."""

    def __init__(self) -> None:
        gc.collect()
        GlobalCounters.reset()
        self.before = dict(GlobalCounters.mem_used_per_device)

    def peak(self, device: str) -> int:
        return GlobalCounters.mem_peak_per_device[device] - self.before.get(device, 0)

    @property
    def most(self) -> int:
        return max(self.peak(device) for device in EIGHT)


@contextmanager
def watched() -> Iterator[Usage]:
    """Checks that the block allocates memory on the eight devices only."""
    usage = Usage()
    yield usage
    others = {
        device: usage.peak(device)
        for device in GlobalCounters.mem_peak_per_device
        if device not in EIGHT and usage.peak(device)
    }
    assert not others


def sharded(model: Any, layout: Sharding = ROWS) -> Any:
    """A model whose lazy tensors were resharded before realizing."""
    for parameter in get_parameters(model):
        parameter.shard_(layout)
    return model


def transformer() -> Any:
    return Transformer(vocab=512, dim=128, layers=2, seq=8)


def convolutions() -> Any:
    return [
        nn.Conv2d(16, 64, 3),
        nn.BatchNorm(64),
        nn.ConvTranspose2d(64, 64, 3),
        nn.GroupNorm(8, 64),
    ]


def recurrent() -> Any:
    return nn.LSTMCell(64, 128)


def nbytes(model: Any) -> int:
    return sum(parameter.nbytes() for parameter in get_parameters(model))


def largest_bytes(model: Any) -> int:
    return max(parameter.nbytes() for parameter in get_parameters(model))


def realize_together(parameters: list[Tensor]) -> None:
    Tensor.realize(*parameters)


def realize_one_by_one(parameters: list[Tensor]) -> None:
    for parameter in parameters:
        parameter.realize()


# ---- initialization ----


@pytest.mark.parametrize("make", [transformer, convolutions, recurrent])
@pytest.mark.parametrize("realize", [realize_together, realize_one_by_one])
def test_initial_weights_are_drawn_shard_by_shard(
    make: Callable[[], Any], realize: Callable[[list[Tensor]], None]
) -> None:
    model = sharded(make())
    with watched() as usage, CommTrace() as trace:
        realize(get_parameters(model))
    assert nbytes(model) // 16 < usage.most <= nbytes(model) // 8 + SEEDS
    assert trace.nbytes <= SEEDS


DRAWS: dict[str, Callable[[], Tensor]] = {
    "uniform": lambda: Tensor.uniform(512, 256),
    "normal": lambda: Tensor.normal(512, 256, std=0.02),
    "glorot": lambda: Tensor.glorot_uniform(512, 256),
    "kaiming": lambda: Tensor.kaiming_normal(512, 256),
    "half": lambda: (Tensor.randn(512, 256) / 50).cast(dtypes.half),
    "transposed": lambda: Tensor.randn(256, 512).T,
    "clipped": lambda: Tensor.randn(512, 256).clamp(-2, 2),
    "joined": lambda: Tensor.cat(Tensor.rand(256, 256), Tensor.randn(256, 256)),
    "a table of angles": lambda: (
        (Tensor.arange(512).reshape(512, 1) / 10000).sin().expand(512, 256)
    ),
    "a triangle": lambda: Tensor.ones(512, 256).tril(),
    "rows that do not divide": lambda: Tensor.randn(500, 256),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_random_weights_sharded_later_have_the_same_values_and_are_never_unsharded(
    draw: Callable[[], Tensor], axis: int
) -> None:
    Tensor.manual_seed(7)
    expected = draw().numpy()
    Tensor.manual_seed(7)
    with watched() as usage:
        x = draw().shard_(EIGHT, axis).contiguous().realize()
    part = max(1, -(-x.shape[axis] // 8)) * x.nbytes() // x.shape[axis]
    assert usage.most <= part + SEEDS
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("layout", [ROWS, Sharding(EIGHT, 1), Sharding(EIGHT, (1, 0), (2, 4))])
@pytest.mark.parametrize("way", ["shard", "device", "load"])
def test_host_arrays_are_sliced_on_the_host(layout: Sharding, way: str) -> None:
    array = np.arange(100 * 200, dtype=np.float32).reshape(100, 200)
    model = {"x": Tensor.empty(100, 200).shard_(layout)}
    state = {"x": Tensor(array)}
    with watched() as usage, CommTrace() as trace:
        if way == "shard":
            x = (Tensor(array).shard(layout) * 2).realize()
        elif way == "device":
            x = (Tensor(array, device=layout) * 2).realize()
        else:
            load_state_dict(model, {"x": state["x"] * 2}, verbose=False)
            x = model["x"]
    part = Tensor.empty(*layout.local_shape(array.shape)).nbytes()
    assert usage.most <= 2 * part + ALIGNMENT
    assert trace.nbytes == 0
    np.testing.assert_array_equal(x.numpy(), array * 2)


def test_the_gradient_of_a_sharded_array_is_found_after_a_user_of_it_was_realized() -> None:
    x = Tensor(np.ones((8, 8), np.float32), requires_grad=True)
    split = x.shard(EIGHT, 1)
    loss = (split * 3).sum()
    (split + 1).realize()
    loss.backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.full((8, 8), 3))


# ---- optimizer steps ----


def test_optimizer_state_has_the_layout_of_its_parameters() -> None:
    model = sharded(transformer())
    Tensor.realize(*get_parameters(model))
    with watched() as usage:
        optimizer = Adam(get_parameters(model))
        Tensor.realize(*get_parameters(optimizer))
    assert usage.most <= 2 * nbytes(model) // 8 + SCALARS


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
def test_a_step_holds_an_eighth_of_the_state_and_of_the_gradients(
    jit: bool,
) -> None:
    model = sharded(transformer())
    Tensor.realize(*get_parameters(model))
    before = nbytes(model) // 8
    tokens = Tensor(np.arange(2, dtype=np.int32).reshape(1, 2)).shard(EIGHT).realize()
    with watched() as usage, Tensor.train():
        optimizer = Adam(get_parameters(model))

        def step(tokens: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(tokens).square().mean().backward()
            return loss.realize(*optimizer.schedule_step())

        run = TinyJit(step) if jit else step
        for _ in range(4):
            run(tokens)
    state, gradients = 3 * nbytes(model), nbytes(model)
    # a gradient sharded along another axis than its parameter is packed, sent and received
    in_transit = 2 * largest_bytes(model)
    most = before + usage.most
    assert most <= (state + gradients + in_transit) // 8 + SCALARS + ACTIVATIONS


@pytest.mark.parametrize("rows", [4096, 4001])
def test_the_gradient_of_a_sharded_table_is_computed_shard_by_shard(rows: int) -> None:
    table = Tensor.randn(rows, 16).shard(EIGHT, 0).realize()
    index = Tensor([5, rows - 1, 5, 0]).shard(EIGHT).realize()
    looked_up_bytes = 4 * 16 * 4
    with watched() as usage:
        gradient = (table[index] * 3).sum().gradient(table)[0].realize()
    assert usage.most <= -(-rows // 8) * 16 * 4 + 2 * looked_up_bytes
    expected = np.zeros((rows, 16), np.float32)
    expected[[0, 5, rows - 1]] = [[3], [6], [3]]
    np.testing.assert_array_equal(gradient.numpy(), expected)


# ---- saving and loading ----


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    safe_save(get_state_dict(transformer()), path)
    return path


def test_a_model_is_loaded_shard_by_shard(saved: Path) -> None:
    model, state = sharded(transformer()), safe_load(saved)
    with watched() as usage, CommTrace() as trace:
        load_state_dict(model, state, verbose=False)
    assert nbytes(model) // 16 < usage.most <= nbytes(model) // 8
    assert trace.nbytes == 0


def test_loading_over_a_model_in_memory_takes_shards_of_two_weights_more(saved: Path) -> None:
    model, state = sharded(transformer()), safe_load(saved)
    Tensor.realize(*get_parameters(model))
    with watched() as usage:
        load_state_dict(model, state, verbose=False)
    assert usage.most <= 2 * largest_bytes(model) // 8


@pytest.mark.parametrize("axis", [0, 1])
def test_sharding_a_tensor_of_a_file_reads_it_shard_by_shard(tmp_path: Path, axis: int) -> None:
    array = np.arange(96 * 64, dtype=np.float32).reshape(96, 64)
    safe_save({"x": Tensor(array)}, tmp_path / "x.safetensors")
    state = safe_load(tmp_path / "x.safetensors")
    with watched() as usage:
        x = state["x"].shard(EIGHT, axis).realize()
    assert usage.most == array.nbytes // 8
    np.testing.assert_array_equal(x.numpy(), array)


def test_quantised_weights_are_read_and_dequantised_shard_by_shard(tmp_path: Path) -> None:
    blocks = np.random.default_rng(0).integers(0, 50, (512, 4 * 18), np.uint8)
    if ranks.rank() == 0:
        (tmp_path / "q4_0").write_bytes(blocks.tobytes())
    ranks.gather("written")
    in_file = Tensor(tmp_path / "q4_0").reshape(512, 4, 18)
    q4_0 = 2
    state = {
        str(i): ggml_data_to_tensor(in_file.to(DEVICE).flatten(), 512 * 128, q4_0).reshape(512, 128)
        for i in range(3)
    }
    model = sharded({name: Tensor.empty(512, 128) for name in state})
    with watched() as usage, CommTrace() as trace:
        load_state_dict(model, state, verbose=False)
    assert usage.most <= (nbytes(model) + blocks.nbytes) // 8
    assert trace.nbytes == 0


def test_saving_takes_no_memory(tmp_path: Path) -> None:
    model = sharded(transformer())
    optimizer = Adam(get_parameters(model))
    state = {**get_state_dict(model), **get_state_dict(optimizer, "optimizer.")}
    Tensor.realize(*state.values())
    with watched() as usage, CommTrace() as trace:
        tracemalloc.start()
        safe_save(state, tmp_path / "all.safetensors")
        _, on_the_host = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert usage.most == 0
    assert trace.nbytes == 0
    assert on_the_host < PYTHON < nbytes(model) // 8


def test_a_replicated_value_is_read_from_the_memory_of_one_device() -> None:
    x = Tensor.arange(1 << 10).shard(EIGHT).contiguous().realize()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    assert x.reshape(2, -1)[1, :3].tolist() == [512, 513, 514]
    assert x.numpy().sum() == 1023 * 512
    assert (GlobalCounters.mem_peak, GlobalCounters.mem_used) == (before, before)
