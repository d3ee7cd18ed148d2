"""New tensors, in all ways to make them, and new values computed from others."""

from __future__ import annotations

from test.fuzz_state.generate import Generator, Unsuitable, statement


@statement("creation", 2)
def from_list(g: Generator) -> None:
    end = g.choose(["", "", ".realize()", ".clone()"])
    shape = g.shape()
    g.add_new(g.tensor(shape, g.dtype()) + end)


@statement("creation")
def from_array(g: Generator) -> None:
    """An array, which may be changed later."""
    shape, array = g.shape(), g.new_name("n")
    kind = {"double": "float64", "float": "float32", "int": "int32"}[g.dtype()]
    g.add(f"{array} = np.array({g.literal(shape)}, dtype=np.{kind})")
    g.arrays.append(array)
    g.add_new(f"Tensor({array}, device={g.layout(shape)})" + g.choose(["", ".realize()"]))


@statement("creation", 3)
def constants(g: Generator) -> None:
    shape, dtype = g.shape(), g.dtype()
    given = f"dtype=dtypes.{dtype}, device={g.layout(shape)}"
    sizes = ", ".join(map(str, shape))
    text = g.choose(
        [
            f"Tensor.zeros({sizes}, {given})",
            f"Tensor.ones({sizes}, {given})",
            f"Tensor.full({shape}, {g.number(-3, 5)}, {given})",
            f"Tensor.arange({shape[0]}, {given})",
            f"Tensor.arange({shape[0]}, {given}).reshape(1, {shape[0]}).expand(3, {shape[0]})",
            f"(Tensor.zeros({sizes}, {given}) + 1)",
            f"Tensor.zeros({sizes}, {given}).clone()",
            f"Tensor.empty({sizes}, {given}).assign({g.tensor(shape, dtype)})",
        ]
    )
    g.add_new(text + g.choose(["", "", ".realize()"]))


@statement("creation")
def random_numbers(g: Generator) -> None:
    shape = g.shape()
    text = f"Tensor.randint({', '.join(map(str, shape))}, low=-3, high=6, device={g.layout(shape)})"
    g.add_new(text + g.choose(["", ".realize()", ".cast(dtypes.float)"]))


@statement("creation")
def like_another(g: Generator) -> None:
    x = g.any()
    g.add_new(g.choose([f"{x}.zeros_like()", f"{x}.ones_like()", f"{x}.full_like(3)"]))


# expressions for a value equal to `x`, all but `detach` and the own layout new tensors
COPIES = (
    *("{x}.clone()", "({x} + 0)", "({x} + 0)", "({x} * 1)", "(--{x})", "{x}.detach()"),
    *("{x}.contiguous()", "{x}.contiguous()", "{x}.contiguous_backward()", "{x}.realize()"),
    "{x}.to({x}.device)",
)


def copy_text(g: Generator, x: str) -> str:
    """An expression for a value equal to the expression `x`."""
    for _ in range(g.choose([1, 1, 2, 3])):
        # the last one has its operand twice
        options = COPIES if x.isidentifier() else COPIES[:-1]
        x = g.choose(options).format(x=x)
    return x


@statement("values", 4)
def copies(g: Generator) -> None:
    """Equal values, most of them new tensors: snapshots, if their source is written."""
    g.add_new(copy_text(g, g.any()))


@statement("values", 0.5)
def moved(g: Generator) -> None:
    x = g.any()
    copy = g.choose(["{x}.clone().to({l})", "({x} + 0).to({l})", "{x}.contiguous().to({l})"])
    copy = g.choose([copy, copy, "{x}.shard({l})"])
    g.add_new(copy.format(x=x, l=g.layout(g.names[x].shape)))


@statement("values", 0.3)
def copied_by_python(g: Generator) -> None:
    x = g.any(lambda x: not x.node().has_history)
    g.add_new(f"copy.deepcopy({x})")


@statement("values", 2)
def elementwise(g: Generator) -> None:
    x = g.any()
    # a product with 0 is a constant, which has no gradient
    number = g.choose([-2, -1, 1, 2, 3])
    text = g.choose(
        [
            *("{x} + {n}", "{x} * {n}", "{n} - {x}", "-{x}", "{x}.relu()", "{x}.square()"),
            *("({x} > {n}).where({x}, 0)", "{x}.cast(dtypes.{d})", "{x} / 2"),
        ]
    )
    g.add_new(text.format(x=x, n=number, d=g.dtype()))


@statement("values", 2)
def of_two(g: Generator) -> None:
    x = g.any()
    value = g.names[x]
    y = g.any(lambda y: y.dtype == value.dtype and y is not value)
    g.add_new(g.choose(["{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} @ {y}"]).format(x=x, y=y))


@statement("values")
def along_an_axis(g: Generator) -> None:
    x = g.any(lambda x: x.ndim > 0)
    axis = g.number(0, g.names[x].ndim - 1)
    g.add_new(
        g.choose(
            [
                f"{x}.sum({axis})",
                f"{x}.sum({axis}, keepdim=True)",
                f"{x}.sum()",
                f"{x}.cumsum({axis})",
                f"{x}.max({axis})",
                f"{x}.roll(1, {axis})",
                f"{x}.cat({x}, dim={axis})",
                f"{x}.stack({x}, dim={axis})",
            ]
        )
    )


@statement("values")
def padded(g: Generator) -> None:
    x = g.any(lambda x: x.ndim > 0)
    pairs = tuple((g.number(0, 1), g.number(0, 1)) for _ in g.names[x].shape)
    if not any(before or after for before, after in pairs):
        raise Unsuitable
    g.add_new(f"{x}.pad({pairs})")


@statement("values")
def indexed_by_list(g: Generator) -> None:
    x = g.any(lambda x: x.ndim > 0)
    rows = g.names[x].shape[0]
    g.add_new(f"{x}[{[g.number(-rows, rows - 1) for _ in range(g.number(1, 3))]}]")
