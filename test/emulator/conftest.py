"""Emulated devices for tests of the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from test.emulator import emulated_cuda
from test.emulator.compiler import NoCompilerError

if TYPE_CHECKING:
    from test.emulator.cuda_calls import EmulatedDevice

# tests reset these devices, so the library's tests in the same process must not use them
FIRST, SECOND = 6, 7


@pytest.fixture(scope="session")
def emulated_driver() -> None:
    """The emulated driver, in this process."""
    pytest.importorskip("cuda.bindings")
    from tinygrad.device import Device

    if Device.DEFAULT == "CUDA" and not emulated_cuda.is_installed():
        pytest.skip("this process uses NVIDIA's driver")
    try:
        emulated_cuda.install()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture
def gpu(emulated_driver: None) -> Iterator[EmulatedDevice]:
    """An emulated device, without the errors that the test provokes."""
    from test.emulator.cuda_calls import EmulatedDevice

    device = EmulatedDevice(FIRST)
    yield device
    device.reset()


@pytest.fixture
def gpus(gpu: EmulatedDevice) -> Iterator[tuple[EmulatedDevice, EmulatedDevice]]:
    """Two emulated devices, the first of which is current."""
    from test.emulator.cuda_calls import EmulatedDevice

    other = EmulatedDevice(SECOND)
    gpu.activate()
    yield gpu, other
    other.reset()


@pytest.fixture(params=[False, True], ids=["forwards", "backwards"])
def both_orders(request: pytest.FixtureRequest, emulated_driver: None) -> Iterator[None]:
    """The test runs in both orders of execution."""
    with emulated_cuda.order(request.param):
        yield
