"""A program as text: what it starts from, its statements, and the layouts that it names.

The same text runs on one device, where every layout is its name, and on several. So it is what a
person runs to see a finding again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np

from tinygrad import Sharding, Tensor, dtypes

Shape: TypeAlias = tuple[int, ...]
Array: TypeAlias = np.ndarray[Any, Any]

ONE_DEVICE = "CPU"
NAMES = (
    *("bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"),
    *("half", "bfloat16", "float", "double"),
)
DTYPE_NAMES = {getattr(dtypes, name): name for name in NAMES}
MESHES: dict[int, list[tuple[int, ...]]] = {
    1: [(1,)],
    2: [(2,)],
    3: [(3,)],
    4: [(4,), (2, 2)],
    5: [(5,)],
    6: [(6,), (2, 3), (3, 2)],
    7: [(7,)],
    8: [(8,), (2, 4), (4, 2), (2, 2, 2)],
}


@dataclass(frozen=True)
class Layout:
    """A `Sharding` over the first devices, as the text that makes it."""

    mesh: tuple[int, ...]
    axes: tuple[int | None, ...]

    @property
    def count(self) -> int:
        return prod(self.mesh)

    def build(self) -> Sharding:
        devices = [f"CPU:{i}" if i else "CPU" for i in range(self.count)]
        return Sharding(devices, self.axes, self.mesh)

    def __str__(self) -> str:
        devices = f"[f'CPU:{{i}}' if i else 'CPU' for i in range({self.count})]"
        return f"Sharding({devices}, {self.axes}, {self.mesh})"


def random_layout(rng: random.Random, shape: Shape, count: int) -> Layout:
    """Some layout over `count` devices that fits an array of `shape`."""
    mesh = rng.choice(MESHES[count])
    long = [axis for axis, size in enumerate(shape) if size > 1]
    options = [*long, *long, None]
    return Layout(mesh, tuple(rng.choice(options) for _ in mesh))


@dataclass(frozen=True)
class Input:
    """A tensor that the program starts from: whole numbers of `low` to `high`."""

    name: str
    shape: Shape
    dtype: str
    low: int
    high: int
    layout: str
    has_gradient: bool = True

    def array(self) -> str:
        """The text of its numbers, which depend on its name alone."""
        draw = f"np.random.default_rng({int(self.name[1:])})"
        return f"{draw}.integers({self.low}, {self.high + 1}, {self.shape})"

    def __str__(self) -> str:
        return f"Tensor({self.array()}, dtype=dtypes.{self.dtype}).to({self.layout}).realize()"


@dataclass(frozen=True)
class Step:
    """Statements that make `name` of the values in `uses`.

    `along` are the axes of the first of these that the statements work along; over others they
    need nothing from another device. None: this is not known.
    """

    name: str
    text: str
    uses: tuple[str, ...]
    op: str
    along: frozenset[int] | None = None
    is_exact: bool = True


@dataclass(frozen=True)
class Program:
    """Every value is the result of an input or a step before it."""

    layouts: Mapping[str, Layout]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]

    def results(self) -> list[str]:
        """The values that nothing uses."""
        used = {name for step in self.steps for name in step.uses}
        return [step.name for step in self.steps if step.name not in used]

    def namespace(self, sharded: bool) -> dict[str, Any]:
        """What the text sees: the inputs are there and realized."""
        names: dict[str, Any] = {"np": np, "Tensor": Tensor, "dtypes": dtypes}
        for name, layout in self.layouts.items():
            names[name] = layout.build() if sharded else ONE_DEVICE
        for x in self.inputs:
            names[x.name] = evaluate(str(x), names)
        return names

    def __str__(self) -> str:
        """A program that shows whether the results agree."""
        layouts = [f"    {name}={layout}," for name, layout in self.layouts.items()]
        inputs = [f"    {x.name} = {x}" for x in self.inputs]
        lines = [f"    {line}" for step in self.steps for line in step.text.splitlines()]
        names = ", ".join(self.layouts)
        targets = ", ".join(x.name for x in self.inputs if x.has_gradient)
        outputs = ", ".join(self.results())
        return "\n".join(
            [
                "import numpy as np",
                "from tinygrad import Sharding, Tensor, dtypes",
                "",
                f"def run({names}):",
                *inputs,
                *lines,
                f"    results = [{outputs}]",
                f"    targets = [{targets}]",
                "    floats = [x for x in results if x.is_floating_point()]",
                "    if floats and targets:",
                "        ramps = [Tensor.arange(x.numel()).reshape(x.shape) * 0.25 + 1 "
                "for x in floats]",
                "        loss = sum((x * ramp).sum() for x, ramp in zip(floats, ramps))",
                "        results += loss.gradient(*targets, materialize_grads=True)",
                "    Tensor.realize(*results)",
                "    return [x.numpy() for x in results]",
                "",
                f"one = run({', '.join(repr(ONE_DEVICE) for _ in self.layouts)})",
                "many = run(",
                *layouts,
                ")",
                "for x, y in zip(many, one):",
                "    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)",
                "",
            ]
        )


def evaluate(text: str, names: dict[str, Any]) -> Any:
    """The value of an expression of this package's own making."""
    return eval(text, names)


def execute(step: Step, names: dict[str, Any]) -> Tensor:
    """Runs the statements of a step, and returns what they make."""
    exec(step.text, names)
    result = names[step.name]
    assert isinstance(result, Tensor)
    return result
