"""The tests of code generation with the C renderer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from test.backend.codegen.test_codegen import *  # noqa: F403
from test.devices import only_cpu
from tinygrad.settings import Context

pytestmark = [
    only_cpu,
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(map(shutil.which, ("clang", "gcc", "cc"))), reason="there is no C compiler"
    ),
]


@pytest.fixture(autouse=True)
def kernels_in_c() -> Iterator[None]:
    """Makes runners compile C."""
    with Context(CPU_LLVM=0):
        yield
