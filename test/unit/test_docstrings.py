"""The examples in the documentation of every module give what they show.

They see the public names of the library, `Ops` and numpy. That every method of `Tensor` has an
example is tested in `test/backend/test_docstrings.py`.
"""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest

import tinygrad
from tinygrad.uop import Ops

ROOT = Path(__file__).parents[2]
NAMES: dict[str, Any] = {
    **{name: getattr(tinygrad, name) for name in tinygrad.__all__},
    "Ops": Ops,
    "numpy": numpy,
}


def modules_with_examples() -> list[str]:
    files = sorted((ROOT / "tinygrad").rglob("*.py"))
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in files
        if ">>> " in path.read_text()
    ]


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder().find(module, globs=dict(NAMES))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_are_right(name: str) -> None:
    output: list[str] = []
    found = examples_of(importlib.import_module(name))
    assert found, f"{name} has examples that are in no docstring"
    for test in found:
        doctest.DocTestRunner().run(test, out=output.append)
    assert not output, "".join(output)
