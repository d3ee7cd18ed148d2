"""A program as text: inputs, statements, and named layouts.

The same text runs on several devices, and on one device, where the name of every layout is that
device. So the printed program reproduces a finding.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from test.devices import nth
from test.fuzz_sharding import kernels, reference
from test.fuzzing.layouts import ONE_DEVICE, Layout, Shape
from tinygrad import Context, Tensor, Variable, dtypes, nn
from tinygrad.helpers import temp
from tinygrad.sharding import Link, Topology

Array: TypeAlias = np.ndarray[Any, Any]

# methods that make a statement compute at once
COMPUTING = (".realize()", "] =", "] +=", ".assign(", ".masked_select(")
# maximum of the Variable `turn`
LAST_TURN = 3
NAMES = (
    *("bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"),
    *("half", "bfloat16", "float", "double"),
)
DTYPE_NAMES = {getattr(dtypes, name): name for name in NAMES}
CONTEXTS: dict[str, Any] = {"Context": Context, "Link": Link, "Topology": Topology}


def random_contexts(rng: random.Random, numbers: tuple[int, ...]) -> tuple[str, ...]:
    """Random topologies and all-reduce algorithms, as texts of contexts."""
    contexts = []
    if rng.random() < 0.3:
        contexts.append(rng.choice(["Context(RING=1)", "Context(ALL2ALL=0)", "Context(ALL2ALL=2)"]))
    if rng.random() < 0.4:
        # without latency, small messages are scheduled as in large programs
        half = len(numbers) // 2
        names = [tuple(nth(i) for i in part) for part in (numbers[:half], numbers[half:])]
        nodes = tuple(names) if half and rng.random() < 0.5 else ()
        contexts.append(f"Topology({nodes}, same_memory=Link('free', 0.0, 1e9))")
    return tuple(contexts)


@dataclass(frozen=True)
class Input:
    """An input of the program: integers from `low` to `high`, or extreme values of the dtype."""

    name: str
    shape: Shape
    dtype: str
    low: int
    high: int
    layout: str
    has_gradient: bool = True
    is_lazy: bool = False
    is_extreme: bool = False

    def text(self, turn: int = 0) -> str:
        """The expression for it; its numbers depend only on its name and the turn."""
        seed = int(self.name[1:]) + 1000 * turn
        array = f"np.random.default_rng({seed}).integers({self.low}, {self.high + 1}, {self.shape})"
        if self.is_extreme:
            array = f"reference.extremes({seed}, {self.shape}, {self.dtype!r})"
        placed = f"Tensor({array}, dtype=dtypes.{self.dtype}).to({self.layout})"
        return placed if self.is_lazy else f"{placed}.realize()"


@dataclass(frozen=True)
class Step:
    """Statements that compute `name` from the values in `uses`.

    `along` are the axes of the first operand along which elements are combined; along other axes
    the statements need no communication. None: unknown.
    """

    name: str
    text: str
    uses: tuple[str, ...]
    op: str
    along: frozenset[int] | None = None

    @property
    def is_lazy(self) -> bool:
        """Whether nothing is computed yet: gradients do not flow through realized values."""
        return not any(mark in self.text for mark in COMPUTING)


TEMPLATE = """\
import numpy as np
from test.fuzz_sharding import kernels, reference
from tinygrad import Context, Sharding, Tensor, Variable, dtypes, nn
from tinygrad.helpers import temp
from tinygrad.sharding import Link, Topology

turn = Variable("turn", 0, 3).bind(2)

def run({layouts}):
{lines}
    results = [{results}]
    targets = [{targets}]
    floats = [x for x in results if x.is_floating_point()]
    if floats and targets:
        ramps = [Tensor.arange(x.numel()).reshape(x.shape) * 0.25 + 1 for x in floats]
        loss = sum((x * ramp).sum() for x, ramp in zip(floats, ramps))
        results += loss.gradient(*targets, materialize_grads=True)
    Tensor.realize(*results)
    return [x.numpy() for x in results]

one = run({one})
with {contexts}:
    many = run(
{many}
    )
for x, y in zip(many, one):
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)
"""


@dataclass(frozen=True)
class Program:
    """Inputs and steps; each step uses inputs and earlier steps."""

    layouts: Mapping[str, Layout]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    contexts: tuple[str, ...] = ()

    def results(self) -> list[str]:
        """The values without users."""
        used = {name for step in self.steps for name in step.uses}
        return [step.name for step in self.steps if step.name not in used]

    def targets(self) -> list[str]:
        """The inputs to differentiate by."""
        if not all(step.is_lazy for step in self.steps):
            return []
        return [x.name for x in self.inputs if x.has_gradient]

    def namespace(self, sharded: bool, turn: int = 0) -> dict[str, Any]:
        """The names that the text may use, inputs included."""
        names = surroundings(turn)
        for name, layout in self.layouts.items():
            names[name] = layout.build() if sharded else ONE_DEVICE
        for x in self.inputs:
            names[x.name] = evaluate(x.text(turn), names)
        return names

    @contextmanager
    def context(self) -> Iterator[None]:
        """The contexts of a run on several devices."""
        with ExitStack() as stack:
            for text in self.contexts:
                stack.enter_context(evaluate(text, CONTEXTS))
            yield

    def __str__(self) -> str:
        """A script that shows whether the results agree."""
        lines = [f"{x.name} = {x.text()}" for x in self.inputs]
        lines += [line for step in self.steps for line in step.text.splitlines()]
        return TEMPLATE.format(
            layouts=", ".join(self.layouts),
            lines="\n".join(f"    {line}" for line in lines),
            results=", ".join(self.results()),
            targets=", ".join(self.targets()),
            one=", ".join(repr(ONE_DEVICE) for _ in self.layouts),
            contexts=", ".join(self.contexts or ("Context()",)),
            many="\n".join(f"        {name}={x}," for name, x in self.layouts.items()),
        )


def surroundings(turn: int = 0) -> dict[str, Any]:
    """The names that every program may use."""
    position = Variable("turn", 0, LAST_TURN).bind((turn + 2) % (LAST_TURN + 1))
    modules = {"np": np, "nn": nn, "kernels": kernels, "reference": reference}
    return {**modules, "Tensor": Tensor, "dtypes": dtypes, "temp": temp, "turn": position}


def evaluate(text: str, names: dict[str, Any]) -> Any:
    """Evaluates an expression that this package built."""
    return eval(text, names)


def execute(step: Step, names: dict[str, Any]) -> Tensor:
    """Runs the statements of a step; returns its value."""
    exec(step.text, names)
    result = names[step.name]
    assert isinstance(result, Tensor)
    return result
