"""Elementwise ops, reductions, and cumulative ops along an axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from test.fuzz_sharding.generate import SMALL, Generator, Unsuitable, Value, op

EXACT = {
    "-{x}": 1,
    "{x}.abs()": 1,
    "{x}.relu()": 1,
    "{x} * 2": 2,
    "{x} + 1": 2,
    "3 - {x}": 4,
    "{x}.sign()": 1,
    "{x}.maximum(1)": 1,
    "{x}.clip(-2, 1)": 1,
    "{x}.contiguous()": 1,
    "{x}.detach()": 1,
    "{x}.clone()": 1,
    "{x}.realize()": 1,
    "{x}.contiguous_backward()": 1,
    "{x}.square().clip(0, 9)": 9,
    "{x}.hardtanh(-2, 3)": 3,
    "{x}.relu6()": 6,
}
INTEGER = {
    "({x} % 3)": 2,
    "({x} // 2)": 1,
    "({x}.cast(dtypes.int) + 1).mod(4)": 4,
    "({x} > 0)": 1,
    "({x} == 1)": 1,
    "{x}.cast(dtypes.int)": 1,
    "{x}.cast(dtypes.float)": 1,
    "{x}.cast(dtypes.double)": 1,
    "{x}.cast(dtypes.short)": 1,
    "{x}.cast(dtypes.bool)": 1,
    "({x} > 0).where({x}, -1)": 1,
    "{x}.masked_fill({x} > 1, 2)": 2,
    "{x}.round()": 1,
    "{x}.cast(dtypes.int) & 5": 5,
    "{x}.cast(dtypes.int) ^ 3": 3,
    "{x}.cast(dtypes.int) << 1": 2,
    "{x}.isclose(1)": 1,
    "{x}.trunc()": 1,
    "{x}.cast(dtypes.uint8)": 255,
    "{x}.cast(dtypes.int).bitcast(dtypes.uint).cast(dtypes.uint8)": 255,
    "{x}.cast(dtypes.int) | 6": 7,
    "{x}.cast(dtypes.int) >> 1": 1,
    "~{x}.cast(dtypes.int)": 1,
    "{x}.cast(dtypes.char)": 128,
    "{x}.cast(dtypes.ushort)": 1,
    "{x}.cast(dtypes.half)": 1,
    "{x}.cast(dtypes.bfloat16)": 1,
    "{x}.bool().logical_not()": 1,
    "({x} + 0.5).floor()": 2,
    "({x} / 2).ceil()": 2,
    "{x}.isfinite()": 1,
    "({x} / {x}).isnan()": 1,
    "(1 / {x}).isinf()": 1,
    "{x}.div(2, rounding_mode='trunc')": 1,
    "{x}.div(-3, rounding_mode='floor')": 2,
    "{x}.cast(dtypes.int).idiv(3)": 1,
    "{x}.ne(2)": 1,
    "{x}.fmod(3)": 3,
}
SMOOTH = {
    "{x}.sigmoid()": 1,
    "{x}.tanh()": 1,
    "{x}.sin()": 1,
    "({x}.tanh() * 2).exp()": 9,
    "({x}.abs() + 1).log()": 9,
    "({x}.abs() + 1).sqrt()": 99,
    "({x}.square() + 1).rsqrt()": 1,
    "1 / ({x}.abs() + 1)": 1,
    "{x}.tanh().erf()": 1,
    "{x}.gelu()": 0,
    "{x}.softplus()": 0,
    "{x}.silu()": 0,
    "{x}.softsign()": 1,
    "{x} / 3": 0,
    "{x}.leaky_relu(0.1)": 0,
    "{x}.tanh().atan()": 1,
    "{x}.elu()": 0,
    "{x}.mish()": 0,
    "({x}.abs() + 1) ** 0.5": 99,
    "{x}.hardswish()": 0,
    "{x}.cos()": 1,
    "{x}.tanh().tan()": 2,
    "({x}.tanh() / 2).asin()": 1,
    "({x}.tanh() / 2).acos()": 3,
    "({x}.tanh() / 2).atanh()": 1,
    "{x}.asinh()": 0,
    "({x}.abs() + 2).acosh()": 0,
    "{x}.tanh().sinh()": 2,
    "{x}.tanh().cosh()": 2,
    "{x}.tanh().exp2()": 2,
    "({x}.abs() + 1).log2()": 99,
    "({x}.abs() + 1).log10()": 9,
    "{x}.gelu(approximate='none')": 0,
    "({x}.abs() + 1).reciprocal()": 1,
    "{x}.celu(2.0)": 0,
    "{x}.selu()": 0,
    "{x}.logsigmoid()": 0,
    "{x}.quick_gelu()": 0,
    "{x}.hardsigmoid()": 1,
    "{x}.logaddexp(1)": 0,
}
SMOOTH_BINARY = (
    "{x}.lerp({y}, 0.25)",
    "{x}.logaddexp({y})",
    "({x}.abs() + 1) ** {y}.tanh()",
    "{x} / ({y}.square() + 1)",
    "{x}.lerp({y}, {y}.sigmoid())",
)
BINARY: dict[str, Callable[[float, float], float]] = {
    "{x} + {y}": lambda a, b: a + b,
    "{x} - {y}": lambda a, b: a + b,
    "{x} * {y}": lambda a, b: a * b,
    "{x}.maximum({y})": max,
    "{x}.usum({y}, 1)": lambda a, b: a + b + 1,
    "{x}.uprod({y}, 2)": lambda a, b: 2 * a * b,
    "{x}.minimum({y})": max,
    "{x} * 3 - {y} * 2": lambda a, b: 3 * a + 2 * b,
}
COMPARED: dict[str, Callable[[float, float], float]] = {
    "({x} < {y})": lambda a, b: 1,
    "({x} == {y})": lambda a, b: 1,
    "({x} > {y}).where({x}, {y})": max,
    "({x} > {y}).where({y}, 0)": max,
    "({x} != {y})": lambda a, b: 1,
    "({x} >= {y}).where({x} + 1, {y})": lambda a, b: a + b + 1,
    "{x}.copysign({y} + 0.5)": max,
    "{x} // ({y}.abs() + 1)": lambda a, b: a + 1,
    "{x} % ({y}.abs() + 2)": lambda a, b: b + 2,
    "{x}.fmod({y}.abs() + 2)": lambda a, b: b + 2,
    "{x}.isclose({y})": lambda a, b: 1,
}


def is_exact(x: Value) -> bool:
    return x.is_exact


def is_number(x: Value) -> bool:
    return not x.is_bool


def is_integer(x: Value) -> bool:
    return x.is_exact and not x.is_bool


@op
def exact_function(g: Generator) -> None:
    x = g.any(is_number, min_axes=0)
    text = g.choose(list(EXACT))
    g.step(text.format(x=x), x, along=(), bound=x.bound * EXACT[text] + 4)


@op
def integer_function(g: Generator) -> None:
    x = g.any(is_integer, min_axes=0)
    text = g.choose(list(INTEGER))
    g.step(text.format(x=x), x, along=(), bound=max(x.bound, INTEGER[text]))


@op
def bitcast(g: Generator) -> None:
    x = g.any(is_integer)
    text = g.choose(["{x}.int().bitcast(dtypes.uint8)", "{x}.short().bitcast(dtypes.uint8)"])
    g.step(text.format(x=x), x, along=[x.ndim - 1], bound=255)


@op
def smooth_function(g: Generator) -> None:
    x = g.double(g.any(is_number, min_axes=0))
    text = g.choose(list(SMOOTH))
    g.step(text.format(x=x), x, along=(), bound=SMOOTH[text] or x.bound, exact=False)


def broadcast_partner(g: Generator, x: Value) -> Value:
    """A value of the shape of `x`, or of a shape that broadcasts to it."""
    shape = x.shape
    if g.maybe(0.4):
        shape = tuple(1 if g.maybe(0.4) else size for size in shape)
        shape = shape[g.number(0, len(shape)) :] if g.maybe() else shape
    return g.like(shape, is_number)


@op
def binary(g: Generator) -> None:
    x = g.any(is_number, min_axes=0)
    y = broadcast_partner(g, x)
    if g.maybe(0.2):
        x, y = y, x
    table = COMPARED if x.is_exact and y.is_exact and g.maybe(0.3) else BINARY
    text = g.choose(list(table))
    g.step(text.format(x=x, y=y), x, y, bound=table[text](x.bound, y.bound))


@op
def smooth_binary(g: Generator) -> None:
    x = g.double(g.any(is_number))
    y = g.double(broadcast_partner(g, x))
    text = g.choose(SMOOTH_BINARY)
    g.step(text.format(x=x, y=y), x, y, bound=x.bound + y.bound + 9, exact=False)


@op
def outer(g: Generator) -> None:
    x = g.bounded(g.any(is_number, rank=1))
    y = g.bounded(g.any(is_number, rank=1))
    g.step(f"{x}.reshape(-1, 1) * {y}", x, y, bound=x.bound * y.bound)


@op
def with_ramp(g: Generator) -> None:
    """Constants without a device, or on the device of `x`."""
    x = g.any(is_number)
    size = x.shape[-1]
    text = g.choose(
        [
            f"{x} + Tensor.arange({size})",
            f"{x} + Tensor.arange({size}, device={x}.device)",
            f"{x} * Tensor.full({x.shape}, 2)",
            f"{x} + {x}.full_like(3)",
            f"{x} + Tensor.eye({size})[0]",
            f"(Tensor.arange({size}) < 2).where({x}, 0)",
            f"{x} + Tensor.arange({prod(x.shape)}).reshape({x.shape})",
        ]
    )
    g.step(text, x, along=(), bound=x.bound * 2 + 1024)


# ---- reductions ----


@op
def reduce(g: Generator) -> None:
    x = g.any(is_number)
    axes = g.axes(x)
    keep = g.maybe(0.3)
    count = prod(x.shape[axis] for axis in axes)
    name = g.choose(["sum", "sum", "max", "min"])
    if name != "sum" and not x.is_exact:
        raise Unsuitable
    bound = x.bound * (count if name == "sum" else 1)
    g.step(f"{x}.{name}({axes}, keepdim={keep})", x, along=axes, bound=bound)


@op
def moment(g: Generator) -> None:
    x = g.double(g.any(is_number))
    axes = g.axes(x)
    arguments = f"{axes}, keepdim={g.maybe(0.3)}"
    text, bound = g.choose(
        [
            (f"{x}.mean({arguments})", x.bound),
            (f"{x}.var({arguments}, correction=0)", 8 * x.bound**2),
            (f"({x}.var({arguments}, correction=0) + 1).sqrt()", 3 * x.bound + 1),
            (f"{x}.var_mean({arguments}, correction=0)[1]", x.bound),
            (f"{x}.std_mean({arguments}, correction=0)[1]", x.bound),
            (f"{x}.logsumexp({arguments})", x.bound + 9),
        ]
    )
    g.step(text, x, along=axes, bound=bound, exact=False)


@op
def reduce_all(g: Generator) -> None:
    x = g.any(is_number, is_exact)
    size = prod(x.shape)
    name, bound = g.choose([("sum", x.bound * size), ("max", x.bound), ("argmax", size)])
    g.step(f"{x}.{name}()", x, bound=bound)


@op
def product(g: Generator) -> None:
    x = g.any(is_number, is_exact)
    axis = g.axis(x)
    if x.shape[axis] > 12:
        raise Unsuitable
    g.step(f"{x}.clip(-1, 2).prod({axis})", x, along=[axis], bound=2 ** x.shape[axis])


@op
def arg_of_reduce(g: Generator) -> None:
    x = g.any(is_exact)
    axis = g.axis(x)
    name = g.choose(["argmax", "argmin", "any", "all"])
    g.step(f"{x}.{name}({axis})", x, along=[axis], bound=max(x.shape))


@op
def running(g: Generator) -> None:
    x = g.any(is_number)
    axis = g.axis(x)
    name = g.choose(["cumsum", "cumsum", "cummax", "cummin", "cumprod", "logcumsumexp"])
    if name == "cumsum":
        g.step(f"{x}.cumsum({axis})", x, along=[axis], bound=x.bound * x.shape[axis])
    elif name == "logcumsumexp":
        x = g.double(x)
        g.step(f"{x}.logcumsumexp({axis})", x, along=[axis], bound=x.bound + 9, exact=False)
    elif not x.is_exact:
        raise Unsuitable
    elif name in ("cummax", "cummin"):
        number = g.number(0, 1)
        bound = max(x.bound, x.shape[axis])
        g.step(f"{x}.{name}({axis})[{number}]", x, along=[axis], bound=bound)
    elif x.shape[axis] <= 12:
        bound = 2 ** x.shape[axis]
        g.step(f"{x}.clip(-1, 2).cumprod({axis})", x, along=[axis], bound=bound)


@op
def normalized(g: Generator) -> None:
    x = g.double(g.any(is_number))
    axis = g.axis(x)
    name = g.choose(["softmax({})", "log_softmax({})", "layernorm({})", "normalize(2, {}, 0.1)"])
    bound = 2 * x.bound + 9
    g.step(f"{x}.{name.format(axis)}", x, along=[axis], bound=bound, exact=False)


@op
def centered(g: Generator) -> None:
    """A reduction that is broadcast back to its input."""
    x = g.any(is_number)
    axes = g.axes(x)
    bound = x.bound * (prod(x.shape[axis] for axis in axes) + 1)
    g.step(f"{x} - {x}.sum({axes}, keepdim=True)", x, along=axes, bound=bound)


@op
def sorting(g: Generator) -> None:
    x = g.any(is_exact)
    axis = g.axis(x)
    down = g.maybe()
    text = g.choose(
        [
            f"{x}.sort({axis}, {down})[0]",
            f"{x}.sort({axis}, {down})[1]",
            f"{x}.argsort({axis}, {down})",
            f"{x}.topk({g.number(1, x.shape[axis])}, {axis}, {down})[{g.number(0, 1)}]",
        ]
    )
    g.step(text, x, along=[axis], bound=max(x.bound, SMALL + 12))
