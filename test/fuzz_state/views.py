"""Views: movement ops, slices of any step, and `detach()`, of tensors and of views."""

from __future__ import annotations

from math import prod

from test.fuzz_state.generate import Generator, Unsuitable, statement
from test.fuzz_state.reference import Tensor


def slice_text(g: Generator, size: int) -> str:
    """A nonempty slice or an int."""
    kind = g.number(0, 5)
    if kind == 0:
        return str(g.number(-size, size - 1))
    if kind == 1:
        return ":"
    start = g.number(0, size - 1)
    stop = g.number(start + 1, size)
    step = g.choose([1, 1, 1, 2, 3])
    if kind == 2:
        # from the end, backwards
        last = f"{start - 1 - size}" if start else ""
        return f"{g.choose(['', str(stop - 1)]) if stop == size else stop - 1}:{last}:-{step}"
    texts = [f"{start}:{stop}", f"{start}:" if stop == size else f"{start}:{stop - size or ''}"]
    return g.choose(texts) + ("" if step == 1 else f":{step}")


def index_text(g: Generator, x: Tensor) -> str:
    """A basic index of `x`: ints, slices, None and an ellipsis."""
    count = g.number(1, x.ndim)
    items = [slice_text(g, size) for size in x.shape[:count]]
    if g.maybe(0.15):
        items = ["...", *[slice_text(g, size) for size in x.shape[x.ndim - count :]]]
    if g.maybe(0.1):
        items.insert(g.number(0, len(items)), "None")
    return ", ".join(items)


def factors(g: Generator, count: int) -> list[int]:
    """A random shape with `count` elements."""
    shape = []
    while count > 1 and len(shape) < 3:
        size = g.choose([d for d in range(1, count + 1) if count % d == 0])
        shape.append(size)
        count //= size
    return [*shape, count]


def view_text(g: Generator, name: str, x: Tensor) -> str:
    """An expression for a view of `x`."""
    if x.ndim == 0:
        return g.choose([f"{name}.reshape(1)", f"{name}.unsqueeze(0)", f"{name}.detach()"])
    axis = g.number(0, x.ndim - 1)
    order = list(range(x.ndim))
    g.rng.shuffle(order)
    sizes = ", ".join(map(str, factors(g, x.numel())))
    ranges = [(a := g.number(0, size - 1), g.number(a + 1, size)) for size in x.shape]
    options = [f"{name}[{index_text(g, x)}]"] * 8
    options += [
        f"{name}.reshape({sizes})",
        f"{name}.view({sizes})",
        f"{name}.flatten()",
        f"{name}.permute({', '.join(map(str, order))})",
        f"{name}.flip({axis})",
        f"{name}.unsqueeze({axis})",
        f"{name}.shrink({tuple(ranges)})",
        f"{name}.chunk(2, dim={axis})[0]",
        f"{name}.transpose({axis}, {g.number(0, x.ndim - 1)})",
        f"list({name})[{g.number(-x.shape[0], -1)}]",
    ]
    if x.ndim == 2:
        options += [f"{name}.T"] * 2
    if x.ndim == 2 and x.shape[0] == x.shape[1]:
        offsets = ("", 1, -1) if x.shape[0] > 1 else ("",)
        options += [f"{name}.diagonal({offset})" for offset in offsets]
    if 1 in x.shape:
        options.append(f"{name}.squeeze({x.shape.index(1)})")
    if x.shape[axis] > 1:
        cut = g.number(1, x.shape[axis] - 1)
        parts = [cut, x.shape[axis] - cut]
        options.append(f"{name}.split({parts}, dim={axis})[{g.number(0, 1)}]")
    return g.choose(options)


@statement("views", 4)
def view(g: Generator) -> None:
    name = g.any()
    g.add_new(view_text(g, name, g.names[name]))


@statement("views")
def view_of_a_view(g: Generator) -> None:
    name = g.any()
    text = view_text(g, name, g.names[name])
    for _ in range(g.number(1, 2)):
        try:
            moved = g.value_of(text)
        except Exception as error:
            raise Unsuitable from error
        text = view_text(g, text, moved)
    g.add_new(text)


@statement("views", 0.5)
def at_a_position(g: Generator) -> None:
    """A view at a bound Variable."""
    name = g.any(lambda x: x.ndim > 0 and x.shape[0] > 1)
    at = g.position(g.names[name].shape[0])
    g.add_new(g.choose([f"{name}[{at}]", f"{name}[{at} : {at} + 1]"]))


@statement("views")
def detached(g: Generator) -> None:
    g.add_new(f"{g.any()}.detach()")


@statement("views")
def another_name(g: Generator) -> None:
    g.add_new(g.any())


@statement("views", 0.5)
def expanded(g: Generator) -> None:
    """A view whose elements repeat."""
    name = g.any(lambda x: x.ndim > 0)
    x = g.names[name]
    sizes = [g.choose([2, 3]) if size == 1 else size for size in x.shape]
    if prod(sizes) == x.numel():
        sizes = [2, *sizes]
    g.add_new(f"{name}.expand({', '.join(map(str, sizes))})")
