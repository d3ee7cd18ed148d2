"""Shared by all tests: parallel runs, sampled cases, hypothesis profiles, and common fixtures."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tinygrad.settings import Context, ContextVar

# the first run of a graph compiles it, so no example can have a deadline
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# tests leave little in reference cycles, so fewer searches for garbage do
gc.set_threshold(10_000, 20, 20)

# a worker imports every test file and takes up to 2 GB, so more than this do not pay
MAX_WORKERS = 8


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Runs folders of tests in one process per core, unless `-n` or a debugger says otherwise.

    Single files run in this process: starting workers would take longer than the tests.
    """
    options = config.option
    has_xdist = config.pluginmanager.hasplugin("xdist")
    is_worker = hasattr(config, "workerinput")
    if is_worker or not has_xdist or options.numprocesses is not None:
        return
    if options.usepdb or options.collectonly:
        return
    if any(Path(argument).is_dir() for argument in config.args):
        options.numprocesses = min(core_count(), MAX_WORKERS)
        # neighbours share module fixtures and compiled kernels, so each worker takes a run of them
        options.dist = "worksteal"


def core_count() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow what `@pytest.mark.sample(n)` leaves out of the quick suite."""
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        cases = [item for item in group if isinstance(item, pytest.Function)]
        if cases and (mark := cases[0].get_closest_marker("sample")) is not None:
            for case in left_out(cases, *mark.args):
                case.add_marker(pytest.mark.slow)


def left_out(cases: list[pytest.Function], stride: int) -> list[pytest.Function]:
    """All cases but every `stride`-th, and one more for each parameter value these lack."""
    values = [{(name, id(x)) for name, x in case.callspec.params.items()} for case in cases]
    seen = set().union(*values[::stride])
    rest = []
    for position, case in enumerate(cases):
        if position % stride and values[position] <= seen:
            rest.append(case)
        seen |= values[position]
    return rest


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
