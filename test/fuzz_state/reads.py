"""Reads and realizes, at random places and repeatedly; and tensors that go away."""

from __future__ import annotations

from test.fuzz_state.generate import Generator, statement


@statement("reads", 4)
def read(g: Generator) -> None:
    x = g.any()
    if g.names[x].numel() == 1 and g.maybe():
        g.add(f"see({x}.item())")
    else:
        g.add(f"see({x}.{g.choose(['numpy', 'numpy', 'tolist'])}())")


@statement("reads", 4)
def realize(g: Generator) -> None:
    names = g.tensors()
    some = g.rng.sample(names, min(len(names), g.number(1, 3)))
    if len(some) == 1:
        g.add(f"{some[0]}.realize()")
    else:
        g.add(f"Tensor.realize({', '.join(some)})")


@statement("reads")
def read_a_derived_value(g: Generator) -> None:
    x = g.any()
    g.add(f"see({g.choose([f'({x} + 1).numpy()', f'{x}.sum().item()', f'({x} * 2).tolist()'])})")


@statement("reads")
def keep_an_array(g: Generator) -> None:
    """An array that was read keeps its values."""
    array = g.new_name("n")
    g.add(f"{array} = {g.any()}.numpy()")
    g.arrays.append(array)


@statement("reads")
def read_an_array(g: Generator) -> None:
    g.add(f"see({g.choose(g.arrays)})")


@statement("reads", 0.7)
def delete(g: Generator) -> None:
    names = g.tensors()
    if len(names) > 2:
        name = g.choose([x for x in names if x not in g.pinned])
        g.add(f"del {name}")
