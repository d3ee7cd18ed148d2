"""Layers of `nn`, optimizers, files, custom kernels, and symbolic positions."""

from __future__ import annotations

from math import prod

from test.fuzz_sharding.elementwise import is_exact, is_number
from test.fuzz_sharding.generate import Generator, Unsuitable, Value, op
from test.fuzz_sharding.layers import factor, image
from test.fuzz_sharding.program import LAST_TURN, evaluate
from test.fuzzing.layouts import Shape
from tinygrad.nn.state import get_state_dict

# LAMB and Muon compute norms in float32
OPTIMIZERS = (
    "SGD([OUT], lr=0.125)",
    "SGD([OUT], lr=0.125, momentum=0.5, weight_decay=0.25, nesterov=True)",
    "Adam([OUT], lr=0.125)",
    "AdamW([OUT], lr=0.125)",
    "LARS([OUT], lr=0.125)",
)


def layer(g: Generator, made: str, x: Value, text: str, bound: float) -> None:
    """A step that calls a layer whose weights are inputs of the program in random layouts."""
    lines, uses = [f"OUT_layer = {made}"], [x]
    for name, weight in get_state_dict(evaluate(made, g.names)).items():
        shape = tuple(int(size) for size in weight.shape)
        if weight.is_floating_point() and "running" not in name:
            uses.append(g.input(shape, "double", -2, 2))
            lines.append(f"OUT_layer.{name} = {uses[-1]}")
        else:
            cast = ".double()" if weight.is_floating_point() else ""
            lines.append(f"OUT_layer.{name} = OUT_layer.{name}{cast}.to({g.layout(shape)})")
    g.step("\n".join([*lines, text]), *uses, bound=bound, exact=False)


@op
def layer_of_rows(g: Generator) -> None:
    x = g.double(g.any(is_number))
    size = x.shape[-1]
    made = g.choose(
        [
            f"nn.Linear({size}, {g.number(1, 6)}, bias={g.maybe()})",
            f"nn.LayerNorm({size})",
            f"nn.LayerNorm({x.shape[-2:]})",
        ]
    )
    layer(g, made, x, f"OUT = OUT_layer({x})", 2 * x.bound * size + 9)


@op
def layer_of_images(g: Generator) -> None:
    x = g.double(image(g))
    channels = x.shape[1]
    groups = g.choose([d for d in (1, 2, 4) if channels % d == 0])
    outputs, kernel = g.number(1, 4), tuple(g.number(1, 3) for _ in range(x.ndim - 2))
    padding, stride = g.number(0, 1), g.number(1, 2)
    made = g.choose(
        [
            f"nn.Conv2d({channels}, {outputs}, {kernel}, stride={stride}, padding={padding})",
            f"nn.ConvTranspose2d({channels}, {outputs}, {kernel}, stride={stride})",
            f"nn.GroupNorm({groups}, {channels}, eps=1.0)",
            f"nn.InstanceNorm({channels}, eps=1.0)",
            f"nn.LayerNorm2d({channels}, eps=1.0)",
        ]
    )
    bound = 2 * x.bound * channels * prod(kernel) + 9
    layer(g, made, x, f"OUT = OUT_layer({x})", bound)


@op
def batch_norm(g: Generator) -> None:
    """Running statistics of training steps, used in inference."""
    x = g.double(image(g))
    text = (
        f"with Tensor.train():\n    OUT = OUT_layer({x})\n"
        f"OUT = OUT + OUT_layer({x}) + OUT_layer.running_mean.sum()"
    )
    layer(g, f"nn.BatchNorm({x.shape[1]}, eps=1.0)", x, text, 9 * x.bound * x.shape[1] + 9)


@op
def recurrent(g: Generator) -> None:
    x = g.double(g.any(is_number, rank=2))
    hidden = g.number(1, 4)
    kind = g.choose(["LSTM", "GRU"])
    text = f"OUT = OUT_layer({x}, OUT_layer({x}))" + ("[0]" if kind == "LSTM" else "")
    layer(g, f"nn.{kind}Cell({x.shape[1]}, {hidden})", x, text, 1)


@op
def embedded(g: Generator) -> None:
    shape: Shape = (g.number(1, 4), g.number(1, 6))
    tokens = g.input(shape, g.choose(["int", "long", "uchar"]), 0, 8)
    layer(g, f"nn.Embedding(9, {g.number(1, 6)})", tokens, f"OUT = OUT_layer({tokens})", 2)


@op
def trained(g: Generator) -> None:
    """Weights after some optimizer steps, whose gradients have no cancellation."""
    x = g.double(g.bounded(g.any(is_number)))
    y = g.double(g.bounded(g.like(x.shape, is_number)))
    text = (
        f"OUT = {x}.clone().realize().requires_grad_()\n"
        f"OUT_optimizer = nn.optim.{g.choose(OPTIMIZERS)}\n"
        "with Tensor.train():\n    for _ in range(2):\n        OUT_optimizer.zero_grad()\n"
        f"        (OUT * {y}.detach()).square().sum().backward()\n"
        "        OUT_optimizer.step()\nOUT = OUT.detach()"
    )
    g.step(text, x, y, bound=x.bound * y.bound**2 + 9, exact=False)


@op
def regressed(g: Generator) -> None:
    x = factor(g, g.any(is_number, rank=2))
    w = g.input((x.shape[1], g.number(1, 5)), "double")
    text = (
        f"OUT = {w}.clone().realize().requires_grad_()\n"
        "OUT_optimizer = nn.optim.SGD([OUT], lr=0.125, momentum=0.5)\n"
        "with Tensor.train():\n    for _ in range(2):\n        OUT_optimizer.zero_grad()\n"
        f"        ({x}.detach().double() @ OUT).square().mean().backward()\n"
        "        OUT_optimizer.step()\nOUT = OUT.detach()"
    )
    g.step(text, x, w, bound=x.bound * 2**10, exact=False)


@op
def saved(g: Generator) -> None:
    x = g.any(min_axes=0)
    text = (
        f"nn.state.safe_save({{'x': {x}}}, temp('OUT.safetensors'))\n"
        f"OUT = nn.state.safe_load(temp('OUT.safetensors'))['x'].to({g.layout(x.shape)}).realize()"
    )
    g.step(text, x)


# ---- custom kernels ----


@op
def kernel_of_elements(g: Generator) -> None:
    x = g.any(is_number, rank=2)
    text = (
        f"Tensor.custom_kernel({x}.empty_like(), {x}, "
        "fxn=kernels.affine, grad_fxn=kernels.affine_gradient, rule='m k -> m k')[0]"
    )
    g.step(text, x, along=(), bound=2 * x.bound + 1)


@op
def kernel_of_products(g: Generator) -> None:
    x = factor(g, g.any(is_number, rank=2))
    y = factor(g, g.like((x.shape[1], g.number(1, 8)), is_number))
    if x.tensor.dtype != y.tensor.dtype:
        x, y = g.double(x), g.double(y)
    shape = (x.shape[0], y.shape[1])
    text = (
        f"Tensor.custom_kernel(Tensor.empty({shape}, dtype={x}.dtype), {x}, {y}, "
        "fxn=kernels.matmul, grad_fxn=kernels.matmul_gradient, rule='m k, k n -> m n')[0]"
    )
    g.step(text, x, y, bound=x.bound * y.bound * x.shape[1])


@op
def kernel_of_maxima(g: Generator) -> None:
    x = g.any(is_number, is_exact, rank=2)
    rule = g.choose(["'m k -> m', reduce='max'", "'m [k] -> m'"])
    text = (
        f"Tensor.custom_kernel(Tensor.empty({x.shape[0]}, dtype={x}.dtype), {x}.detach(), "
        f"fxn=kernels.largest, rule={rule})[0]"
    )
    g.step(text, x, along=[1])


# ---- symbolic positions ----


def at_turn(g: Generator, x: Value) -> tuple[int, str]:
    """An axis that `turn` can index, and the text of an index before it."""
    long = [axis for axis, size in enumerate(x.shape) if size > LAST_TURN + 1]
    if not long:
        raise Unsuitable
    axis = g.choose(long)
    return axis, ":, " * axis


@op
def read_at_turn(g: Generator) -> None:
    x = g.any(is_number)
    axis, before = at_turn(g, x)
    length, room = g.number(1, 2), x.shape[axis] - LAST_TURN - 1
    text, along = g.choose(
        [
            (f"{x}[{before}turn]", [axis]),
            (f"{x}[{before}turn:turn + {length}]", [axis]),
            (f"{x}[{before}turn + {g.number(0, room)}]", [axis]),
            (f"{x}[{before}:turn + 1].sum({axis})", [axis]),
            (f"{x}[{before}turn:].sum({axis})", [axis]),
            (f"{x} * turn", []),
        ]
    )
    bound = x.bound * x.shape[axis] * LAST_TURN
    g.step(text, x, along=along, bound=bound)


@op
def write_at_turn(g: Generator) -> None:
    x = g.any(is_number)
    axis, before = at_turn(g, x)
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    y = g.like(shape, lambda y: y.tensor.dtype == x.tensor.dtype)
    part = f"OUT[{before}turn:turn + 1]"
    change = g.choose([f"{part} = {y}", f"{part} = 2", f"{part}.assign({y}).realize()"])
    g.step(f"OUT = {x}.clone().realize()\n{change}", x, y, bound=max(x.bound, y.bound) + 2)
