"""Movement ops, concatenation, and changes of layout."""

from __future__ import annotations

from math import prod

from test.devices import DEVICE
from test.fuzz_sharding.elementwise import is_number
from test.fuzz_sharding.generate import Generator, Unsuitable, Value, op
from test.fuzz_sharding.program import LAST_TURN
from test.fuzzing.layouts import Shape, random_devices


def factors(g: Generator, size: int) -> Shape:
    """A random shape with this number of elements."""
    shape: list[int] = []
    while size > 1 and len(shape) < 3:
        divisors = [d for d in range(2, size + 1) if size % d == 0]
        shape.append(g.choose(divisors))
        size //= shape[-1]
    shape += [size] if size > 1 or not shape else []
    if g.maybe(0.2):
        shape.insert(g.number(0, len(shape)), 1)
    return tuple(shape)


@op
def permute(g: Generator) -> None:
    x = g.any(min_axes=2)
    order = list(range(x.ndim))
    g.rng.shuffle(order)
    g.step(f"{x}.permute({tuple(order)})", x, along=())


@op
def transpose(g: Generator) -> None:
    x = g.any(min_axes=2)
    g.step(f"{x}.transpose({g.axis(x)}, {g.axis(x)})", x, along=())


@op
def reshape(g: Generator) -> None:
    x = g.any(min_axes=0)
    g.step(f"{x}.reshape({factors(g, prod(x.shape))})", x)


@op
def merge(g: Generator) -> None:
    x = g.any(min_axes=2)
    first = g.number(0, x.ndim - 2)
    g.step(f"{x}.flatten({first}, {g.number(first + 1, x.ndim - 1)})", x)


@op
def unflatten(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    g.step(f"{x}.unflatten({axis}, {factors(g, x.shape[axis])})", x)


@op
def unit_axes(g: Generator) -> None:
    x = g.any()
    text = g.choose([f"{x}.unsqueeze({g.axis(x)})", f"{x}.squeeze()", f"{x}[..., None]"])
    g.step(text, x, along=())


@op
def expand(g: Generator) -> None:
    x = g.any()
    at, size = g.number(0, x.ndim), g.number(2, 6)
    shape = (*x.shape[:at], size, *x.shape[at:])
    g.step(f"{x}.unsqueeze({at}).expand({shape})", x, along=())


@op
def flip(g: Generator) -> None:
    x = g.any()
    axes = g.axes(x)
    g.step(f"{x}.flip({axes})", x, along=axes)


@op
def roll(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    g.step(f"{x}.roll({g.number(-9, 9)}, {axis})", x, along=[axis])


@op
def repeat(g: Generator) -> None:
    x = g.any()
    times = tuple(g.number(1, 3) for _ in range(x.ndim + g.number(0, 1)))
    g.step(f"{x}.repeat({times})", x)


@op
def repeat_interleave(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    g.step(f"{x}.repeat_interleave({g.number(2, 3)}, {axis})", x, along=[axis])


@op
def pad(g: Generator) -> None:
    x = g.any()
    padding, along = [], []
    for axis, size in enumerate(x.shape):
        pair = (g.number(-1, 4), g.number(-1, 4)) if g.maybe() and size > 2 else (0, 0)
        padding.append(pair)
        along += [axis] if pair != (0, 0) else []
    value = f", value={g.number(-2, 3)}" if g.maybe() else ""
    g.step(f"{x}.pad({tuple(padding)}{value})", x, along=along, bound=max(x.bound, 3))


@op
def pad_by_mode(g: Generator) -> None:
    x = g.any(min_axes=2)
    mode = g.choose(["reflect", "replicate", "circular"])
    padding: list[tuple[int, int]] = [(0, 0)] * x.ndim
    axis = g.axis(x)
    limit = x.shape[axis] - 1
    lowest = -(limit // 2) if mode == "replicate" else 0
    padding[axis] = (g.number(lowest, limit), g.number(lowest, limit))
    g.step(f"{x}.pad({tuple(padding)}, mode={mode!r})", x, along=[axis])


@op
def pad_to(g: Generator) -> None:
    x = g.any()
    shape = tuple(size + g.number(0, 5) if g.maybe() else size for size in x.shape)
    along = [i for i, size in enumerate(x.shape) if shape[i] != size]
    g.step(f"{x}.pad_to({shape})", x, along=along)


@op
def shrink(g: Generator) -> None:
    x = g.any()
    bounds = [sorted((g.number(0, size), g.number(0, size))) for size in x.shape]
    pairs = [tuple(b) if g.maybe() and b[0] < b[1] else None for b in bounds]
    along = [i for i, pair in enumerate(pairs) if pair is not None]
    g.step(f"{x}.shrink({tuple(pairs)})", x, along=along)


def random_index(g: Generator, size: int) -> str:
    """A basic index of an axis that selects at least one element."""
    kind = g.number(0, 6)
    low, high = sorted((g.number(0, size), g.number(0, size)))
    step = g.number(2, 4)
    if kind == 0:
        return str(g.number(-size, size - 1))
    if kind == 1 and low < high:
        return f"{low}:{high}"
    if kind == 2:
        return f"{g.number(0, size - 1)}::{step}"
    if kind == 3:
        return f"::{-g.number(1, 3)}"
    if kind == 4 and low < high:
        return f"{low}:{high}:{step}"
    if kind == 5 and size > 1:
        return f"{size - 1}:0:{-step}"
    return ":"


@op
def basic_index(g: Generator) -> None:
    x = g.any()
    parts = [random_index(g, size) if g.maybe(0.7) else ":" for size in x.shape]
    along = [i for i, part in enumerate(parts) if part != ":"]
    if g.maybe(0.1):
        parts.append("None")
    g.step(f"{x}[{', '.join(parts)}]", x, along=along)


@op
def symbolic_part(g: Generator) -> None:
    """A slice whose position or size is a Variable."""
    x = g.any(is_number)
    axis = g.axis(x)
    size = x.shape[axis]
    if size <= LAST_TURN:
        raise Unsuitable
    before = ":, " * axis
    count = g.number(1, size - LAST_TURN)
    first = f"{x}[{before}:turn + {count}]"
    whole = tuple(size if i == axis else None for i in range(x.ndim))
    ways = [
        (f"{x}[{before}turn + {count - 1}]", 1),
        (f"{x}[{before}turn:turn + {count}]", 1),
        (f"{first}.pad_to({whole})", 1),
        (f"{first}.sum({axis})", size),
        (f"{first}.max({axis})", 1),
        (f"({first} - {first}.min({axis}, keepdim=True)).pad_to({whole})", 2),
    ]
    text, factor = g.choose(ways)
    g.step(text, x, along=[axis], bound=x.bound * factor)


@op
def cat(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    other = tuple(g.number(1, 6) if i == axis else size for i, size in enumerate(x.shape))
    y = g.like(other if g.maybe() else x.shape)
    both = f"{x}.cat({y}, dim={axis})" if g.maybe(0.7) else f"{y}.cat({x}, {y}, dim={axis})"
    g.step(both, x, y)


@op
def stack(g: Generator) -> None:
    x = g.any(min_axes=0)
    y = g.like(x.shape)
    g.step(f"Tensor.stack({x}, {y}, dim={g.number(0, x.ndim)})", x, y)


@op
def part(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    size = x.shape[axis]
    if g.maybe():
        count = g.number(1, size)
        number = g.number(0, -(-size // -(-size // count)) - 1)
        g.step(f"{x}.chunk({count}, {axis})[{number}]", x, along=[axis])
    else:
        first = g.number(1, size)
        sizes = [first, size - first] if first < size else [first]
        number = g.number(0, len(sizes) - 1)
        g.step(f"{x}.split({sizes}, {axis})[{number}]", x, along=[axis])


@op
def unfold(g: Generator) -> None:
    x = g.any()
    axis = g.axis(x)
    text = f"{x}.unfold({axis}, {g.number(1, x.shape[axis])}, {g.number(1, 3)})"
    g.step(text, x, along=[axis])


@op
def triangle(g: Generator) -> None:
    x = g.any(min_axes=2)
    g.step(f"{x}.{g.choose(['triu', 'tril'])}({g.number(-3, 3)})", x, along=())


@op
def diagonal(g: Generator) -> None:
    x = g.any(is_square, rank=2)
    g.step(f"{x}.diagonal()", x)


@op
def any_diagonal(g: Generator) -> None:
    x = g.any(min_axes=2)
    first, second = g.choose([(i, k) for i in range(x.ndim) for k in range(x.ndim) if i != k])
    offset = g.number(1 - x.shape[first], x.shape[second] - 1)
    g.step(f"{x}.diagonal({offset}, {first}, {second})", x)


def is_square(x: Value) -> bool:
    return x.shape[0] == x.shape[1]


@op
def diag(g: Generator) -> None:
    x = g.any(rank=1)
    g.step(f"{x}.diag()", x)


@op
def rearrange(g: Generator) -> None:
    x = g.any(rank=3)
    formula = g.choose(["(b a) c", "c (a b)", "(a b c)", "b 1 (c a)"])
    g.step(f"{x}.rearrange('a b c -> {formula}')", x)


@op
def meshgrid(g: Generator) -> None:
    x, y = g.any(rank=1), g.any(rank=1)
    indexing = g.choose(["ij", "xy"])
    text = f"{x}.meshgrid({y}, indexing={indexing!r})[{g.number(0, 1)}]"
    g.step(text, x, y)


# ---- layouts ----


@op
def to_layout(g: Generator) -> None:
    """Another layout of the same devices."""
    x = g.any(min_axes=0)
    g.step(f"{x}.to({g.layout(x.shape)})", x)


@op
def there_and_back(g: Generator) -> None:
    """A round trip to other devices, or to one."""
    x = g.any(min_axes=0)
    away = repr(DEVICE)
    if g.maybe():
        away = g.layout(x.shape, random_devices(g.rng, g.choose([2, 3, 4, 6, 8])))
    g.step(f"{x}.to({away}).to({g.layout(x.shape)})", x)


@op
def elsewhere(g: Generator) -> None:
    """Computes on other devices, or on a subset of these."""
    x = g.any(is_number)
    numbers = random_devices(g.rng, g.choose([2, 3, 4, 6, 8]))
    if g.maybe() and len(g.devices) > 1:
        numbers = g.devices[: g.number(1, len(g.devices) - 1)]
    moved = f"{x}.to({g.layout(x.shape, numbers)})"
    axis = g.axis(x)
    text = g.choose(
        [
            f"({moved} * 2 + 1)",
            f"({moved} - {moved}.sum({axis}, keepdim=True))",
            f"{moved}.flip({axis}).cumsum({axis})",
            f"{moved}.contiguous().roll(1, {axis})",
        ]
    )
    g.step(f"{text}.to({g.layout(x.shape)})", x, bound=x.bound * (x.shape[axis] + 1) + 1)


@op
def parts_elsewhere(g: Generator) -> None:
    """Two sets of devices compute one half each, like the stages of a pipeline."""
    x = g.any(is_number)
    numbers = random_devices(g.rng, g.choose([2, 4, 6]))
    half = len(numbers) // 2
    first, second = (g.layout(x.shape, part) for part in (numbers[:half], numbers[half:]))
    back = g.layout(x.shape)
    text = f"OUT_first = {x}.to({first}) * 2\nOUT_second = (OUT_first + 1).to({second}) * 3\n"
    g.step(text + f"OUT = OUT_first.to({back}) + OUT_second.to({back})", x, bound=8 * x.bound + 3)


@op
def shard_like(g: Generator) -> None:
    x = g.any()
    y = g.like(x.shape)
    g.step(f"{x}.shard_like({y})", x, y, bound=x.bound)
