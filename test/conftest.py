"""What all tests share: how hypothesis searches, settings put back after a test, empty caches."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tinygrad.settings import Context, ContextVar

# the first run of a graph compiles it, so no example can have a deadline
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def settings_put_back() -> Iterator[None]:
    """A test that changes a setting changes it for itself only."""
    with Context(**{name: setting.value for name, setting in ContextVar.declared.items()}):
        yield


@pytest.fixture(scope="module", autouse=True)
def survivors_set_aside() -> Iterator[None]:
    """What a file leaves behind, such as compiled kernels, is not searched for garbage again."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def empty_cache(tmp_path: os.PathLike[str]) -> Iterator[os.PathLike[str]]:
    """A cache folder with nothing in it, used for this test alone."""
    with Context(CACHEDIR=str(tmp_path)):
        yield tmp_path
