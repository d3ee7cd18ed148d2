"""Matrix products, convolution, pooling, normalization, losses and attention."""

from __future__ import annotations

from math import prod

from test.fuzz_sharding.elementwise import is_exact, is_number
from test.fuzz_sharding.generate import Generator, Unsuitable, Value, op
from test.fuzzing.layouts import Shape


def factor(g: Generator, x: Value) -> Value:
    """`x` as a float factor of a product, with small integers."""
    x = g.bounded(x)
    return x if x.is_float else g.double(x)


@op
def matmul(g: Generator) -> None:
    x = factor(g, g.any(is_number))
    inner = x.shape[-1]
    shape: Shape = (inner, g.number(1, 8)) if g.maybe(0.8) else (inner,)
    if x.ndim > 2 and g.maybe():
        shape = (*x.shape[:-2], inner, g.number(1, 6))
    y = factor(g, g.like(shape, is_number))
    g.step(f"{x} @ {y}", x, y, bound=x.bound * y.bound * inner)


@op
def gram(g: Generator) -> None:
    x = factor(g, g.any(is_number, min_axes=2))
    text = g.choose([f"{x} @ {x}.transpose(-2, -1)", f"{x}.transpose(-2, -1) @ {x}"])
    g.step(text, x, bound=x.bound**2 * max(x.shape))


@op
def einsum(g: Generator) -> None:
    """An einsum with a random size for each letter."""
    x = factor(g, g.any(is_number))
    letters = "abcdef"[: x.ndim]
    shared = g.rng.sample(letters, g.number(1, x.ndim))
    more = g.rng.sample("xyz", g.number(0, 1))
    second = [*shared, *more]
    g.rng.shuffle(second)
    sizes = {**dict(zip(letters, x.shape)), **{letter: g.number(1, 5) for letter in more}}
    y = factor(g, g.like(tuple(sizes[letter] for letter in second), is_number))
    kept = [letter for letter in sizes if g.maybe(0.6)]
    g.rng.shuffle(kept)
    formula = f"{letters},{''.join(second)}->{''.join(kept)}"
    bound = x.bound * y.bound * prod(sizes.values())
    g.step(f"Tensor.einsum({formula!r}, {x}, {y})", x, y, bound=bound)


@op
def einsum_of_three(g: Generator) -> None:
    x, y = (factor(g, g.any(is_number, rank=2)) for _ in range(2))
    z = factor(g, g.like((x.shape[1], y.shape[0]), is_number))
    bound = x.bound * y.bound * z.bound * prod(z.shape)
    formula = g.choose(["ab,cd,bc->ad", "ab,cd,bc->dab", "ab,cd,bc->c"])
    g.step(f"Tensor.einsum({formula!r}, {x}, {y}, {z})", x, y, z, bound=bound * x.shape[0])


@op
def linear(g: Generator) -> None:
    x = factor(g, g.any(is_number))
    outputs = g.number(1, 6)
    weight = factor(g, g.like((x.shape[-1], outputs), is_number))
    bias = factor(g, g.like((outputs,), is_number))
    bound = x.bound * weight.bound * x.shape[-1] + bias.bound
    g.step(f"{x}.linear({weight}, {bias})", x, weight, bias, bound=bound)


def image(g: Generator) -> Value:
    """A batch of images or of rows, perhaps a new input."""
    if g.maybe(0.3):
        return factor(g, g.any(is_number, min_axes=3))
    shape = (g.number(1, 3), g.choose([1, 2, 4]), g.number(3, 9), g.number(3, 8))
    return factor(g, g.like(shape if g.maybe(0.8) else shape[:3], is_number))


def sizes(g: Generator, count: int, low: int, high: int) -> object:
    return tuple(g.number(low, high) for _ in range(count)) if g.maybe() else g.number(low, high)


@op
def conv(g: Generator) -> None:
    x = image(g)
    count, channels = x.ndim - 2, x.shape[1]
    groups = g.choose([1, 1, 1, *[d for d in (2, 4) if channels % d == 0]])
    outputs = groups * g.number(1, 3)
    kernel = tuple(g.number(1, 3) for _ in range(count))
    weight = factor(g, g.input((outputs, channels // groups, *kernel), "double"))
    arguments = (
        f"groups={groups}, stride={sizes(g, count, 1, 3)}, "
        f"dilation={sizes(g, count, 1, 2)}, padding={sizes(g, count, 0, 2)}"
    )
    bound = x.bound * weight.bound * channels * prod(kernel) + 4
    if g.maybe(0.3):
        bias = g.input((outputs,), "double")
        text = f"{x}.conv2d({weight}, {bias}, {arguments})"
        g.step(text, x, weight, bias, bound=bound)
    else:
        g.step(f"{x}.conv2d({weight}, {arguments})", x, weight, bound=bound)


@op
def conv_transpose(g: Generator) -> None:
    x = image(g)
    count, channels = x.ndim - 2, x.shape[1]
    groups = g.choose([1, 1, *[d for d in (2,) if channels % d == 0]])
    kernel = tuple(g.number(1, 3) for _ in range(count))
    weight = factor(g, g.input((channels, g.number(1, 3), *kernel), "double"))
    stride = g.number(1, 3)
    arguments = (
        f"groups={groups}, stride={stride}, dilation={g.number(1, 2)}, "
        f"padding={g.number(0, 1)}, output_padding={g.number(0, stride - 1)}"
    )
    bound = x.bound * weight.bound * channels * prod(kernel)
    g.step(f"{x}.conv_transpose2d({weight}, {arguments})", x, weight, bound=bound)


@op
def max_pool(g: Generator) -> None:
    x = image(g)
    if not x.is_exact:
        raise Unsuitable
    count = x.ndim - 2
    kernel = tuple(g.number(1, 3) for _ in range(count))
    arguments = (
        f"{kernel}, stride={sizes(g, count, 1, 3)}, dilation={sizes(g, count, 1, 2)}, "
        f"padding={g.number(0, min(kernel) // 2)}, ceil_mode={g.maybe()}"
    )
    if g.maybe(0.2):
        text = f"{x}.max_pool2d({arguments}, return_indices=True)[1]"
        g.step(text, x, bound=prod(x.shape), along=range(2, x.ndim))
    else:
        g.step(f"{x}.max_pool2d({arguments})", x, along=range(2, x.ndim))


@op
def max_unpool(g: Generator) -> None:
    x = image(g)
    if not x.is_exact or x.ndim != 4:
        raise Unsuitable
    text = (
        f"OUT, places = {x}.max_pool2d((2, 2), return_indices=True)\n"
        f"OUT = OUT.max_unpool2d(places, (2, 2), output_size={x.shape})"
    )
    g.step(text, x)


@op
def average_pool(g: Generator) -> None:
    x = g.double(image(g))
    count = x.ndim - 2
    kernel = tuple(g.number(1, 3) for _ in range(count))
    arguments = (
        f"{kernel}, stride={sizes(g, count, 1, 3)}, padding={g.number(0, min(kernel) // 2)}, "
        f"ceil_mode={g.maybe()}, count_include_pad={g.maybe()}"
    )
    g.step(f"{x}.avg_pool2d({arguments})", x, along=range(2, x.ndim), exact=False)


@op
def interpolate(g: Generator) -> None:
    x = g.double(image(g))
    count = g.number(1, x.ndim - 1)
    size = tuple(g.number(1, 10) for _ in range(count))
    mode = g.choose(["linear", "nearest", "nearest-exact"])
    corners = ", align_corners=True" if mode == "linear" and g.maybe() else ""
    along = range(x.ndim - count, x.ndim)
    exact = x.is_exact and mode != "linear"
    g.step(f"{x}.interpolate({size}, {mode!r}{corners})", x, along=along, exact=exact)


@op
def batchnorm(g: Generator) -> None:
    x = g.double(image(g))
    channels = (x.shape[1],)
    scale, shift = g.input(channels, "double"), g.input(channels, "double")
    around = tuple(i for i in range(x.ndim) if i != 1)
    mean = f"{x}.mean({around})"
    spread = f"({x}.var({around}, correction=0) + 1).rsqrt()"
    text = f"{x}.batchnorm({scale}, {shift}, {mean}, {spread})"
    g.step(text, x, scale, shift, bound=4 * x.bound + 9, exact=False)


@op
def grouped_norm(g: Generator) -> None:
    x = g.double(image(g))
    groups = g.choose([d for d in (1, 2, 4) if x.shape[1] % d == 0])
    text = f"{x}.reshape({x.shape[0]}, {groups}, -1).layernorm().reshape({x.shape})"
    g.step(text, x, bound=4 * x.bound + 9, exact=False)


@op
def root_mean_square_norm(g: Generator) -> None:
    x = g.double(g.any(is_number))
    text = f"{x} * ({x}.square().mean(-1, keepdim=True) + 1).rsqrt()"
    g.step(text, x, along=[x.ndim - 1], bound=x.bound + 9, exact=False)


@op
def factorization(g: Generator) -> None:
    """A factorization: factors are not unique, their product is."""
    x = g.double(g.any(is_number, rank=2))
    if max(x.shape) > 4:
        raise Unsuitable
    text = g.choose(
        [
            f"OUT, right = {x}.detach().qr()\nOUT = OUT @ right",
            f"OUT = {x}.detach().svd()[1]",
            f"OUT, singular, right = {x}.detach().svd(False)\nOUT = OUT * singular @ right",
            f"OUT = ({x} + Tensor.eye(*{x}.shape) * 9).newton_schulz(2, (3.0, -3.2, 1.2))",
        ]
    )
    g.step(text, x, bound=max(x.bound * 4, 9), exact=False)


@op
def loss(g: Generator) -> None:
    x = g.double(g.any(is_number, rank=2))
    classes = x.shape[1]
    reduction = g.choose(["mean", "sum", "none"])
    kind = g.number(0, 4)
    if kind < 2:
        labels = g.input((x.shape[0],), "int", 0, classes - 1)
        smoothing = g.choose([0.0, 0.25])
        name = ["sparse_categorical_crossentropy", "cross_entropy"][kind]
        text = f"{x}.{name}({labels}, label_smoothing={smoothing}, reduction={reduction!r})"
    elif kind == 2:
        labels = g.input((x.shape[0],), "int", 0, classes - 1)
        text = f"{x}.log_softmax().nll_loss({labels}, reduction={reduction!r})"
    else:
        labels = g.input(x.shape, "double", 0, 1)
        name = ["binary_crossentropy_logits", "sigmoid().binary_crossentropy"][kind - 3]
        text = f"{x}.clip(-9, 9).{name}({labels}, reduction={reduction!r})"
    g.step(text, x, labels, bound=(x.bound + 9) * 2 * prod(x.shape), exact=False)


@op
def attention(g: Generator) -> None:
    rank = g.choose([3, 4])
    x = g.double(g.any(is_number, rank=rank))
    keys = (*x.shape[:-2], g.number(1, 6), x.shape[-1])
    key, value = g.double(g.like(keys, is_number)), g.double(g.like(keys, is_number))
    if g.maybe(0.4):
        mask = g.input((x.shape[-2], keys[-2]), "double", 0, 3)
        given = mask if g.maybe() else f"{mask} > 0"
        text = f"{x}.scaled_dot_product_attention({key}, {value}, attn_mask={given})"
        g.step(text, x, key, value, mask, bound=value.bound, exact=False)
    else:
        text = f"{x}.scaled_dot_product_attention({key}, {value}, is_causal={g.maybe()})"
        g.step(text, x, key, value, bound=value.bound, exact=False)


@op
def grouped_attention(g: Generator) -> None:
    """Grouped-query attention: several query heads share one key-value head."""
    x = g.double(g.any(is_number, rank=4))
    heads = g.choose([d for d in range(1, x.shape[1] + 1) if x.shape[1] % d == 0])
    keys = (x.shape[0], heads, g.number(1, 5), x.shape[3])
    key, value = g.double(g.like(keys, is_number)), g.double(g.like(keys, is_number))
    text = f"{x}.scaled_dot_product_attention({key}, {value}, enable_gqa=True)"
    g.step(text, x, key, value, bound=value.bound, exact=False)


@op
def embedding(g: Generator) -> None:
    """Rows of a table by a matrix of tokens, and a product with the table."""
    tokens = g.input((g.number(1, 4), g.number(1, 6)), "int", 0, 8)
    table = factor(g, g.input((9, g.number(1, 8)), "double"))
    bound = table.bound**2 * table.shape[1]
    g.step(f"{table}[{tokens}] @ {table}.T", table, tokens, bound=bound)


@op
def random_numbers(g: Generator) -> None:
    """Random numbers, which do not depend on the layout."""
    x = g.any()
    size = x.shape[0]
    text = g.choose(
        [
            f"OUT = {x} + Tensor.rand(*{x.shape}, device={x}.device)",
            f"OUT = {x} + Tensor.randn(*{x.shape}, dtype=dtypes.double, device={x}.device)",
            f"OUT = {x} + {x}.rand_like(dtype=dtypes.float)",
            f"OUT = {x}[Tensor.randperm({size}, device={x}.device)]",
            f"with Tensor.train():\n    OUT = {x}.double().dropout(0.5)",
            f"OUT = {x}.flatten() + Tensor.randint({prod(x.shape)}, high=9, device={x}.device)",
            f"OUT = ({x}.flatten(1).detach().abs() + 1).multinomial(2, replacement={g.maybe()})",
        ]
    )
    g.step(f"Tensor.manual_seed(7)\n{text}", x, bound=2 * x.bound + 9, exact=False)


@op
def selected(g: Generator) -> None:
    """The largest element of each row, gathered by its position."""
    x = g.any(is_number, is_exact, rank=2)
    text = f"{x}.gather(1, {x}.argmax(1, keepdim=True))"
    g.step(text, x, along=[1])
