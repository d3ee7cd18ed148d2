"""Shared by all tests: parallel runs, sampled cases, hypothesis profiles, and common fixtures."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.settings import Context, ContextVar

# the first run of a graph compiles it, so no example can have a deadline
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=20
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# each worker imports all test files and takes up to 2 GB
MAX_WORKERS = 8
ALL = frozenset(dtypes.all)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run folders of tests: one per core. Single files run in this process.

    Starting workers would take longer than the tests of most files.
    """
    if config.option.collectonly or not any(Path(argument).is_dir() for argument in config.args):
        return 0
    return min(core_count(), MAX_WORKERS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--emulated-cuda",
        choices=("forwards", "backwards", "checked"),
        help="run the tests on 8 emulated CUDA devices, whose threads run in this order; `checked` "
        "also checks each access to memory (see test/emulator)",
    )
    parser.addoption(
        "--emulated-target",
        metavar="ARCHITECTURE",
        help="with --emulated-cuda: run the kernels of gfx942, gfx1100 or apple7 instead",
    )
    parser.addoption(
        "--guarded-memory",
        action="store_true",
        help="end the process if a kernel on a CPU device goes past the end of a buffer",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Emulates CUDA, or guards memory, before the tests ask for the default device."""
    if config.getoption("--guarded-memory"):
        from test.guarded_memory import guard_buffers

        guard_buffers()
    if mode := config.getoption("--emulated-cuda"):
        from test.emulator import emulated_cuda

        emulated_cuda.make_default(mode, config.getoption("--emulated-target"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skips a test of a dtype that the default device lacks."""
    try:
        return (yield)
    except NotImplementedError as error:
        if (
            re.search(r" has no dtypes\.", str(error)) is None
            or Device[Device.DEFAULT].target.dtypes >= ALL
        ):
            raise
        pytest.skip(str(error))


def core_count() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the cases that `@pytest.mark.sample(n)` leaves out of the quick suite as slow."""
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        cases = [item for item in group if isinstance(item, pytest.Function)]
        if cases and (mark := cases[0].get_closest_marker("sample")) is not None:
            for case in left_out(cases, *mark.args, **mark.kwargs):
                case.add_marker(pytest.mark.slow)


def left_out(
    cases: list[pytest.Function], stride: int, values: bool = True
) -> list[pytest.Function]:
    """The cases outside the sample.

    The sample is every `stride`-th case and, of tests with several parameters, the first case of
    each value that these miss, unless `values` is false.
    """
    if len(cases[0].callspec.params) == 1 or not values:
        return [case for position, case in enumerate(cases) if position % stride]
    values = [{(name, id(x)) for name, x in case.callspec.params.items()} for case in cases]
    seen = set().union(*values[::stride])
    rest = []
    for position, case in enumerate(cases):
        if position % stride and values[position] <= seen:
            rest.append(case)
        seen |= values[position]
    return rest


@pytest.fixture(autouse=True)
def restore_settings() -> Iterator[None]:
    """Restores the settings that a test changes."""
    with Context(**{name: setting.value for name, setting in ContextVar.declared.items()}):
        yield


@pytest.fixture
def verified_replays() -> Iterator[None]:
    """Compares every replay of a captured function with the function."""
    with Context(JIT_VERIFY=1):
        yield


@pytest.fixture(scope="module", autouse=True)
def freeze_survivors() -> Iterator[None]:
    """Excludes objects that outlive a file, such as compiled kernels, from garbage collection."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def empty_cache(tmp_path: os.PathLike[str]) -> Iterator[os.PathLike[str]]:
    """An empty cache folder for one test."""
    with Context(CACHEDIR=str(tmp_path)):
        yield tmp_path
