"""Tests of bytes expect the algorithms that are best where devices share the host's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from test.devices import DEVICE
from tinygrad.sharding import Topology
from tinygrad.sharding.topology import HOST_PROCESSOR, SAME_MEMORY


@pytest.fixture(autouse=DEVICE != "CPU")
def links_of_the_cpu() -> Iterator[None]:
    """Peers are as far from each other as devices on the CPU, and as fast."""
    with Topology(peer=SAME_MEMORY, accelerator=HOST_PROCESSOR):
        yield
