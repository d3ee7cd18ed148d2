"""Doctests of every public `Tensor` method."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import numpy
import pytest

from test.devices import only_cpu
from tinygrad import Tensor, Variable, dtypes
from tinygrad.uop import Ops

NAMES: dict[str, Any] = {
    "Ops": Ops,
    "Tensor": Tensor,
    "Variable": Variable,
    "dtypes": dtypes,
    "numpy": numpy,
}
# methods without a result to show: they need a network, or raise
WITHOUT_EXAMPLE = frozenset({"from_url", "size", "uop", "grad", "requires_grad", "device"})
# methods whose kernels take seconds to compile
SLOW = frozenset({"hash"})
# their examples use memory of the host, or name the CPU
ON_CPU = frozenset({"from_blob", "from_shards"})


def documented() -> list[Any]:
    found = []
    for name, member in inspect.getmembers(Tensor):
        if name.startswith("_") and name not in ("__getitem__", "__setitem__"):
            continue
        text = inspect.getdoc(member)
        if text and (callable(member) or isinstance(member, property)):
            marks = [pytest.mark.slow] if name in SLOW else [only_cpu] if name in ON_CPU else []
            found.append(pytest.param(name, text, id=name, marks=marks))
    return found


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "text"), documented())
def test_the_examples_of_a_method_are_correct(name: str, text: str) -> None:
    examples = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)
    if name not in WITHOUT_EXAMPLE:
        assert examples.examples, f"the documentation of {name} has no example"
    output: list[str] = []
    result = doctest.DocTestRunner().run(examples, out=output.append)
    assert not result.failed, "".join(output)
