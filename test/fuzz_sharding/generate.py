"""Draws programs step by step; shapes and dtypes are those of the lazy program on one device.

Values are integers of known bounds where possible, so that sums are exact in any order and
comparisons have one outcome. Rounding ops compute in float64, and only continuous ops use their
results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from test.fuzz_sharding.program import (
    Input,
    Program,
    Step,
    evaluate,
    execute,
    random_contexts,
    surroundings,
)
from test.fuzzing.layouts import ONE_DEVICE, Layout, Shape, random_devices, random_layout
from tinygrad import Tensor, dtypes

MAX_ELEMENTS = 1024
MAX_ELEMENTS_OF_LARGE = 8192
MAX_AXES = 5
# share of steps that change the layout, besides those drawn like any other op
LAYOUT_CHANGES = 0.08
DTYPES = ["double"] * 12 + ["float"] * 9 + ["int"] * 4 + ["half", "half", "bfloat16", "bfloat16"]
DTYPES += ["long", "short", "char", "uchar", "ushort", "uint", "ulong", "bool"]
SIZES = [1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 12]
LARGE_SIZES = [1, 2, 3, 8, 16, 17, 24, 30, 33]
# integers up to this are exact, and products of two of them if the dtype allows it
LARGEST = {dtypes.half: 2**10, dtypes.bfloat16: 2**7, dtypes.float: 2**20}
LARGEST_OF_OTHERS = 2**30
SMALL = 9


class Unsuitable(Exception):
    """The op does not apply to the operands drawn for it."""


@dataclass(frozen=True)
class Value:
    """The known properties of a result, which decide whether an op applies."""

    name: str
    tensor: Tensor = field(repr=False)
    bound: float
    is_exact: bool

    def __str__(self) -> str:
        return self.name

    @property
    def shape(self) -> Shape:
        return tuple(int(size) for size in self.tensor.shape)

    @property
    def ndim(self) -> int:
        return self.tensor.ndim

    @property
    def is_float(self) -> bool:
        return self.tensor.is_floating_point()

    @property
    def is_bool(self) -> bool:
        return self.tensor.dtype == dtypes.bool

    @property
    def largest(self) -> float:
        dtype = self.tensor.dtype
        if dtypes.is_unsigned(dtype):
            return dtypes.max(dtype)
        return LARGEST.get(dtype, LARGEST_OF_OTHERS)


Op = Callable[["Generator"], Any]
OPS: dict[str, Op] = {}


def op(function: Op) -> Op:
    """Declares a function that draws operands and adds a step, or raises Unsuitable."""
    OPS[function.__name__] = function
    return function


class Generator:
    """Grows a program; `values` are available as operands of the next steps."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        count = rng.choice([1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 6, 7, 8, 8])
        self.devices = random_devices(rng, count)
        self.layouts: dict[str, Layout] = {}
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.values: list[Value] = []
        self.names = surroundings()
        is_large = rng.random() < 0.07
        self.sizes = LARGE_SIZES if is_large else SIZES
        self.max_elements = MAX_ELEMENTS_OF_LARGE if is_large else MAX_ELEMENTS
        self._current = ""

    # ---- operands ----

    def any(
        self,
        *conditions: Callable[[Value], bool],
        rank: int | None = None,
        min_axes: int = 1,
    ) -> Value:
        """A value that satisfies all conditions, of `rank` or of at least `min_axes` axes."""
        found = [
            x
            for x in self.values
            if (x.ndim == rank if rank is not None else x.ndim >= min_axes)
            and all(condition(x) for condition in conditions)
        ]
        if not found:
            raise Unsuitable
        # newer values are used more, so that programs are deep
        return self.rng.choice(found[-4:] if self.rng.random() < 0.7 else found)

    def input(self, shape: Shape, dtype: str | None = None, low: int = -4, high: int = 4) -> Value:
        """A new tensor of integers in a random layout."""
        dtype = dtype or self.rng.choice(DTYPES)
        if dtype == "bool" or dtype[0] == "u":
            low, high = 0, 1 if dtype == "bool" else high
        name = f"v{len(self.inputs) + len(self.steps)}"
        layout = self.layout(shape)
        drawn = Input(name, shape, dtype, low, high, layout, is_lazy=self.maybe(0.2))
        tensor = evaluate(drawn.text(), self.names)
        if not tensor.is_floating_point():
            drawn = replace(drawn, has_gradient=False)
        self.inputs.append(drawn)
        self.names[name] = tensor
        return self._keep(Value(name, tensor, max(abs(low), abs(high)), True))

    def like(self, shape: Shape, *conditions: Callable[[Value], bool]) -> Value:
        """A value of this shape: an existing one, or a new input."""
        found = [x for x in self.values if x.shape == shape and all(c(x) for c in conditions)]
        if found and self.rng.random() < 0.6:
            return self.rng.choice(found)
        made = self.input(shape)
        if not all(condition(made) for condition in conditions):
            made = self.input(shape, "double")
        return made

    def layout(self, shape: Shape, devices: tuple[int, ...] | None = None) -> str:
        """The name of a layout that fits `shape`."""
        drawn = random_layout(self.rng, shape, devices or self.devices)
        for name, known in self.layouts.items():
            if known == drawn:
                return name
        name = f"L{len(self.layouts)}"
        self.layouts[name] = drawn
        self.names[name] = ONE_DEVICE
        return name

    def axis(self, x: Value) -> int:
        return self.rng.randrange(x.ndim)

    def axes(self, x: Value) -> tuple[int, ...]:
        """Some axes, at least one."""
        count = self.rng.choice([1, 1, 2, x.ndim])
        return tuple(sorted(self.rng.sample(range(x.ndim), min(count, x.ndim))))

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def maybe(self, chance: float = 0.5) -> bool:
        return self.rng.random() < chance

    def choose(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    # ---- results ----

    def step(
        self,
        text: str,
        *uses: Value,
        along: Iterable[int] | None = None,
        bound: float | None = None,
        exact: bool | None = None,
    ) -> Value:
        """Adds `name = text`, or statements in which `OUT` is the name.

        Bounds and exactness default to those of the operands.

        Raises:
            Unsuitable: the result is too large, or one device raises.
        """
        bound = max([x.bound for x in uses], default=SMALL) if bound is None else bound
        exact = all(x.is_exact for x in uses) if exact is None else exact
        name = f"v{len(self.inputs) + len(self.steps)}"
        statements = text.replace("OUT", name) if "OUT" in text else f"{name} = {text}"
        known = None if along is None else frozenset(along)
        drawn = Step(name, statements, tuple(x.name for x in uses), self._current, known)
        try:
            tensor = execute(drawn, self.names)
        except (ValueError, TypeError, RuntimeError, IndexError) as error:
            raise Unsuitable from error
        value = Value(name, tensor, bound, exact)
        if prod(value.shape) > self.max_elements or 0 in value.shape or value.ndim > MAX_AXES:
            raise Unsuitable
        if bound > value.largest:
            raise Unsuitable
        self.steps.append(drawn)
        return self._keep(value)

    def _keep(self, value: Value) -> Value:
        if dtypes.is_unsigned(value.tensor.dtype):
            # negative numbers wrap to large ones
            value = replace(value, bound=value.largest)
        self.values.append(value)
        return value

    def bounded(self, x: Value, limit: float = SMALL) -> Value:
        """`x`, clipped to integers whose products are exact."""
        if x.bound <= limit:
            return x
        cut = int(min(limit, 3))
        low = 0 if x.tensor.dtype in dtypes.uints else -cut
        return self.step(f"{x}.clip({low}, {cut})", x, along=(), bound=cut)

    def double(self, x: Value) -> Value:
        """`x` in float64, for ops that round."""
        if x.tensor.dtype == dtypes.double:
            return x
        return self.step(f"{x}.double()", x, along=())

    # ---- programs ----

    def grow(self, names: Sequence[str], length: int) -> Program:
        """Adds steps of these ops until the program has `length` steps."""
        rank = self.rng.choice([1, 2, 2, 2, 3, 3, 4])
        shape = tuple(self.rng.choice(self.sizes) for _ in range(rank))
        while prod(shape) > self.max_elements // 2:
            shape = shape[:-1]
        self.input(shape)
        for _ in range(8 * length):
            if len(self.steps) >= length:
                break
            self._current = self.rng.choice(names)
            if "to_layout" in names and self.maybe(LAYOUT_CHANGES):
                self._current = "to_layout"
            try:
                OPS[self._current](self)
            except Unsuitable:
                continue
        used = {name for step in self.steps for name in step.uses}
        inputs = tuple(x for x in self.inputs if x.name in used)
        contexts = random_contexts(self.rng, self.devices)
        return Program(self.layouts, inputs, tuple(self.steps), contexts)


def random_program(rng: random.Random, names: Sequence[str] | None = None) -> Program:
    """A program of one to eight steps."""
    return Generator(rng).grow(names or list(OPS), rng.choice([1, 2, 3, 3, 4, 5, 6, 8]))
