"""Tests of bytes expect the algorithms that are best where devices share the host's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinygrad.device import Device
from tinygrad.sharding import Topology
from tinygrad.sharding.topology import HOST_PROCESSOR, SAME_MEMORY


@pytest.fixture(autouse=True)
def links_of_the_cpu() -> Iterator[None]:
    """Peers are as far from each other as devices on the CPU of one process, and as fast."""
    # the default device is chosen after this file is imported
    is_cpu = Device.DEFAULT == "CPU"
    with Topology() if is_cpu else Topology(peer=SAME_MEMORY, accelerator=HOST_PROCESSOR):
        yield
