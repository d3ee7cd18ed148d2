"""Models are compared with references in float32."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tinygrad import Context


@pytest.fixture(scope="package", autouse=True)
def exact() -> Iterator[None]:
    """Models compute in float32, unless a test says otherwise."""
    with Context(LLM_EXACT=1):
        yield
