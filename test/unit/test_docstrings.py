"""Doctests: the examples in the docstrings of every module run and print what they show.

They may use the public names of the library and of their module, `Ops` and numpy. Public functions
and methods must have an example. `test/backend/ops/test_docstrings.py` runs those of `Tensor`.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import pytest

import tinygrad
from tinygrad import helpers
from tinygrad.uop import Ops

ROOT = Path(__file__).parents[2]
NAMES: dict[str, Any] = {
    **{name: getattr(tinygrad, name) for name in tinygrad.__all__},
    "Ops": Ops,
    "numpy": numpy,
}


# the underscored methods of `Tensor` whose examples run with the public ones
INDEXING = ("__getitem__", "__setitem__")


def modules_with_examples() -> list[str]:
    files = sorted((ROOT / "tinygrad").rglob("*.py"))
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in files
        if ">>> " in path.read_text()
    ]


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    own = {name: value for name, value in vars(module).items() if not name.startswith("__")}
    found = doctest.DocTestFinder().find(module, globs=own | NAMES)
    return [test for test in found if test.examples]


def is_method_of_tensor(test: doctest.DocTest) -> bool:
    """Whether the examples belong to a public method of `Tensor`."""
    owner, _, name = test.name.rpartition(".")
    classes = {f"{cls.__module__}.{cls.__qualname__}" for cls in tinygrad.Tensor.__mro__}
    return owner in classes and (not name.startswith("_") or name in INDEXING)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_are_correct(name: str, request: pytest.FixtureRequest) -> None:
    if name == "tinygrad.diskcache":
        # one of its examples clears the disk cache: not the user's, which holds compiled kernels
        request.getfixturevalue("empty_cache")
    output: list[str] = []
    found = examples_of(importlib.import_module(name))
    assert found, f"{name} has examples that are in no docstring"
    for test in itertools.filterfalse(is_method_of_tensor, found):
        doctest.DocTestRunner().run(test, out=output.append)
    assert not output, "".join(output)


PACKAGES = (tinygrad.nn, tinygrad.nn.optim, tinygrad.nn.datasets, helpers)
# these download their results
WITHOUT_EXAMPLE = frozenset({"mnist", "cifar"})


def called_by_programs() -> dict[str, Any]:
    """The functions and classes of `PACKAGES`, and the public methods of these classes."""
    found: dict[str, Any] = {"TinyJit": tinygrad.TinyJit}
    for package in PACKAGES:
        names = getattr(package, "__all__", None) or vars(package)
        for name in names:
            item = getattr(package, name)
            listed = hasattr(package, "__all__")
            home = "tinygrad." if listed else package.__name__
            own = getattr(item, "__module__", "").startswith(home)
            if own and not name.startswith("_") and (inspect.isclass(item) or callable(item)):
                found[f"{package.__name__}.{name}"] = item
    for path, item in list(found.items()):
        for name, method in vars(item).items() if inspect.isclass(item) else ():
            if inspect.isfunction(method) and not name.startswith("_"):
                found[f"{path}.{name}"] = method
    return found


@pytest.mark.parametrize("path", called_by_programs())
def test_every_public_function_has_an_example(path: str) -> None:
    text = inspect.getdoc(called_by_programs()[path])
    assert text, f"{path} has no documentation"
    if path.rpartition(".")[2] not in WITHOUT_EXAMPLE:
        assert ">>> " in text, f"the documentation of {path} has no example"
