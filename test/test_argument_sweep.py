"""Public methods refuse arguments of a wrong kind with errors of their own."""

from __future__ import annotations

import inspect
import linecache
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Sharding, Tensor, Variable, dtypes

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "fraction": lambda: 1.5,
    "nan": lambda: float("nan"),
    "negative": lambda: -5,
    "large": lambda: 2**70,
    "text": lambda: "abc",
    "bytes": lambda: b"ab",
    "complex": lambda: 1j,
    "nothing": lambda: (),
    "pair": lambda: (1, 2),
    "fractions": lambda: (1.5, 2),
    "texts": lambda: ("a", "b"),
    "pairs": lambda: ((1, 2), (0, 1)),
    "half None": lambda: (None, 1),
    "dict": dict,
    "set": lambda: {1, 2},
    "function": lambda: len,
    "dtype": lambda: dtypes.int,
    "layout": lambda: Sharding(("CPU", "CPU:1"), 0),
    "unbound": lambda: Variable("n", 1, 3),
    "numpy number": lambda: np.int64(1),
    "text of numpy": lambda: np.array(["a"]),
    "tensor": lambda: Tensor([1.0, 2.0, 3.0]),
    "tensor and number": lambda: [Tensor([1.0]), 1],
}
# these take an address, a URL or functions, or say more themselves
OTHERS = {"from_blob", "from_url", "sequential", "from_dlpack", "custom_kernel", "no_grad", "train"}
METHODS = sorted(
    name
    for name in dir(Tensor)
    if not name.startswith("_") and name not in OTHERS and callable(getattr(Tensor, name))
)


def is_own_error(error: BaseException) -> bool:
    """Whether the library, or Python's check of a signature, raised it on purpose."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    statement = linecache.getline(last.filename, last.lineno or 0).strip()
    is_signature = isinstance(error, TypeError) and "positional argument" in str(error)
    return statement.startswith("raise") or is_signature


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", METHODS)
def test_a_wrong_argument_is_an_error_of_the_library(name: str) -> None:
    found = []
    for what, make in WRONG.items():
        x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        try:
            result = getattr(x, name)(make())
            if isinstance(result, Tensor) and result.numel() < 1000:
                result.realize()
        except Exception as error:
            if not is_own_error(error):
                found.append(f"{what}: {type(error).__name__}: {error}")
    assert not found, "\n".join(found)


def test_the_sweep_calls_most_methods() -> None:
    assert len(METHODS) > 150
    assert all(inspect.isroutine(getattr(Tensor, name)) for name in METHODS)
