"""Draws programs statement by statement; the reference says which are valid.

Values are small integers and their halves, so that every order of operations gives the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from test.devices import DEVICE
from test.fuzz_state import reference
from test.fuzz_state.program import SEED, Program, Statement, execute, plain
from test.fuzz_state.reference import Tensor
from test.fuzzing.layouts import Layout, random_devices, random_layout

MAX_ELEMENTS = 48
SIZES = [1, 2, 2, 3, 3, 4, 5]
DTYPES = ["double", "float", "float", "float", "int"]
MAX_LAYOUTS = 3

Shape = tuple[int, ...]
Draw = Callable[["Generator"], Any]


class Unsuitable(Exception):
    """The statement does not apply to what was drawn for it."""


# statements by group, each with its share
GROUPS: dict[str, dict[str, tuple[Draw, float]]] = {}


# the first statements of programs about a group, without which the others do not apply
OPENINGS = {
    "gradients": ("leaf", "leaf", "of_leaves", "of_leaves"),
    "jit": ("define", "define"),
    "threads": ("define_a_counter",),
}
# groups that are searched only if they are named
UNUSUAL = {"nodes"}


def statement(group: str, share: float = 1) -> Callable[[Draw], Draw]:
    """Declares a function that adds statements of `group`, or raises Unsuitable."""

    def declare(draw: Draw) -> Draw:
        GROUPS.setdefault(group, {})[draw.__name__] = (draw, share)
        return draw

    return declare


class Generator:
    """Grows a program; `names` are its names as the reference has them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.devices = random_devices(rng, rng.choice([2, 2, 3, 4]))
        self.layouts: dict[str, Layout | None] = {}
        self.statements: list[Statement] = []
        self.group = self.drawn = ""
        self.count = 0
        # names that functions read as globals
        self.pinned: set[str] = set()
        self.arrays: list[str] = []
        # arrays that share memory with tensors, and nodes
        self.shared: list[str] = []
        self.nodes: list[str] = []
        self.functions: list[Any] = []
        self._start()

    def _start(self) -> None:
        reference.LEAVES.clear()
        reference.Tensor.manual_seed(SEED)
        self.names = Program((), dict.fromkeys(self.layouts)).namespace(True)
        self.names["see"] = plain

    # ---- operands ----

    def tensors(self, *conditions: Callable[[Tensor], bool]) -> list[str]:
        """The names of all tensors that satisfy the conditions, the oldest first."""
        return [
            name
            for name, x in self.names.items()
            if isinstance(x, Tensor)
            and not x.memory.overwritten
            and all(condition(x) for condition in conditions)
        ]

    def any(self, *conditions: Callable[[Tensor], bool]) -> str:
        """The name of a tensor."""
        return self.choose(self.tensors(*conditions))

    def value_of(self, text: str) -> Tensor:
        """The reference's value of an expression without effects."""
        value = eval(text, self.names)
        assert isinstance(value, Tensor)
        return value

    def choose(self, options: Sequence[Any]) -> Any:
        if not options:
            raise Unsuitable
        return self.rng.choice(options)

    def maybe(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def scalar(self, x: Tensor) -> str:
        """A number that keeps the dtype of `x`."""
        return str(self.number(-3, 5))

    def shape(self) -> Shape:
        while True:
            shape = tuple(self.choose(SIZES) for _ in range(self.choose([1, 1, 2, 2, 2, 3])))
            if prod(shape) <= MAX_ELEMENTS:
                return shape

    def dtype(self) -> str:
        return self.choose(DTYPES)

    def dtype_name(self, x: Tensor) -> str:
        return {"f8": "double", "f4": "float", "i4": "int"}[np.dtype(x.dtype).str[1:]]

    def literal(self, shape: Shape) -> str:
        """Nested lists of small integers."""
        count = prod(shape)
        return str(np.array([self.number(-4, 9) for _ in range(count)]).reshape(shape).tolist())

    def layout(self, shape: Shape) -> str:
        """The name of a layout that fits `shape`."""
        drawn = random_layout(self.rng, shape, self.devices)
        for name, known in self.layouts.items():
            is_enough = len(self.layouts) >= MAX_LAYOUTS and _fits(known, shape)
            if known == drawn or is_enough:
                return name
        name = f"L{len(self.layouts)}"
        self.layouts[name] = drawn
        self.names[name] = DEVICE
        return name

    def tensor(self, shape: Shape, dtype: str, layout: str | None = None) -> str:
        """An expression for a new tensor from a list, in a layout."""
        layout = layout or self.layout(shape)
        return f"Tensor({self.literal(shape)}, dtype=dtypes.{dtype}, device={layout})"

    def position(self, size: int) -> str:
        """The text of a bound Variable in the range of an axis."""
        name = f"p{size}"
        if name not in self.names:
            self.add(f'{name} = Variable("{name}", 0, {size - 1})')
        return f"{name}.bind({self.number(0, size - 1)})"

    def new_name(self, letter: str = "t") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    # ---- statements ----

    def add(self, text: str, is_call: bool = False) -> None:
        """Adds a statement.

        Raises:
            Unsuitable: the reference does not run it.
        """
        try:
            execute(text, self.names)
        except Exception as error:
            # the statement may have run in part
            self._start()
            for known in self.statements:
                execute(known.text, self.names)
            raise Unsuitable(str(error)) from error
        self.statements.append(Statement(text, self.group, self.drawn, is_call))

    def add_new(self, expression: str) -> str:
        """Adds an assignment of a new name; returns the name."""
        name = self.new_name()
        self.add(f"{name} = {expression}")
        if prod(self.names[name].shape) > MAX_ELEMENTS or self.names[name].ndim > 4:
            self.add(f"del {name}")
        return name

    def draw(self, group: str, name: str | None = None) -> None:
        """Adds drawn statements of `group`, if what was drawn fits."""
        self.group = group
        known = GROUPS[group]
        if name is None:
            name = self.rng.choices(list(known), [share for _, share in known.values()])[0]
        self.drawn = name
        with suppress(Unsuitable):
            known[name][0](self)

    def program(self, groups: Sequence[str], length: int, theme: str | None = None) -> Program:
        """A program about one of the groups (default: any), in which the others may occur.

        It has what `length` draws add after the first ones, and reads all its tensors at the end.
        """
        theme = theme or self.choose(groups)
        while not self.tensors():
            self.draw("creation")
        for name in OPENINGS.get(theme, ()):
            self.draw(theme, name)
        others = [x for x in groups if x == theme or x not in OPENINGS]
        added = 0
        for _ in range(8 * length):
            if added == length:
                break
            start = len(self.statements)
            self.draw(self.choose([*[theme] * 5, *others, "creation", "values"]))
            added += len(self.statements) > start
        self.group, self.drawn = "reads", ""
        names = self.tensors()
        self.rng.shuffle(names)
        places = [x.outside for f in self.functions for x in f.tensor_places()]
        for text in (*names, *dict.fromkeys(places)):
            # a place of a gradient may hold none
            with suppress(Unsuitable):
                self.add(f"see({text}.numpy())")
        # a verified replay runs the function beside it, which other threads must not see
        is_verifiable = self.functions and theme != "threads"
        settings = (("JIT_VERIFY", 1),) if is_verifiable and self.maybe(0.2) else ()
        return Program(tuple(self.statements), self.layouts, settings)


def _fits(layout: Layout | None, shape: Shape) -> bool:
    """Whether a value of `shape` may have the layout."""
    return layout is not None and all(axis is None or axis < len(shape) for axis in layout.axes)


def random_program(rng: random.Random, groups: Sequence[str], theme: str | None = None) -> Program:
    """A program of a few statements, about `theme` or any of the groups."""
    return Generator(rng).program(groups, rng.choice([3, 4, 6, 8, 10, 14]), theme)
