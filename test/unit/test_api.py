"""The public API equals its page: every name exists, with the parameters and defaults shown.

Lists below a heading that is a path name members of that module or class; below other headings,
attributes of an object. The page also lists every method of `Tensor`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygrad
from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.device import Device

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
# the parameters behind `**kwargs`
EVERY_CREATION = ("device", "dtype", "requires_grad", "contiguous")


def captured_function() -> Any:
    step = TinyJit(lambda x: (x + 1).realize())
    for i in range(2):
        step(Tensor([i]))
    return step


OBJECTS: dict[str, Callable[[], Any]] = {
    "Device": lambda: Device,
    "A device, Device[name]": lambda: Device["CPU"],
    "Tensor.uop": lambda: Tensor([1.0, 2.0]).realize().uop,
    "An item of Tensor.schedule()": lambda: (Tensor([1.0]) + 1).schedule()[0],
    "TinyJit(function)": captured_function,
    "TinyJit(function).captured, after the second call": lambda: captured_function().captured,
    "GlobalCounters": lambda: tinygrad.GlobalCounters,
    "CommTrace": tinygrad.CommTrace,
}


def entries() -> Iterator[tuple[str, str]]:
    """(the heading, the name with its signature) of each line."""
    place = section = ""
    for line in PAGE.read_text().splitlines():
        heading = re.match(r"(#+) (.*)", line)
        if heading:
            section = heading[2] if len(heading[1]) < 3 else section
            in_class = section == "tinygrad.Tensor"
            place = section if in_class else heading[2]
        elif (entry := re.fullmatch(r"- `([^`]+)`", line)) and place != "Modules":
            yield place, entry[1]


def name_of(entry: str) -> str:
    return entry.partition("(")[0]


def owner(place: str) -> Any:
    """The object whose attributes a heading lists."""
    if place in OBJECTS:
        return OBJECTS[place]()
    package, _, name = place.rpartition(".")
    if place in ("tinygrad.Tensor", "tinygrad.dtypes"):
        return getattr(importlib.import_module(package), name)
    return importlib.import_module(place)


def parameters_on_page(entry: str) -> list[inspect.Parameter]:
    """The parameters that the page shows; `...` is any default."""
    tree = ast.parse(f"def {entry}: pass").body[0]
    assert isinstance(tree, ast.FunctionDef)
    # defaults are numbers, strings and dtypes from our own page
    made: dict[str, Any] = {}
    exec(f"def {entry}: pass", {"dtypes": dtypes}, made)
    return list(inspect.signature(made[tree.name]).parameters.values())


def actual_parameters(item: Any) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(item).parameters.values() if p.name != "self"]


SEQUENCED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def assert_fits(entry: str, found: list[inspect.Parameter]) -> None:
    """Checks that every call that the page allows by `entry` is valid."""
    wanted = parameters_on_page(entry)
    kinds = {p.kind for p in found}
    by_name = {p.name: p for p in found}
    in_order = [p.name for p in found if p.kind in SEQUENCED]
    shown = [p.name for p in wanted if p.kind in SEQUENCED]
    assert in_order[: len(shown)] == shown, entry
    for p in wanted:
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            assert p.kind in kinds, f"{entry} takes no *{p.name}"
        elif p.kind is inspect.Parameter.VAR_KEYWORD:
            missing = [name for name in EVERY_CREATION if name not in by_name]
            assert p.kind in kinds or not missing, f"{entry} takes no {missing}"
        else:
            assert p.name in by_name, f"{entry} takes no {p.name}"
            if p.default is not ...:
                assert by_name[p.name].default == p.default, f"{entry}: default of {p.name}"
    needed = {p.name for p in found if p.default is p.empty and p.kind not in STARRED}
    assert needed <= {p.name for p in wanted}, f"{entry} needs more than the page says"


@pytest.mark.parametrize("place", dict.fromkeys(place for place, _ in entries()))
def test_every_name_exists_with_its_signature(place: str) -> None:
    listed = owner(place)
    for entry in [entry for at, entry in entries() if at == place]:
        # `getattr` instead of `hasattr`, so that the error names what is missing
        item = getattr(listed, name_of(entry))
        if "(" in entry:
            assert_fits(entry, actual_parameters(item))


def test_the_page_has_every_public_name() -> None:
    listed: dict[str, set[str]] = {}
    for place, entry in entries():
        listed.setdefault(place, set()).add(name_of(entry))
    assert {name for name in dir(Tensor) if name[0] != "_"} == listed["tinygrad.Tensor"]
    for place in ("tinygrad", "tinygrad.nn", "tinygrad.nn.optim", "tinygrad.helpers"):
        modules = {"datasets", "optim", "state"} if place == "tinygrad.nn" else set()
        assert set(importlib.import_module(place).__all__) == listed[place] | modules


@pytest.mark.parametrize("module", re.findall(r"^- `(tinygrad\.[\w.]+)`$", PAGE.read_text(), re.M))
def test_every_module_can_be_imported(module: str) -> None:
    assert importlib.import_module(module).__doc__


CREATIONS: dict[str, tuple[Any, ...]] = {
    "arange": (4,),
    "empty": (2, 3),
    "full": ((2, 3), 1),
    "glorot_uniform": (2, 3),
    "kaiming_normal": (2, 3),
    "kaiming_uniform": (2, 3),
    "linspace": (0, 1, 4),
    "normal": (2, 3),
    "ones": (2, 3),
    "rand": (2, 3),
    "randint": (2, 3),
    "randn": (2, 3),
    "randperm": (4,),
    "scaled_uniform": (2, 3),
    "uniform": (2, 3),
    "zeros": (2, 3),
    "empty_like": (),
    "full_like": (2,),
    "ones_like": (),
    "rand_like": (),
    "randn_like": (),
    "zeros_like": (),
}


def test_the_table_of_creation_functions_is_complete() -> None:
    shown = {name_of(e) for place, e in entries() if "Tensor" in place and "**kwargs" in e}
    others = {"contiguous", "from_blob", "from_uop", "from_url"}
    assert shown - others == CREATIONS.keys()


@pytest.mark.parametrize("name", CREATIONS)
def test_creation_takes_device_and_dtype_by_keyword(name: str) -> None:
    source = Tensor([[1.0, 2.0]]) if name.endswith("_like") else Tensor
    dtype = dtypes.int16 if name in ("randint", "randperm") else dtypes.float16
    made = getattr(source, name)(
        *CREATIONS[name], device="CPU:1", dtype=dtype, requires_grad=False, contiguous=True
    )
    assert (made.device, made.dtype, made.requires_grad) == ("CPU:1", dtype, False)
    if dtype is dtypes.float16:
        options = {"contiguous": False, "requires_grad": True}
        assert getattr(source, name)(*CREATIONS[name], dtype=dtype, **options).requires_grad is True


# ---- operators ----

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "%": operator.imod,
    "**": operator.ipow,
    "@": operator.imatmul,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
    "<<": operator.ilshift,
    ">>": operator.irshift,
}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def operands(sign: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    kind = np.float32 if sign in ("/", "@") else np.int32
    return np.array([[5, 2], [7, 3]], kind), np.array([[2, 1], [3, 1]], kind)


def test_the_tables_of_operators_match_the_page() -> None:
    lines = re.findall(r"^- ((?:`[^`\w]+` ?){2,})$", PAGE.read_text(), re.M)
    assert [re.findall(r"`([^`]+)`", line) for line in lines] == [list(BINARY), list(COMPARISONS)]


@pytest.mark.parametrize("sign", BINARY | COMPARISONS)
def test_operators_equal_numpys(sign: str) -> None:
    function = (BINARY | COMPARISONS)[sign]
    a, b = operands(sign)
    np.testing.assert_array_equal(function(Tensor(a), Tensor(b)).numpy(), function(a, b))
    if sign != "@":
        np.testing.assert_array_equal(function(Tensor(a), 2).numpy(), function(a, 2))
        np.testing.assert_array_equal(function(2, Tensor(b)).numpy(), function(2, b))


@pytest.mark.parametrize("sign", IN_PLACE)
def test_operators_in_place_change_the_tensor(sign: str) -> None:
    a, b = operands(sign)
    x = same = Tensor(a)
    x = IN_PLACE[sign](x, Tensor(b))
    assert x is same
    np.testing.assert_array_equal(x.numpy(), BINARY[sign](a, b))


def test_other_operators() -> None:
    x = Tensor([[1, -2], [3, 4]])
    assert (-x).tolist() == [[-1, 2], [-3, -4]]
    assert (~x).tolist() == [[-2, 1], [-4, -5]]
    assert x[1, ::-1].tolist() == [4, 3]
    x[0] = 9
    assert x.tolist() == [[9, 9], [3, 4]]
    assert len(x) == 2
    with pytest.raises(TypeError):
        del x[0]
    with pytest.raises(TypeError):
        bool(x)


def test_names_that_programs_import_from_modules_exist() -> None:
    from tinygrad.helpers import CI, OSX, profile_marker, to_mv
    from tinygrad.nn.onnx import OnnxRunner, OnnxValue
    from tinygrad.tensor import _to_np_dtype, cast

    assert _to_np_dtype(dtypes.half) == np.float16
    assert cast(int, "as it is") == "as it is"  # type: ignore[comparison-overlap]
    assert {type(CI), type(OSX)} == {bool} and callable(profile_marker) and callable(to_mv)
    assert isinstance(OnnxRunner, type) and isinstance(OnnxValue, type)
