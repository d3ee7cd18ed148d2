"""Functions under `TinyJit`: what they reach, what they write, what they keep, and their calls.

A function reaches tensors by arguments, cells, globals, attributes, keys and positions, and between
its calls these are written and exchanged. Its results are read before its next call, which may
overwrite them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from test.fuzz_state.generate import Generator, Shape, Unsuitable, statement

MAX_FUNCTIONS = 4
WIDTH = 4
IDENTIFIER = re.compile(r"\w+")


@dataclass(frozen=True)
class Place:
    """A tensor or a number that a function reaches: its texts inside and outside of the function,
    and a statement that exchanges it.
    """

    inside: str
    outside: str
    exchange: str
    is_number: bool = False
    # an item of a tuple
    is_fixed: bool = False


@dataclass
class Function:
    """A function under `TinyJit`, of tensors of one shape and dtype."""

    name: str
    shape: Shape
    dtype: str
    parameters: list[str]
    places: list[Place] = field(default_factory=list)
    # the text that takes the results from a call, with one RESULT for each tensor
    results: str = ""
    kept: str = ""
    is_symbolic: bool = False
    is_step: bool = False
    # the names of functions under `TinyJit` that this one calls, itself or by another
    inner: tuple[str, ...] = ()
    # a tensor of more rows, and leaves, that are passed as arguments
    table: str = ""
    leaves: list[str] = field(default_factory=list)
    # the layout of its tensors, and their names; others may be in another layout
    layout: str | None = None
    members: set[str] = field(default_factory=set)

    def tensor_places(self) -> list[Place]:
        """The tensors that the function may write or replace."""
        return [x for x in self.places if not (x.is_number or x.is_fixed)]


# ---- definitions ----


def same_kind(g: Generator, function: Function) -> list[str]:
    """The names of tensors that fit as arguments."""
    known = g.tensors(lambda x: x.shape == function.shape and g.dtype_name(x) == function.dtype)
    return known if g.maybe(0.1) else [x for x in known if x in function.members]


def literal(g: Generator, function: Function) -> str:
    """An expression for a new tensor that fits as an argument."""
    return g.tensor(function.shape, function.dtype, function.layout) + g.choose(["", ".realize()"])


def tensor_name(g: Generator, function: Function) -> str:
    """The name of a tensor for a place: a new one, or one that other statements use."""
    known = [x for x in same_kind(g, function) if x not in g.borrowed]
    if known and g.maybe(0.4):
        return str(g.choose(known))
    name = g.add_new(literal(g, function))
    function.members.add(name)
    return name


def new_place(g: Generator, function: Function) -> Place:
    """A key, an attribute, a position, an item of a tuple, or a global."""
    kind = g.number(0, 5)
    if kind == 4:
        name = g.new_name("P")
        g.add(f'{name} = {{"k": {g.number(1, 3)}}}')
        key = f'{name}["k"]'
        return Place(key, key, f"{key} = {g.number(-1, 3)}", is_number=True)
    tensor, name = tensor_name(g, function), g.new_name("P")
    if kind == 0:
        g.pinned.add(tensor)
        return Place(tensor, tensor, f"{tensor} = VALUE")
    if kind == 5:
        g.add(f'{name} = {{"w": ({tensor}, 1)}}')
        text = f'{name}["w"]'
        return Place(f"{text}[0]", f"{text}[0]", f"{text} = (VALUE, 1)", is_fixed=True)
    if kind == 1:
        g.add(f'{name} = {{"w": {tensor}}}')
        text = f'{name}["w"]'
    elif kind == 2:
        g.add(f"{name} = SimpleNamespace(w={tensor})")
        text = f"{name}.w"
    else:
        g.add(f"{name} = [{tensor}]")
        text = f"{name}[0]"
    return Place(text, text, f"{text} = VALUE")


def operand(g: Generator, function: Function) -> str:
    """Something to combine with a tensor of the function."""
    options = [x.inside for x in function.places] * 2 + function.parameters
    return str(g.choose([*options, str(g.number(1, 3))]))


def body_line(g: Generator, function: Function) -> str:
    """A line of the function; `a` is the tensor that it works on."""
    options = ["a = a {op} {o}"] * 5 + ["a = a.flip(0)", "a = a.clone()", "a.realize()", "a += 1"]
    options += ["a[0] = 2", "v = a[:1]\nv += 1", "a = (a * 2).realize()", "{p} += 1"]
    if function.tensor_places():
        options += ["{w} += 1", "{w}.assign({w} {op} {o})", "{w}.assign({w} + 1).realize()"]
        options += ["{w}[0] = a[0]", "{w}[:1] += 2", "a = a + {w}[0]", "{w} = a + 1", "{w} = a"]
        options += ["{w} = {w} + 1"]
    numbers = [x.inside for x in function.places if x.is_number]
    if numbers:
        options += [f"if {numbers[0]} > 1:\n    a = a + 5"]
    if function.kept:
        options += [f"{function.kept} = {x}" for x in ("a", "a", function.parameters[0])]
    if g.maybe(0.03):
        options = ["if a.sum().item() > 3:\n    a = a * 2"]
    elif g.maybe(0.05):
        sizes = ", ".join(map(str, function.shape))
        drawn = f"Tensor.randint({sizes}, high=4, device={function.layout})"
        cast = "" if function.dtype == "int" else f".cast(dtypes.{function.dtype})"
        options = [f"a = a + {drawn}{cast}"]
    place = g.choose(function.tensor_places()).inside if function.tensor_places() else ""
    return str(g.choose(options)).format(
        op=g.choose(["+", "+", "-", "*"]),
        o=operand(g, function),
        w=place,
        p=g.choose(function.parameters),
    )


def results(g: Generator, function: Function) -> tuple[str, str]:
    """What the function returns, and the text that takes the tensors from a call."""
    options = [("a", "RESULT = CALL")] * 4
    options += [
        ("a, a + 1", "RESULT, RESULT = CALL"),
        ("a.sum()", "RESULT = CALL"),
        ("a[:1]", "RESULT = CALL"),
        ("a, a[:1]", "RESULT, RESULT = CALL"),
        (f"{function.parameters[0]}[:1]", "RESULT = CALL"),
        ('{"y": [a]}', 'RESULT = CALL["y"][0]'),
        (function.parameters[0], "RESULT = CALL"),
        ("None", "CALL"),
    ]
    if function.tensor_places():
        options.append((f"a, {function.tensor_places()[0].inside}", "RESULT, RESULT = CALL"))
    taken: tuple[str, str] = g.choose(options)
    return taken


def indented(lines: list[str], by: int = 1) -> str:
    return "\n".join("    " * by + line for part in lines for line in part.splitlines())


def call_another(g: Generator, function: Function, lines: list[str]) -> None:
    """Adds calls of another captured function, which may call one itself."""
    known = [
        x
        for x in g.functions
        if len(x.parameters) == 1
        and not x.is_step
        and (x.shape, x.dtype, x.results) == (function.shape, function.dtype, "RESULT = CALL")
    ]
    if not known or g.maybe(0.4):
        return
    other = g.choose(known)
    given = g.choose(["a", "a", function.parameters[0], "a + 1"])
    calls = [f"a = a + {other.name}({given})"] * g.choose([1, 1, 2])
    if g.maybe(0.2):
        calls = [f"{other.name}({given})"]
    at = g.number(1, len(lines) - 1)
    lines[at:at] = calls
    function.inner = (other.name, *other.inner)


@statement("jit", 2)
def define(g: Generator) -> None:
    if len(g.functions) >= MAX_FUNCTIONS:
        raise Unsuitable
    parameters = ["x", "y"][: g.choose([1, 1, 2])]
    plain = [x for x in g.functions if not (x.is_step or x.is_symbolic)]
    if plain and g.maybe(0.6):
        # of a kind that it may call
        like = g.choose(plain)
        function = Function(g.new_name("f"), like.shape, like.dtype, parameters)
        function.layout = like.layout
    else:
        shape = g.shape()[:2]
        kind = g.choose(["float", "float", "int"])
        function = Function(g.new_name("f"), shape, kind, parameters, layout=g.layout(shape))
    for _ in range(g.choose([0, 1, 1, 2])):
        function.places.append(new_place(g, function))
    cell = g.maybe(0.25)
    if cell:
        first = tensor_name(g, function)
        name = function.name
        function.places.append(Place("c", f"look_{name}()", f"put_{name}(VALUE)"))
    if g.maybe(0.2):
        box = g.new_name("P")
        g.add(f"{box} = SimpleNamespace()")
        function.kept = f"{box}.kept"
    lines = [f"a = x {g.choose('+*')} {operand(g, function)}"]
    lines += [body_line(g, function) for _ in range(g.number(0, 4))]
    returned, function.results = results(g, function)
    lines.append(f"return {returned}")
    call_another(g, function, lines)
    assigned = [x.inside for x in function.places if x.inside in g.pinned]
    if assigned:
        lines.insert(0, f"global {', '.join(dict.fromkeys(assigned))}")
    head = f"@TinyJit\ndef {function.name}({', '.join(parameters)}):"
    if not cell:
        g.add(f"{head}\n{indented(lines)}")
    else:
        g.add(
            f"def make_{name}(c):\n"
            "    def put(new):\n        nonlocal c\n        c = new\n"
            "    def look():\n        return c\n"
            f"{indented(head.splitlines())}\n        nonlocal c\n{indented(lines, 2)}\n"
            f"    return {name}, put, look"
        )
        g.add(f"{name}, put_{name}, look_{name} = make_{name}({first})")
    g.functions.append(function)
    for _ in range(g.number(2, 3)):
        call_function(g, function)


@statement("jit", 0.7)
def define_with_a_symbolic_size(g: Generator) -> None:
    if len(g.functions) >= MAX_FUNCTIONS:
        raise Unsuitable
    size = g.number(1, 3)
    function = Function(g.new_name("f"), (size, WIDTH), "float", ["x"], is_symbolic=True)
    function.layout = g.layout(function.shape)
    variable = g.new_name("v")
    g.add(f'{variable} = Variable("n", 1, {WIDTH})')
    column = Function("", (size, 1), "float", [], layout=function.layout)
    if g.maybe():
        function.places.append(new_place(g, column))
    column.places = function.places
    lines = [f"a = x {g.choose('+*')} {g.choose(['2', *(x.inside for x in function.places)])}"]
    if function.tensor_places() and g.maybe(0.4):
        lines.append(f"{function.tensor_places()[0].inside} += 1")
    lines += g.choose([[], ["a = a.realize()"], ["a = a * 2"], ["a = a.flip(0)"]])
    lines.append(f"return {g.choose(['a', 'a', 'a.sum()', 'a.sum(1)', 'a.realize()'])}")
    places = [x.inside for x in function.places if x.inside in g.pinned]
    if places:
        lines.insert(0, f"global {places[0]}")
    function.results, function.kept = "RESULT = CALL", variable
    g.add(f"@TinyJit\ndef {function.name}(x):\n{indented(lines)}")
    g.functions.append(function)
    for _ in range(g.number(2, 4)):
        call_function(g, function)


@statement("jit", 2)
def define_a_training_step(g: Generator) -> None:
    """A step that computes a gradient and writes the leaf; gradients may accumulate."""
    if len(g.functions) >= MAX_FUNCTIONS:
        raise Unsuitable
    size = g.number(1, 3)
    function = Function(g.new_name("f"), (size,), "float", ["x"], layout=g.layout((size,)))
    leaf = g.add_new(f"{g.tensor((size,), 'float', function.layout)}.requires_grad_()")
    g.pinned.add(leaf)
    lines = g.choose([[f"{leaf}.grad = None"], []])
    lines += [g.choose([f"a = x * {leaf}", f"a = {leaf} + x", f"a = ({leaf} * 2 - x)"])]
    lines += g.choose([["a = a.sum()"], ["a = a.relu().sum()"], ["a = a.sum().realize()"]])
    lines.append("a.backward()")
    update = f"{leaf}.assign({leaf}.detach() - {leaf}.grad)"
    lines += g.choose([[], [update], [f"{update}.realize()"], [f"{leaf}.grad.realize()"]])
    lines.append("return a")
    function.results, function.is_step = "RESULT = CALL", True
    g.add(f"@TinyJit\ndef {function.name}(x):\n{indented(lines)}")
    function.places.append(Place(f"{leaf}.grad", f"{leaf}.grad", ""))
    g.functions.append(function)
    for _ in range(g.number(2, 4)):
        call_function(g, function)
        g.add(f"see({leaf}.{g.choose(['grad.numpy', 'numpy'])}())")


# ---- calls ----


def argument(g: Generator, function: Function) -> str:
    if function.is_symbolic:
        table = tensor_name(g, function)
        bound = f"{function.kept}.bind({g.number(1, WIDTH)})"
        return f"{table}[:, :{bound}]"
    known = same_kind(g, function)
    kind = g.number(0, 7)
    if function.shape and kind == 7:
        return rows_of_a_table(g, function)
    if known and kind < 4:
        return str(g.choose(known))
    if known and kind == 4:
        x = g.choose(known)
        return str(g.choose([f"{x} + 1", f"{x}.flip(0)", f"{x}.clone()", f"{x}.detach()"]))
    if function.tensor_places() and function.places[0].exchange and kind == 5:
        return function.tensor_places()[0].outside
    return literal(g, function)


def rows_of_a_table(g: Generator, function: Function) -> str:
    """Rows of a tensor that has more, as those of a minibatch."""
    rows, *others = function.shape
    if not function.table:
        given = g.tensor((rows + 2, *others), function.dtype, function.layout)
        function.table = g.add_new(given + g.choose(["", ".realize()"]))
    start = g.number(0, 2)
    return f"{function.table}[{start}:{start + rows}]"


def note_overwritten(g: Generator, function: Function) -> None:
    """A call of this function overwrites earlier results, also those of the one that it calls."""
    called = (function.name, *function.inner)
    g.stale |= {name for name, owners in g.borrowed.items() if not {*called}.isdisjoint(owners)}


def call_function(g: Generator, function: Function) -> None:
    text = function.results
    names = []
    while "RESULT" in text:
        names.append(g.new_name("r"))
        text = text.replace("RESULT", names[-1], 1)
    arguments = ", ".join(argument(g, function) for _ in function.parameters)
    g.add(text.replace("CALL", f"{function.name}({arguments})"), is_call=True)
    note_overwritten(g, function)
    # a result may be a view of an argument
    others = [owner for x in IDENTIFIER.findall(arguments) for owner in g.borrowed.get(x, ())]
    for name in names:
        g.borrowed[name] = (function.name, *others)
        function.members.add(name)
        if g.maybe(0.8):
            g.add(f"see({name}.numpy())")


@statement("jit", 6)
def call(g: Generator) -> None:
    call_function(g, g.choose(g.functions))


@statement("jit", 8)
def call_with_a_leaf(g: Generator) -> None:
    """An argument of a training step requires a gradient."""
    function = g.choose([x for x in g.functions if x.is_step])
    if not function.leaves or g.maybe(0.6):
        given = g.tensor(function.shape, function.dtype, function.layout)
        function.leaves.append(g.add_new(f"{given}.requires_grad_()"))
        g.pinned.add(function.leaves[-1])
    leaf = g.choose(function.leaves)
    if g.maybe(0.2):
        g.add(f"{leaf}.grad = None")
    result = g.new_name("r")
    g.add(f"{result} = {function.name}({leaf})", is_call=True)
    note_overwritten(g, function)
    g.borrowed[result] = (function.name,)
    if g.maybe(0.7):
        g.add(f"see({leaf}.grad.numpy())")


@statement("jit", 4)
def exchange(g: Generator) -> None:
    """Puts another tensor or number in a place."""
    function = g.choose(g.functions)
    place = g.choose([x for x in function.places if x.exchange])
    if place.is_number:
        g.add(place.exchange)
        return
    x = eval(place.outside, g.names)
    shape, dtype = x.shape, g.dtype_name(x)
    known = g.tensors(lambda y: y.shape == shape and g.dtype_name(y) == dtype)
    fresh = [x for x in known if x not in g.borrowed and x in function.members]
    value = g.tensor(shape, dtype, function.layout)
    given = f"dtype=dtypes.{dtype}, device={function.layout}"
    options = [value, f"{value}.realize()", f"Tensor.full({shape}, {g.number(0, 4)}, {given})"]
    options += [f"{place.outside} * 2"]
    if fresh:
        options += [g.choose(fresh)] * 2
    if known:
        options.append(f"{g.choose(known)} + 1")
    g.add(place.exchange.replace("VALUE", g.choose(options)))
    call_function(g, function)


@statement("jit", 3)
def write_a_place(g: Generator) -> None:
    place = g.choose([x for x in g.choose(g.functions).tensor_places() if x.exchange])
    text = place.outside
    options = [
        f"{text}.assign({text} + 1)",
        f"{text}[0] = 3",
        f"{text}.assign({text} * 2).realize()",
    ]
    if "(" not in text:
        options.append(f"{text} += 1")
    g.add(g.choose(options))


@statement("jit", 3)
def read_a_place(g: Generator) -> None:
    place = g.choose(g.choose(g.functions).tensor_places())
    g.add(f"see({place.outside}.numpy())")


@statement("jit", 2)
def write_a_result(g: Generator) -> None:
    """What the last call returned is written, which its aliases see."""
    name = g.choose([x for x in g.tensors() if x in g.borrowed])
    g.add(
        g.choose([f"{name} += 1", f"{name}.assign({name} * 2)", f"{name} *= 2\n{name}.realize()"])
    )
    call_function(g, next(x for x in g.functions if x.name == g.borrowed[name][0]))


@statement("jit", 2)
def take_what_was_kept(g: Generator) -> None:
    function = g.choose([x for x in g.functions if x.kept and not x.is_symbolic])
    if g.maybe():
        g.add(f"see({function.kept}.numpy())")
    else:
        g.add_new(function.kept)


@statement("jit", 0.2)
def reset(g: Generator) -> None:
    g.add(f"{g.choose(g.functions).name}.reset()")
