"""Dataclasses of modules that every program imports: as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from tinygrad.fast_dataclass import dataclass, field, replace


@dataclass(frozen=True)
class Frozen:
    a: int
    b: str = "b"
    c: list[int] = field(default_factory=list, hash=False, repr=False)
    shared: ClassVar[int] = 3

    def __post_init__(self) -> None:
        self.c.append(self.a)


@dataclass(frozen=True)
class Child(Frozen):
    d: int = 4


@dataclass
class Changing:
    x: int
    y: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return "its own"


@dataclass(frozen=True, eq=False)
class Distinct:
    x: int


def test_frozen_instances_are_values() -> None:
    x, y = Frozen(1), Frozen(1, "b")
    assert x == y and hash(x) == hash(y) and x is not y and {x: 1}[y] == 1
    assert x != Frozen(2) and x != Child(1) and x != 1
    assert repr(x) == "Frozen(a=1, b='b')" and x.c == [1] and Frozen.shared == 3
    assert copy.deepcopy(x) == x == pickle.loads(pickle.dumps(x))
    for change in (lambda: setattr(x, "a", 2), lambda: setattr(x, "z", 2), lambda: delattr(x, "a")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert x.a == 1 and [*vars(x)] == ["a", "b", "c"]


def test_fields_are_inherited_and_have_defaults() -> None:
    x = Child(1, d=5)
    assert (x.a, x.b, x.c, x.d) == (1, "b", [1], 5) and repr(x) == "Child(a=1, b='b', d=5)"
    assert Child(1).c is not Child(1).c
    missing: Any = Frozen
    for make in (missing, lambda: missing(1, nothing=2)):
        with pytest.raises(TypeError, match="argument"):
            make()
    match x:
        case Child(a, "b", _, d):
            assert (a, d) == (1, 5)


def test_options_change_what_is_made() -> None:
    x = Changing(1)
    x.x = 2
    assert x == Changing(2) and repr(x) == "its own"
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    assert Distinct(1) != Distinct(1) and len({Distinct(1), Distinct(1)}) == 2


def test_functions_of_the_standard_library_take_them() -> None:
    x = Frozen(1, c=[0])
    for changed in (replace(x, b="new"), dataclasses.replace(x, b="new")):
        assert (changed.a, changed.b) == (1, "new")
    assert dataclasses.is_dataclass(x) and [f.name for f in dataclasses.fields(x)] == [
        "a",
        "b",
        "c",
    ]
    assert dataclasses.asdict(Child(1)) == {"a": 1, "b": "b", "c": [1], "d": 4}


def test_no_other_dataclass_is_made_at_import() -> None:
    program = (
        "import dataclasses\n"
        "made = []\n"
        "standard = dataclasses._process_class\n"
        "dataclasses._process_class = lambda cls, *args: made.append(cls) or standard(cls, *args)\n"
        "import tinygrad\n"
        "print([cls for cls in made if cls.__module__.startswith('tinygrad')])"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert output.stdout.decode().strip() == "[]"
