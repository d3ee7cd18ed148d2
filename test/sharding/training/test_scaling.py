"""Scaling: more devices need no more kernels, and creation on many devices is shard by shard."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from test.devices import device_names, only_one_process
from test.models.parallel import data_parallel, tensor_parallel
from test.sharding.common import DEVICES, moved, on, parts
from test.together import GlobalCounters
from tinygrad import Tensor
from tinygrad.device import Sharding
from tinygrad.execution.realize import ExecItem
from tinygrad.sharding import Topology

STEPS = {"data parallel": data_parallel, "tensor parallel": tensor_parallel}


@pytest.mark.slow
@only_one_process("looks at the items of all devices")
@pytest.mark.parametrize("text", [False, True], ids=["mlp", "transformer"])
@pytest.mark.parametrize("name", STEPS)
def test_more_devices_need_no_more_kernels(name: str, text: bool) -> None:
    def kernels(count: int) -> int:
        devices = [f"NULL:{i}" for i in range(count)]
        with Topology():
            first, *rest = STEPS[name](devices, text=text)
            items = first.schedule(*rest)
        return len({item.ast for item in items if isinstance(item, ExecItem)})

    two = kernels(2)
    assert two > 5
    assert kernels(4) <= two
    # the reduction of more partial sums is fused into fewer kernels
    assert kernels(8) <= two + 2


# ---- memory without content ----

EIGHT = device_names(8)
NUMBERS = 1 << 16
MADE: dict[str, Callable[[Any], Tensor]] = {
    "empty there": lambda layout: Tensor.empty(NUMBERS, device=layout),
    "empty, then sharded": lambda layout: Tensor.empty(NUMBERS).shard(layout),
    "empty, sharded in place": lambda layout: Tensor.empty(NUMBERS).shard_(layout),
    "zeros there": lambda layout: Tensor.zeros(NUMBERS, device=layout).contiguous(),
    "ones, then sharded": lambda layout: Tensor.ones(NUMBERS).shard(layout).contiguous(),
    "ones to be stored, sharded in place": (
        lambda layout: Tensor.ones(NUMBERS).contiguous().shard_(layout)
    ),
    "a ramp, then sharded": lambda layout: Tensor.arange(NUMBERS).shard(layout).contiguous(),
}


@pytest.mark.parametrize("layout", [on(0), Sharding(EIGHT, 0)], ids=["four", "eight"])
@pytest.mark.parametrize("name", MADE)
def test_a_sharded_empty_array_is_allocated_shard_by_shard(name: str, layout: Any) -> None:
    gc.collect()  # which several ranks do less often
    GlobalCounters.reset()
    before, used = GlobalCounters.mem_used, dict(GlobalCounters.mem_used_per_device)
    x = MADE[name](layout)
    assert moved(x) == {}
    # one kernel per device writes a constant; an empty array needs none
    assert GlobalCounters.kernel_count == (0 if "empty" in name else len(layout))
    part = x.nbytes() // len(layout)
    for device in layout:
        assert GlobalCounters.mem_used_per_device[device] - used.get(device, 0) == part
    assert GlobalCounters.mem_peak - before == GlobalCounters.mem_used - before == x.nbytes()
    assert x.device is layout


def test_constants_take_no_memory_until_they_are_stored() -> None:
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    x = Tensor.full((NUMBERS,), 2.0).shard(DEVICES, 0)
    assert (x.realize() * 3).device is on(0)
    assert GlobalCounters.kernel_count == 0
    assert GlobalCounters.mem_used == before


def test_a_slice_of_empty_memory_is_written_in_place() -> None:
    x = Tensor.empty(8, 4, device=on(0)).realize()
    x.assign(Tensor.full((8, 4), 3.0)).realize()
    assert all((part == 3).all() and part.shape == (2, 4) for part in parts(x))
