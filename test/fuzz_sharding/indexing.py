"""Reading and writing by index, and in place."""

from __future__ import annotations

from math import prod

from test.fuzz_sharding.elementwise import is_exact, is_number
from test.fuzz_sharding.generate import Generator, Unsuitable, Value, op
from test.fuzz_sharding.movement import random_index
from test.fuzzing.layouts import Shape


def indices(g: Generator, shape: Shape, size: int) -> Value:
    """Integers that index an axis of `size`, in a random layout."""
    return g.input(shape, g.choose(["int", "int", "long"]), 0, size - 1)


def constant_indices(g: Generator, x: Value, size: int, count: int) -> str:
    numbers = [g.number(-size, size - 1) for _ in range(count)]
    return f"{numbers}" if g.maybe() else f"Tensor({numbers}, device={x}.device)"


@op
def rows(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    rank = g.choose([1, 1, 2])
    shape = tuple(g.number(1, 5) for _ in range(rank))
    # out of range reads as 0, and negative indices count from the end
    index = indices(g, shape, x.shape[axis] + (2 if g.maybe(0.2) else 0))
    g.step(f"{x}[{':, ' * axis}{index}]", x, index)


@op
def constant_rows(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    index = constant_indices(g, x, x.shape[axis], g.number(1, 5))
    g.step(f"{x}[{':, ' * axis}{index}]", x)


@op
def elements(g: Generator) -> None:
    """Several axes indexed by broadcast tensors, and perhaps another by a slice."""
    x = g.any(min_axes=2)
    size = g.number(1, 5)
    first = indices(g, g.choose([(size,), (2, 1)]), x.shape[0])
    second = indices(g, (size,), x.shape[1])
    rest = f", {random_index(g, x.shape[2])}" if x.ndim > 2 and g.maybe() else ""
    g.step(f"{x}[{first}, {second}{rest}]", x, first, second)


@op
def apart(g: Generator) -> None:
    x = g.any(min_axes=3)
    first = indices(g, (3,), x.shape[0])
    third = indices(g, (3,), x.shape[2])
    g.step(f"{x}[{first}, :, {third}]", x, first, third)


def smaller(g: Generator, shape: Shape, axis: int) -> Shape:
    return tuple(g.number(1, 6) if i == axis else g.number(1, n) for i, n in enumerate(shape))


@op
def gather(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    index = indices(g, smaller(g, x.shape, axis), x.shape[axis])
    g.step(f"{x}.gather({axis}, {index})", x, index)


@op
def scatter(g: Generator) -> None:
    """Several writes to one position: the last one wins."""
    x = g.any(is_number)
    axis = g.axis(x)
    shape = smaller(g, x.shape, axis)
    index = indices(g, shape, x.shape[axis])
    kind = g.choose(["source", "number", "add"])
    if kind == "number":
        g.step(f"{x}.scatter({axis}, {index}, 2)", x, index, bound=max(x.bound, 2))
        return
    source = g.like(shape, lambda y: y.tensor.dtype == x.tensor.dtype)
    if source.tensor.dtype != x.tensor.dtype:
        raise Unsuitable
    more = ", reduce='add'" if kind == "add" else ""
    bound = x.bound + source.bound * prod(shape)
    g.step(f"{x}.scatter({axis}, {index}, {source}{more})", x, index, source, bound=bound)


@op
def scatter_reduce(g: Generator) -> None:
    x = g.any(is_number, is_exact)
    axis = g.axis(x)
    shape = smaller(g, x.shape, axis)
    index = indices(g, shape, x.shape[axis])
    source = g.like(shape, lambda y: y.tensor.dtype == x.tensor.dtype, is_exact)
    if source.tensor.dtype != x.tensor.dtype:
        raise Unsuitable
    kind = g.choose(["sum", "amax", "amin", "mean"])
    if kind == "mean" and not x.is_float:
        raise Unsuitable
    text = f"{x}.scatter_reduce({axis}, {index}, {source}, {kind!r}, include_self={g.maybe()})"
    bound = x.bound + source.bound * prod(shape)
    g.step(text, x, index, source, bound=bound, exact=kind != "mean")


@op
def one_hot(g: Generator) -> None:
    index = indices(g, tuple(g.number(2, 6) for _ in range(g.number(1, 2))), 5)
    g.step(f"{index}.one_hot(5)", index, along=(), bound=1)


@op
def masked(g: Generator) -> None:
    x = g.any(is_number)
    mask = g.like(x.shape, is_exact)
    text = g.choose(
        [
            f"{x}.masked_fill({mask} > 0, -1)",
            f"({mask} > 0).where({x}, 2)",
            f"({mask} > 0).where(1, {x})",
            f"{x}.detach().masked_select({mask} > 0).sum()",
        ]
    )
    g.step(text, x, mask, bound=max(x.bound, 2) * (prod(x.shape) if "select" in text else 1))


@op
def selection(g: Generator) -> None:
    """A data-dependent number of elements."""
    x = g.any(is_number)
    mask = g.like(x.shape, is_exact)
    g.step(f"{x}.detach().masked_select({mask} > 0)", x, mask)


@op
def selection_of_a_size(g: Generator) -> None:
    x = g.any(is_number, min_axes=1)
    mask = g.like(x.shape, is_exact)
    size, fill = g.number(1, prod(x.shape) + 3), g.number(-2, 3)
    if g.maybe(0.4):
        bound = max(*x.shape, 3)
        g.step(f"({mask} > 0).nonzero({size}, {fill})", mask, bound=bound)
    else:
        text = f"{x}.masked_select({mask} > 0, {size}, {fill})"
        g.step(text, x, mask, bound=max(x.bound, 3))


# ---- writing ----


@op
def write_part(g: Generator) -> None:
    """Assigns a number, or values of its shape, to a slice."""
    x = g.any(is_number)
    index = ", ".join(random_index(g, size) if g.maybe(0.7) else ":" for size in x.shape)
    value = "2"
    used = [x]
    if g.maybe(0.6):
        read = x.tensor[eval(f"np.index_exp[{index}]", {"np": __import__("numpy")})]
        shape = tuple(int(size) for size in read.shape)
        y = g.like(shape, lambda y: y.tensor.dtype == x.tensor.dtype)
        value, used = str(y), [x, y]
    bound = max(y.bound for y in used) + 2
    g.step(f"OUT = {x}.clone()\nOUT[{index}] = {value}", *used, bound=bound)


@op
def write_slices(g: Generator) -> None:
    """Assigns slices along every axis, in memory."""
    x = g.any(is_number)
    bounds = [sorted(g.rng.sample(range(size + 1), 2)) for size in x.shape]
    index = ", ".join(f"{low}:{high}" for low, high in bounds)
    shape = tuple(high - low for low, high in bounds)
    y = g.like(shape, lambda y: y.tensor.dtype == x.tensor.dtype)
    change = g.choose(
        [
            f"OUT[{index}] = {y}",
            f"OUT[{index}] = 2",
            f"OUT[{index}] += {y}",
            f"OUT[{index}].assign({y}).realize()",
        ]
    )
    text = f"OUT = {x}.clone().realize()\n{change}"
    g.step(text, x, y, bound=x.bound + y.bound + 2)


@op
def write_rows(g: Generator) -> None:
    x = g.any(is_number)
    axis = g.axis(x)
    places = g.rng.sample(range(x.shape[axis]), g.number(1, min(4, x.shape[axis])))
    index = f"Tensor({places}, device={x}.device)"
    if g.maybe():
        given = indices(g, (3,), x.shape[axis])
        text = f"OUT = {x}.clone()\nOUT[{':, ' * axis}{given}] = 2"
        g.step(text, x, given, bound=max(x.bound, 2))
        return
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    y = g.like(shape, lambda y: y.tensor.dtype == x.tensor.dtype)
    text = f"OUT = {x}.clone()\nOUT[{':, ' * axis}{index}] = {y}"
    g.step(text, x, y)


@op
def write_elements(g: Generator) -> None:
    x = g.any(is_number, min_axes=2)
    first = indices(g, (3,), x.shape[0])
    second = indices(g, (3,), x.shape[1])
    text = f"OUT = {x}.clone()\nOUT[{first}, {second}] = -3"
    g.step(text, x, first, second, bound=max(x.bound, 3))


@op
def write_seen_by_a_view(g: Generator) -> None:
    """Two slice assignments, read through an earlier view.

    The view has all elements: a slice of a sharded axis is no view.
    """
    x = g.any(is_number, is_exact)
    first, second = (
        ", ".join(random_index(g, size) if g.maybe(0.7) else ":" for size in x.shape)
        for _ in range(2)
    )
    part = f"OUT[{second}]"
    change = g.choose([f"{part} = 1", f"{part}.assign({part} * 0 + 1).realize()", f"{part} += 1"])
    text = (
        f"OUT = {x}.clone().realize()\nOUT_view = OUT.transpose(0, -1)\nOUT[{first}] = 2\n"
        f"{change}\nOUT = OUT - OUT_view.max()"
    )
    g.step(text, x, bound=2 * x.bound + 9)


@op
def moved_in_place(g: Generator) -> None:
    x = g.any()
    g.step(f"OUT = {x}.clone()\nOUT.to_({g.layout(x.shape)})", x)


@op
def assign(g: Generator) -> None:
    x = g.any(is_number, min_axes=0)
    y = g.like(x.shape, lambda y: y.tensor.dtype == x.tensor.dtype)
    text = g.choose(
        [
            f"OUT = {x}.clone()\nOUT.assign({y}).realize()",
            f"OUT = {x}.clone()\nOUT += {y}",
            f"OUT = {x}.clone().realize()\nOUT.assign(OUT + {y}).realize()",
            f"OUT = {x}.clone().realize()\nOUT.assign({y} - OUT)",
        ]
    )
    g.step(text, x, y, bound=x.bound + y.bound)
