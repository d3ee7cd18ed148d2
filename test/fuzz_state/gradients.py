"""Gradients: leaves, losses of what other groups made of them, `grad`, and updates of leaves."""

from __future__ import annotations

from test.fuzz_state.generate import Generator, Unsuitable, statement
from test.fuzz_state.reference import Tensor


def is_leaf(x: Tensor) -> bool:
    return x.is_leaf


def has_history(x: Tensor) -> bool:
    return x.node().has_history


def has_grad(x: Tensor) -> bool:
    return x.is_leaf and x.grad is not None


@statement("gradients", 3)
def leaf(g: Generator) -> None:
    if g.shared:
        # gradients do not see what code outside writes
        raise Unsuitable
    shape = g.shape()
    dtype = g.choose(["float", "double"])
    text = g.choose(
        [
            "{t}.requires_grad_()",
            "{t}.realize().requires_grad_()",
            "{t}.clone().requires_grad_()",
            "Tensor.ones({sizes}, dtype=dtypes.{d}, device={layout}).requires_grad_()",
        ]
    )
    sizes = ", ".join(map(str, shape))
    made = g.tensor(shape, dtype)
    g.add_new(text.format(t=made, sizes=sizes, d=dtype, layout=g.layout(shape)))


@statement("gradients", 4)
def of_leaves(g: Generator) -> None:
    """A function of one or two tensors with a history."""
    x = g.any(has_history)
    value = g.names[x]
    y = g.any(lambda y: y.dtype == value.dtype and y.shape == value.shape)
    options = ["{x} * {y}", "{x} * 3", "{x} + {y}", "{x}.relu() * 2"]
    if g.names[y] is not value:
        options.append("({x} - {y}).square()")
    if value.ndim:
        options += ["{x}.cumsum(0)", "{x}.max(0)", "{x}.sum(0)", "{x}.sum()", "{x} * {x}[0]"]
        options += ["{x}.cummax(0)[0]"]
    g.add_new(g.choose(options).format(x=x, y=y))


@statement("gradients", 4)
def backward(g: Generator) -> None:
    x = g.any(has_history)
    value = g.names[x]
    if value.ndim == 0 and g.maybe():
        g.add(f"{x}.backward()")
        return
    weight = g.tensor(value.shape, g.dtype_name(value))
    g.add(
        g.choose(
            [
                f"({x} * {weight}).sum().backward()",
                f"{x}.backward(gradient={weight})",
                f"{x}.square().sum().backward()",
                f"({x}.detach() * {x}).sum().backward()",
            ]
        )
    )


@statement("gradients")
def backward_of_a_read_loss(g: Generator) -> None:
    x = g.any(has_history)
    loss = g.add_new(f"({x} * {g.number(2, 3)}).sum()")
    g.add(g.choose([f"see({loss}.item())", f"{loss}.realize()", f"see({loss}.numpy())"]))
    g.add(f"{loss}.backward()")


@statement("gradients", 2)
def gradient(g: Generator) -> None:
    x, w = g.any(has_history), g.any(is_leaf)
    g.add(f"see({x}.square().sum().gradient({w})[0].numpy())")


@statement("gradients", 3)
def read_a_gradient(g: Generator) -> None:
    g.add(f"see({g.any(has_grad)}.grad.numpy())")


@statement("gradients")
def whether_there_is_a_gradient(g: Generator) -> None:
    g.add(f"see({g.any(is_leaf)}.grad is None)")


@statement("gradients")
def forget_a_gradient(g: Generator) -> None:
    g.add(f"{g.any(has_grad)}.grad = None")


@statement("gradients", 2)
def update(g: Generator) -> None:
    """A step of an optimizer."""
    w = g.any(has_grad)
    g.add(
        g.choose(
            [
                f"{w}.assign({w}.detach() - {w}.grad)",
                f"{w}.assign({w}.detach() - {w}.grad).realize()",
                f"{w}.detach().assign({w}.detach() - {w}.grad * 2)",
            ]
        )
    )


@statement("gradients")
def write_to_a_derived_tensor(g: Generator) -> None:
    """In place, of a tensor that is no leaf: its gradient follows."""
    y = g.any(has_history, lambda x: not x.is_leaf and x.memory.leaf is None and not x.repeats)
    x = g.names[y]
    if x.ndim == 0:
        raise Unsuitable
    part = g.choose([f"{y}[0]", f"{y}[-1:]", f"{y}[...]"])
    shape = g.value_of(part).shape
    value = g.tensor(shape, g.dtype_name(x))
    g.add(f"{part} {g.choose(['=', '+=', '*='])} {g.choose([value, '2', f'{part} * 2'])}")


@statement("gradients", 0.3)
def refused_backward(g: Generator) -> None:
    x = g.any(lambda x: not has_history(x) and x.dtype != int)
    g.add(f"with refused():\n    {x}.sum().backward()")
