"""Memory that code outside of the library reads and writes: arrays of tensors, and tensors of
arrays. And what else happens beside the statements of one thread: interrupts, threads, and nodes
that a user keeps.
"""

from __future__ import annotations

from test.fuzz_state import reference
from test.fuzz_state.creation import copy_text
from test.fuzz_state.generate import Generator, Unsuitable, statement
from test.fuzz_state.reference import Tensor
from test.fuzz_state.writes import value_text, written


def has_one_meaning(x: Tensor) -> bool:
    """Whether writes to its memory from outside have one meaning: gradients do not see them, and a
    captured function may overwrite the memory of its result, or leave it.
    """
    return not x.node().has_history and not x.memory.is_result


# ---- arrays ----


@statement("exports", 2)
def export(g: Generator) -> None:
    """An array in the memory of a tensor."""
    if reference.LEAVES:
        raise Unsuitable
    x, array = g.any(has_one_meaning), g.new_name("n")
    g.add(
        f"{array} = {g.choose(['np.from_dlpack({x})', 'np.asarray({x}, copy=False)'])}".format(x=x)
    )
    g.shared.append(array)


@statement("exports")
def export_a_copy(g: Generator) -> None:
    """An array in the memory of a value equal to another one."""
    if reference.LEAVES:
        raise Unsuitable
    x = g.add_new(copy_text(g, g.any(has_one_meaning)))
    array = g.new_name("n")
    g.add(f"{array} = np.from_dlpack({x})")
    g.shared.append(array)


@statement("exports", 2)
def import_(g: Generator) -> None:
    """A tensor in the memory of an array."""
    if reference.LEAVES:
        raise Unsuitable
    array = g.new_name("n")
    kind = {"double": "float64", "float": "float32", "int": "int32"}[g.dtype()]
    g.add(f"{array} = np.array({g.literal(g.shape())}, dtype=np.{kind})")
    g.add_new(f"Tensor.from_dlpack({array})")
    g.shared.append(array)


@statement("exports", 3)
def read_shared_memory(g: Generator) -> None:
    g.add(f"settle(globals())\nsee({g.choose(g.shared)})")


@statement("exports", 3)
def write_shared_memory(g: Generator) -> None:
    array = g.choose(g.shared)
    change = g.choose(["{n} += 1", "{n}[...] = {v}", "{n}[0] = {v}", "{n}[-1:] += {v}"])
    g.add(f"settle(globals())\n{change}".format(n=array, v=g.number(-3, 5)))


# ---- interrupts ----


@statement("interrupts", 3)
def interrupted_realize(g: Generator) -> None:
    """Ctrl-C while values and pending writes are computed, which changes no value."""
    names = g.rng.sample(g.tensors(), min(len(g.tensors()), g.number(1, 3)))
    run = g.choose([f"Tensor.realize({', '.join(names)})"] * 3 + ["settle(globals())"])
    number, when = g.choose([0, 0, 1, 2]), g.choose(["before", "after", "after"])
    g.add(f'with interrupted({number}, "{when}"):\n    {run}')


@statement("interrupts", 3)
def interrupted_write(g: Generator) -> None:
    name = written(g)
    x = g.names[name]
    change = g.choose([f"{name}.assign({value_text(g, x, x.shape)})", f"{name} += 1"])
    g.add(change)
    when = g.choose(["before", "after", "after"])
    g.add(f'with interrupted({g.choose([0, 0, 1])}, "{when}"):\n    {name}.realize()')


# ---- threads ----


@statement("threads")
def realize_at_once(g: Generator) -> None:
    """Two threads compute values, and pending writes below these."""
    x, y = g.any(), g.any()
    calls = [f"{x}.{g.choose(['realize', 'numpy'])}()", f"{y}.{g.choose(['realize', 'tolist'])}()"]
    g.add(f"at_once(lambda: {calls[0]}, lambda: {calls[1]})")


# ---- nodes ----


@statement("nodes", 2)
def keep_a_node(g: Generator) -> None:
    """The node of a stored value, which means that value for ever."""
    node = g.new_name("u")
    g.add(f"{node} = node_of({g.any(has_one_meaning)})")
    g.nodes.append(node)


@statement("nodes", 2)
def read_a_node(g: Generator) -> None:
    g.add(f"see(content_of({g.choose(g.nodes)}))")
