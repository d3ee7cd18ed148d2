"""The devices that tests run on: those of the default kind, which `CUDA=1 pytest ...` chooses.

Tests of the CPU runtime itself name the CPU; `only_cpu` marks those that ask for it elsewhere.
"""

from __future__ import annotations

import pytest

from tinygrad.device import Device

DEVICE = Device.DEFAULT
"""The first device."""


def nth(number: int) -> str:
    """The name of device `number` of the default kind."""
    return f"{DEVICE}:{number}" if number else DEVICE


def device_names(count: int, first: int = 0) -> tuple[str, ...]:
    """The names of consecutive devices."""
    return tuple(nth(number) for number in range(first, first + count))


only_cpu = pytest.mark.skipif(DEVICE != "CPU", reason="tests the CPU runtime")
