"""Writes: in-place operators, `assign`, indexed writes, through views, and exchanged tensors."""

from __future__ import annotations

from test.fuzz_state.generate import Generator, Shape, Unsuitable, statement
from test.fuzz_state.reference import Tensor, fits
from test.fuzz_state.views import index_text, view_text


def written(g: Generator) -> str:
    """The name of a tensor that may be written."""
    return g.any(lambda x: not x.repeats)


def value_text(g: Generator, target: Tensor, shape: Shape | None = None) -> str:
    """An expression for a value to write to `target`: of `shape`, or that broadcasts to it.

    It may read the target itself, or a view of it.
    """
    wanted = target.shape if shape is None else shape

    def suits(x: Tensor) -> bool:
        fitting = x.shape == wanted if shape is not None else fits(x.shape, wanted)
        return fitting and x.dtype == target.dtype

    known = g.tensors(suits)
    kind = g.number(0, 4)
    if kind == 0 or not known:
        return g.tensor(wanted, g.dtype_name(target))
    x = g.choose(known)
    if kind < 3:
        return x
    change = g.choose([f"{x} + 1", f"{x} * 2", f"{x}.clone()", f"-{x}"])
    if kind == 4 and g.names[x].ndim:
        change = f"{x}.flip({g.number(0, g.names[x].ndim - 1)})"
    return f"({change})"


def number_or_value(g: Generator, target: Tensor) -> str:
    return str(g.number(-3, 4)) if g.maybe(0.3) else value_text(g, target)


def target_view(g: Generator) -> tuple[str, Tensor]:
    """A view of a tensor, as an expression, without repeated elements."""
    name = written(g)
    text = view_text(g, name, g.names[name])
    try:
        moved = g.value_of(text)
    except Exception as error:
        raise Unsuitable from error
    if moved.repeats:
        raise Unsuitable
    return text, moved


@statement("writes", 4)
def in_place_operator(g: Generator) -> None:
    name = written(g)
    op = g.choose(["+=", "+=", "-=", "*="])
    g.add(f"{name} {op} {number_or_value(g, g.names[name])}")


@statement("writes", 0.5)
def halved(g: Generator) -> None:
    g.add(f"{written(g)} /= 2")


@statement("writes", 3)
def assign(g: Generator) -> None:
    name = written(g)
    text = value_text(g, g.names[name], g.names[name].shape)
    g.add(f"{name}.assign({text}){g.choose(['', '', '.realize()'])}")


@statement("writes", 2)
def assign_to_a_view(g: Generator) -> None:
    text, x = target_view(g)
    g.add(f"{text}.assign({value_text(g, x, x.shape)}){g.choose(['', '', '.realize()'])}")


@statement("writes", 4)
def set_items(g: Generator) -> None:
    name = g.any(lambda x: x.ndim > 0 and not x.repeats)
    index = index_text(g, g.names[name])
    part = g.value_of(f"{name}[{index}]")
    g.add(f"{name}[{index}] {g.choose(['=', '=', '+=', '*='])} {number_or_value(g, part)}")


@statement("writes")
def set_items_of_a_view(g: Generator) -> None:
    text, x = target_view(g)
    if x.ndim == 0:
        raise Unsuitable
    index = index_text(g, x)
    part = g.value_of(f"{text}[{index}]")
    g.add(f"{text}[{index}] {g.choose(['=', '+='])} {number_or_value(g, part)}")


@statement("writes")
def shift_itself(g: Generator) -> None:
    """A write that reads other elements of the same memory."""
    name = g.any(lambda x: x.ndim > 0 and x.shape[0] > 1 and not x.repeats)
    g.add(
        g.choose(
            [
                f"{name}[1:] = {name}[:-1]",
                f"{name}[:-1] += {name}[1:]",
                f"{name}.assign({name}.flip(0))",
                f"{name} += {name}[0]",
                f"{name}[0] = {name}[-1]",
                f"{name} *= {name}",
            ]
        )
    )


@statement("writes")
def set_rows(g: Generator) -> None:
    """A write by a list of rows, some of them equal."""
    name = g.any(lambda x: x.ndim > 0 and not x.repeats)
    x = g.names[name]
    rows = [g.number(-x.shape[0], x.shape[0] - 1) for _ in range(g.number(1, 3))]
    part = Tensor.zeros(len(rows), *x.shape[1:], dtype=x.dtype)
    g.add(f"{name}[{rows}] {g.choose(['=', '+='])} {number_or_value(g, part)}")


@statement("writes")
def set_at_a_position(g: Generator) -> None:
    """A write at a bound Variable."""
    name = g.any(lambda x: x.ndim > 0 and x.shape[0] > 1 and not x.repeats)
    x = g.names[name]
    at = g.position(x.shape[0])
    number = at[at.index("(") + 1 : -1]
    text, part = g.choose(
        [
            (f"{name}[{at}]", f"{name}[{number}]"),
            (f"{name}[{at} : {at} + 1]", f"{name}[{number} : {number} + 1]"),
        ]
    )
    value = number_or_value(g, g.value_of(part))
    g.add(g.choose([f"{text} = {value}", f"{text} = {value}", f"{text} += 1"]))


@statement("writes")
def replaced(g: Generator) -> None:
    name = g.any()
    x = g.names[name]
    other = g.any(lambda y: y.shape == x.shape and y.dtype == x.dtype)
    if other == name:
        raise Unsuitable
    g.add(f"{name}.replace({other})")


@statement("writes", 0.4)
def moved_in_place(g: Generator) -> None:
    name = g.any(lambda x: not x.memory.is_result and x.memory.array is None)
    g.add(f"{name}.{g.choose(['to_', 'shard_'])}({g.layout(g.names[name].shape)})")


@statement("writes")
def swapped(g: Generator) -> None:
    a, b = g.any(), g.any()
    if a == b:
        raise Unsuitable
    g.add(f"{a}, {b} = {b}, {a}")


@statement("writes", 2)
def written_with_a_reader(g: Generator) -> None:
    """A write, and what reads the older content, as a value or as another write, at once."""
    name, other = written(g), written(g)
    x = g.names[name]
    change = f"{name} += {number_or_value(g, x)}"
    if other != name and g.maybe():
        g.add(f"{other}.assign({value_text(g, g.names[other], g.names[other].shape)})")
    else:
        kinds = [f"{name}.sum()", f"{name} * 2", f"-{name}", *[f"{name}.flip(0)"] * bool(x.ndim)]
        other = g.add_new(g.choose(kinds))
    g.add(change)
    g.add(f"Tensor.realize({', '.join(g.rng.sample([name, other], 2))})")


@statement("writes")
def older_beside_newer(g: Generator) -> None:
    """A value of contents before and after writes, of which no tensor is left."""
    name, new = written(g), g.new_name()
    x = g.names[name]
    older = g.choose([name, f"{name} * 2", *[f"{name}.flip(0)"] * 2 * bool(x.ndim)])
    lines = [f"{new} = {older} + 1"]
    for _ in range(g.number(1, 2)):
        lines += [f"{name} += {number_or_value(g, x)}", f"{new} = {new} + {older}"]
    g.add("\n".join(lines))
    g.add(g.choose([f"see({new}.numpy())", f"Tensor.realize({name}, {new})"]))


@statement("writes", 0.5)
def changed_array(g: Generator) -> None:
    """An array that a tensor was made of changes; the tensor does not."""
    g.add(f"{g.choose(g.arrays)} += 1")


@statement("writes", 0.7)
def refused(g: Generator) -> None:
    """A write that must raise, and change nothing."""
    name = g.any(lambda x: x.ndim > 0)
    x = g.names[name]
    if x.repeats:
        changes = [f"{name} += 1", f"{name}.assign({name} + 1)", f"{name}[...] = 0"]
    else:
        first = x.shape[0]
        changes = [
            f"{name}[{first}] = 0",
            f"{name}[{-first - 1}] += 1",
            f"{name}.assign({name}.stack({name}))",
            f'{name}[Variable("far", 0, {first}).bind({first})] = 0',
            f"{name}.expand(2, {', '.join(map(str, x.shape))}).assign({name}.stack({name}))",
        ]
    g.add(f"with refused():\n    {g.choose(changes)}")
