"""Functions under `TinyJit`: what they reach, what they write, what they keep, and their calls.

A function reaches tensors by arguments, cells, globals, attributes, keys and positions, some of
them together with other functions, and between its calls these are written and exchanged. Its
results are tensors of the program as others, until its next call, which may overwrite them: a
program that reads them later is invalid in the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from test.fuzz_state.creation import copy_text
from test.fuzz_state.generate import Generator, Shape, Unsuitable, statement

MAX_FUNCTIONS = 4
WIDTH = 4

# what a function returns of two values, and the text that takes the tensors from a call; the later
# ones are objects that a capture follows, or refuses
PLAIN_RESULTS = [
    *[("{0}", "RESULT = CALL")] * 8,
    *[("{0}, {1}", "RESULT, RESULT = CALL")] * 3,
    ('{{"y": [{0}]}}', 'RESULT = CALL["y"][0]'),
    ("[{0}, {1}, {0}]", "RESULT, RESULT, RESULT = CALL"),
    ("None", "CALL"),
]
OBJECT_RESULTS = [
    ("Output({0})", "RESULT = CALL.y"),
    ("[Output({0}), {1}]", "out, RESULT = CALL; RESULT = out.y"),
    ("SimpleNamespace(y=({0}, {1}))", "RESULT, RESULT = CALL.y"),
    ("{{{0}}}", "RESULT, = CALL"),
    ("deque([{0}])", "RESULT = CALL[0]"),
    ("(y for y in [{0}])", "RESULT, = CALL"),
    ("lambda: a", "RESULT = CALL()"),
]
# effects on Python objects, a fresh one of them, and what shows them
EFFECTS = [
    ("{p}.append(1.0)", "[]", "len({p})"),
    ("{p}.append(a)", "[]", "{p}[0].numpy()"),
    ("{p}.append(a)", "[]", "len({p})"),
    ("{p}[len({p})] = a", "{}", "{p}[len({p}) - 1].numpy()"),
    ("{p}.add(len({p}))", "set()", "len({p})"),
    ("{p}.k += 1", "SimpleNamespace(k=0)", "{p}.k"),
]


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
    # leaves that it updates and that may be frozen
    weights: list[str] = field(default_factory=list)
    # the layout of its tensors, and their names; others may be in another layout
    layout: str | None = None
    members: set[str] = field(default_factory=set)
    # expressions for the Python effects of its calls
    effects: list[str] = field(default_factory=list)

    def tensor_places(self) -> list[Place]:
        """The tensors that the function may write or replace."""
        return [x for x in self.places if not (x.is_number or x.is_fixed)]


# ---- definitions ----


def same_kind(g: Generator, function: Function) -> list[str]:
    """The names of tensors that fit as arguments."""
    known = g.tensors(lambda x: x.shape == function.shape and g.dtype_name(x) == function.dtype)
    return known if g.maybe(0.1) else [x for x in known if x in function.members]


def literal(g: Generator, function: Function) -> str:
    """An expression for a new tensor that fits as an argument; some are constants."""
    new = g.tensor(function.shape, function.dtype, function.layout)
    if g.maybe(0.25):
        given = f"dtype=dtypes.{function.dtype}, device={function.layout}"
        new = f"Tensor.full({function.shape}, {g.number(0, 3)}, {given})"
        new += g.choose(["", "", ".contiguous()"])
    return new + g.choose(["", ".realize()"])


def tensor_name(g: Generator, function: Function) -> str:
    """The name of a tensor for a place: a new one, or one that other statements use."""
    known = same_kind(g, function)
    if known and g.maybe(0.4):
        return str(g.choose(known))
    name = g.add_new(literal(g, function))
    function.members.add(name)
    return name


def new_place(g: Generator, function: Function, is_any: bool = True) -> Place:
    """A key, an attribute, a position, a global, or, if it may be any place, an item of a tuple or
    a number.
    """
    kind = g.number(0, 5 if is_any else 3)
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


def tensor_inside(g: Generator, function: Function) -> str:
    """The text of a tensor in the function."""
    places = [x.inside for x in function.tensor_places()]
    return str(g.choose([*places * 2, *function.parameters, "a"]))


def body_line(g: Generator, function: Function) -> str:
    """A line of the function; `a` is the tensor that it works on."""
    options = ["a = a {op} {o}"] * 3 + ["a = a.flip(0)", "a = a.clone()", "a.realize()", "a += 1"]
    options += ["a[0] = 2", "v = a[:1]\nv += 1", "a = (a * 2).realize()", "{p} += 1"]
    options += ["{p} += 1", "{p}.assign({p} * 2)"]
    options += ["{p}[{s}].assign({t}[{s}])", "{p}.assign({t})", "a = {c}"]
    if function.tensor_places():
        options += ["{w} += 1", "{w}.assign({w} {op} {o})", "{w}.assign({w} + 1).realize()"]
        options += ["{w}[0] = a[0]", "{w}[:1] += 2", "a = a + {w}[0]", "{w} = a + 1", "{w} = a"]
        options += ["{w} = {w} + 1", "{w}[{s}].assign({t}[{s}])", "{w}[{s}] = {t}[{s}]"]
        options += [
            "{w} += x",
            "{w}.assign({w} + x)",
            "{w}.assign({t})",
            "{w}.assign({c})",
            "{w}[{s}] += {t}[{s}]",
        ]
        options += ["t = {t} {op} {o}\n{w}.assign(t)", "{w}.assign({w} + {t})"]
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
    start = g.number(0, function.shape[0] - 1)
    return str(g.choose(options)).format(
        op=g.choose(["+", "+", "-", "*"]),
        o=operand(g, function),
        w=place,
        p=g.choose(function.parameters),
        t=tensor_inside(g, function),
        c=copy_text(g, tensor_inside(g, function)),
        s=f"{start}:{g.number(start + 1, function.shape[0])}",
    )


def result(g: Generator, function: Function) -> str:
    """An expression for a result: a tensor, a view of it, an equal value, or another."""
    x = g.choose(["a", *[tensor_inside(g, function)] * 3])
    more = [f"{x}[:1]", f"{x}.sum()", f"{x} + {operand(g, function)}"]
    return str(g.choose([x, x, x, *[copy_text(g, x) for _ in range(3)], *more]))


def results(g: Generator, function: Function) -> tuple[str, str]:
    """What the function returns, and the text that takes the tensors from a call."""
    returned, taken = g.choose(OBJECT_RESULTS if g.maybe(0.05) else PLAIN_RESULTS)
    return returned.format(result(g, function), result(g, function)), taken


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
        function.layout, function.members = like.layout, like.members
        # what it may write too
        shared = [x for x in like.tensor_places() if x.inside == x.outside]
        if shared and g.maybe(0.6):
            function.places.append(g.choose(shared))
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
    if g.maybe(0.06):
        line, fresh, shown = g.choose(EFFECTS)
        log = g.new_name("P")
        g.add(f"{log} = {fresh}")
        lines.append(line.format(p=log))
        function.effects.append(shown.format(p=log))
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
    for _ in range(g.number(2, 4)):
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


@statement("jit", 1.5)
def define_a_step_of_two_leaves(g: Generator) -> None:
    """A training step that updates those of its leaves that are not frozen."""
    if len(g.functions) >= MAX_FUNCTIONS:
        raise Unsuitable
    size = g.number(1, 3)
    function = Function(g.new_name("f"), (size,), "float", ["x"], layout=g.layout((size,)))
    for _ in range(2):
        leaf = g.add_new(f"{g.tensor((size,), 'float', function.layout)}.requires_grad_()")
        g.pinned.add(leaf)
        function.weights.append(leaf)
        function.places.append(Place(leaf, leaf, ""))
    w, b = function.weights
    lines = [f"a = {g.choose([f'x * {w} + {b}', f'{w} - {b} + x'])}", "a.sum().backward()"]
    update = ["p.assign(p.detach() - p.grad)", g.choose(["p.grad = None", "p.grad *= 0"])]
    lines += [f"for p in [{w}, {b}]:", "    if p.requires_grad:", indented(update, 2)]
    lines.append(g.choose(["return a", f"return ({w} + {b}).realize()", f"return {w}.detach()"]))
    function.results, function.is_step = "RESULT = CALL", True
    g.add(f"@TinyJit\ndef {function.name}(x):\n{indented(lines)}")
    g.functions.append(function)
    for _ in range(g.number(2, 4)):
        call_function(g, function)


@statement("jit", 3)
def freeze(g: Generator) -> None:
    """A weight is frozen, or trained again."""
    function = g.choose([x for x in g.functions if x.weights])
    leaf = g.choose(function.weights)
    g.add(f"{leaf}.requires_grad = {not g.names[leaf].requires_grad}")
    for _ in range(g.number(1, 3)):
        call_function(g, function)


@statement("threads", 2)
def define_a_counter(g: Generator) -> None:
    """A function whose effects do not depend on the order of its calls."""
    if len(g.functions) >= MAX_FUNCTIONS:
        raise Unsuitable
    shape = g.shape()[:1]
    kind = g.choose(["float", "int"])
    function = Function(g.new_name("f"), shape, kind, ["x"], layout=g.layout(shape))
    lines = []
    for _ in range(g.number(1, 2)):
        function.places.append(new_place(g, function, False))
        w = function.places[-1].inside
        lines.append(g.choose([f"{w} += x", f"{w}.assign({w} + x)", f"{w}[...] += x"]))
    if g.maybe():
        # where the other thread may come between
        lines.insert(g.number(0, len(lines)), "pause()")
    if g.pinned:
        lines.insert(0, f"global {', '.join(sorted(g.pinned))}")
    lines.append(g.choose(["return x * 2", "return None", f"return {w}", f"return {w} + 0"]))
    g.add(f"@TinyJit\ndef {function.name}(x):\n{indented(lines)}")
    function.results = "CALL"
    g.functions.append(function)
    call_at_once_of(g, function)


@statement("threads", 3)
def call_at_once(g: Generator) -> None:
    """Two threads call a captured function."""
    counters = [x for x in g.functions if x.results == "CALL" and x.parameters == ["x"]]
    call_at_once_of(g, g.choose(counters))


def call_at_once_of(g: Generator, function: Function) -> None:
    # what the calls write is not among their arguments, whose values would depend on the order
    written = {eval(x.outside, g.names).memory for f in g.functions for x in f.tensor_places()}
    known = [x for x in same_kind(g, function) if g.names[x].memory not in written]
    if not known or g.maybe(0.3):
        known = [g.add_new(literal(g, function))]
    calls = [f"lambda: {function.name}({g.choose(known)})" for _ in range(2)]
    g.add(f"at_once({', '.join(calls)})", is_call=True)
    g.add(f"see({g.choose(function.tensor_places()).outside}.numpy())")


# ---- calls ----


def argument(g: Generator, function: Function) -> str:
    if function.is_symbolic:
        table = tensor_name(g, function)
        bound = f"{function.kept}.bind({g.number(1, WIDTH)})"
        return f"{table}[:, :{bound}]"
    known = same_kind(g, function)
    places = [x.outside for x in function.tensor_places() if x.exchange]
    kind = g.number(0, 9)
    if function.shape and kind == 7:
        return rows_of_a_table(g, function)
    if known and kind < 4:
        return str(g.choose(known))
    if known and kind == 4:
        x = g.choose(known)
        return str(g.choose([f"{x} + 1", f"{x}.flip(0)", f"{x}.detach()"]))
    if places and kind == 5:
        return g.choose(places)
    if known and kind in (6, 8):
        # memory that several values may share
        return copy_text(g, g.choose([*known, *places]))
    return literal(g, function)


def rows_of_a_table(g: Generator, function: Function) -> str:
    """Rows of a tensor that has more, as those of a minibatch."""
    rows, *others = function.shape
    if not function.table:
        given = g.tensor((rows + 2, *others), function.dtype, function.layout)
        function.table = g.add_new(given + g.choose(["", ".realize()"]))
    start = g.number(0, 2)
    return f"{function.table}[{start}:{start + rows}]"


def call_function(g: Generator, function: Function, kept: str = "", given: str = "") -> list[str]:
    """Adds a call, `given` its first argument, and what is done with its results: `kept` of the
    first RESULT, or anything. Returns the names of the results.
    """
    text = function.results
    names = []
    while "RESULT" in text:
        names.append(g.new_name("r"))
        text = text.replace("RESULT", names[-1], 1)
    arguments = ", ".join(
        given if given and not i else argument(g, function) for i in range(len(function.parameters))
    )
    g.add(text.replace("CALL", f"{function.name}({arguments})"), is_call=True)
    function.members.update(names)
    for name in names:
        if g.maybe(0.7):
            g.add(f"see({name}.numpy())")
    for shown in function.effects:
        g.add(f"see({shown})")
    if names and kept:
        g.add_new(kept.replace("RESULT", names[0]))
    elif names and g.maybe(0.5):
        use_result(g, g.choose(names))
    return names


def use_result(g: Generator, name: str) -> None:
    """A result is kept as a copy or as what is computed of it, viewed, or written."""
    if g.maybe(0.6):
        g.add_new(copy_text(g, name))
    elif g.maybe():
        g.add(
            g.choose(
                [f"{name} += 1", f"{name}.assign({name} * 2)", f"{name} *= 2\n{name}.realize()"]
            )
        )
    else:
        g.add_new(g.choose([f"{name}[:1]", f"{name} + 1", f"{name}.flip(0)", f"{name}.detach()"]))


@statement("jit", 8)
def call(g: Generator) -> None:
    function = g.choose(g.functions)
    for _ in range(g.number(1, 3)):
        call_function(g, function)


@statement("jit", 8)
def call_repeatedly(g: Generator) -> None:
    """Calls, each result of which is kept in the same way, as by a loop."""
    function = g.choose([x for x in g.functions if "RESULT" in x.results])
    kept = copy_text(g, "RESULT")
    for _ in range(g.number(3, 5)):
        call_function(g, function, kept)


@statement("jit", 8)
def call_beside_an_equal_value(g: Generator) -> None:
    """Calls whose argument, which the function may write, another value equals before."""
    function = g.choose([x for x in g.functions if not x.is_symbolic])
    name = tensor_name(g, function)
    for _ in range(g.number(1, 3)):
        equal = g.add_new(copy_text(g, name)) if g.maybe() else ""
        call_function(g, function, given=name)
        if equal:
            g.add(f"see({equal}.numpy())")


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
    fresh = [x for x in known if x in function.members]
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


def write_place(g: Generator, function: Function) -> None:
    text = g.choose([x for x in function.tensor_places() if x.exchange]).outside
    options = [
        f"{text}.assign({text} + 1)",
        f"{text}[0] = 3",
        f"{text}.assign({text} * 2).realize()",
    ]
    if "(" not in text:
        options.append(f"{text} += 1")
    g.add(g.choose(options))


@statement("jit", 3)
def write_a_place(g: Generator) -> None:
    write_place(g, g.choose(g.functions))


@statement("jit", 4)
def write_a_place_after_a_call(g: Generator) -> None:
    """A result, which may equal what is in a place, is read after that is written."""
    function = g.choose([x for x in g.functions if "RESULT" in x.results])
    names = call_function(g, function)
    write_place(g, function)
    g.add(f"see({g.choose(names)}.numpy())")


@statement("jit", 3)
def read_a_place(g: Generator) -> None:
    place = g.choose(g.choose(g.functions).tensor_places())
    g.add(f"see({place.outside}.numpy())")


@statement("jit", 2)
def use_a_result(g: Generator) -> None:
    use_result(g, g.choose([x for x in g.tensors() if x.startswith("r")]))


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
