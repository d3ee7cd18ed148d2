"""The devices that tests run on: those of the default kind, which `CUDA=1 pytest ...` chooses.

Tests of the CPU's runtime name the CPU. `only_cpu` and `only_cuda` mark tests of one kind.
"""

from __future__ import annotations

import pytest

from tinygrad import ranks
from tinygrad.device import Device

DEVICE = Device.DEFAULT
"""The first device."""


def nth(number: int) -> str:
    """The name of device `number` of the default kind."""
    return f"{DEVICE}:{number}" if number else DEVICE


def device_names(count: int, first: int = 0) -> tuple[str, ...]:
    """The names of consecutive devices."""
    return tuple(nth(number) for number in range(first, first + count))


def only_one_process(reason: str) -> pytest.MarkDecorator:
    """Marks tests that look at what one process holds, and do not run on several ranks."""
    return pytest.mark.skipif(ranks.size() > 1, reason=reason)


only_cuda = pytest.mark.skipif(DEVICE.partition(":")[0] != "CUDA", reason="tests CUDA")
only_cpu = pytest.mark.skipif(DEVICE != "CPU", reason="tests the CPU runtime")
