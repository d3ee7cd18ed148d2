"""Verification: each form of the graph refuses invalid nodes; errors name node and mistake."""

from __future__ import annotations

import pytest

from tinygrad.dtype import dtypes
from tinygrad.sharding import Partial, Sharding
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import CommInfo, TransferArg
from tinygrad.uop.device_value import Spmd
from tinygrad.uop.ops import BufferArg, ReduceArg, UOp
from tinygrad.uop.spec import KERNEL, LINEAR, PER_DEVICE, TENSOR, SpecError, type_verify, verify
from tinygrad.uop.spec.checks import _MOVEMENT

TWO = Sharding(("CPU:0", "CPU:1"), 0)
FULL = Sharding(("CPU:0", "CPU:1"))
PARTIAL = Sharding(("CPU:0", "CPU:1"), Partial("ADD"))
SPMD = Spmd(("CPU", "CPU:1"))

x = UOp.new_buffer("CPU", (4, 6), dtypes.float32)
i = UOp.new_buffer("CPU", (4,), dtypes.int32)
p = UOp.new_buffer("CPU", (4, 6), dtypes.bool)
split = UOp.new_buffer(TWO, (4, 6), dtypes.float32)
zero, two = UOp.const(dtypes.float32, 0.0), UOp.const(dtypes.index, 2)
first, second = (UOp.new_buffer(name, (4, 6), dtypes.float32) for name in ("CPU", "CPU:1"))
partial_sums = UOp(Ops.REDUCE_AXIS, dtypes.float32, (split,), ReduceArg(Ops.ADD, (0,)))
local = UOp.new_buffer(SPMD, (2, 6), dtypes.float32)

pointer = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(24), (), 0)
r = UOp.range(24, 0)
load = pointer.index(r).load()
store = pointer.index(r).store(load.sqrt(), r)


def node(op: Ops, *src: UOp, arg: object = None, dtype: object = None) -> UOp:
    return UOp(op, dtype or (src[0].dtype if src else dtypes.float32), src, arg)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sink", "spec"),
    [
        (UOp.sink((x + x).sqrt().r(Ops.ADD, (0,)).expand((4, 6)) * x), TENSOR),
        (UOp.sink(p.where(x, zero), x.assign(x * zero)), TENSOR),
        (UOp.sink(x.reshape((24,)).pad(((1, 1),)).shrink(((0, 3),)).flip((True,))), TENSOR),
        (UOp.sink(x.permute((1, 0)).cast(dtypes.int32).bitcast(dtypes.float32)), TENSOR),
        (UOp.sink(split.r(Ops.ADD, (0,)), split.shard(FULL), split.mselect(1)), TENSOR),
        (UOp.sink((partial_sums + partial_sums).reshape((6,)).allreduce(FULL)), TENSOR),
        (UOp.sink(x.gather(i), x.gather(i).scatter_add(i, 9)), TENSOR),
        (UOp.sink(x.shrink(((0, UOp.variable("n", 1, 4).bind(2)), (0, 6)))), TENSOR),
        (UOp.sink((local + local).r(Ops.ADD, (0,))), PER_DEVICE),
        (UOp.sink(store), KERNEL),
        (UOp.sink(pointer.index(r * 0).store(load.reduce(r, arg=Ops.ADD))), KERNEL),
        (UOp.sink(pointer.index(r).store(pointer.index(r, r < 3).load(zero), r)), KERNEL),
    ],
)
def test_valid_nodes_pass(sink: UOp, spec: object) -> None:
    verify(sink, spec)  # type: ignore[arg-type]


WRONG_TENSOR = [
    (UOp.sink(r), "RANGE is no op of the tensor graph"),
    (node(Ops.ADD, x), "ADD has 1 sources, not 2"),
    (node(Ops.ADD, x, i), r"ADD in dtypes.float has a source in dtypes.int; cast it"),
    (node(Ops.CMPLT, x, x), "CMPLT gives dtypes.float, not bool"),
    (node(Ops.WHERE, x, x, x), "WHERE selects by dtypes.float, not by bool; compare first"),
    (node(Ops.SQRT, i), "SQRT is not defined on dtypes.int, only on floats"),
    (node(Ops.IDIV, x, x), "IDIV is not defined on dtypes.float, only on integers"),
    (node(Ops.AND, x, x), "AND is not defined on dtypes.float, only on integers and bool"),
    (node(Ops.ADD, i, i.reshape((2, 2))), r"of the shapes \(4,\), \(2, 2\); expand first"),
    (node(Ops.ADD, x, split), "sources on CPU and .*; a COPY is missing"),
    (node(Ops.RESHAPE, x, arg=(5,)), r"RESHAPE \(5,\) does not fit the shape \(4, 6\)"),
    (node(Ops.EXPAND, x, arg=(8, 6)), "EXPAND .* does not fit"),
    (node(Ops.PERMUTE, x, arg=(0, 0)), "PERMUTE .* does not fit"),
    (node(Ops.PAD, x, arg=((0, -1), (0, 0))), "PAD .* does not fit"),
    (node(Ops.SHRINK, x, arg=((0, 5), (0, 6))), "SHRINK .* does not fit"),
    (node(Ops.FLIP, x, arg=(True,)), "FLIP .* does not fit"),
    (node(Ops.RESHAPE, x, arg=(24,), dtype=dtypes.int32), "has the dtype dtypes.int of a source"),
    (node(Ops.REDUCE_AXIS, x, arg=ReduceArg(Ops.ADD, (2,))), r"reduces the axes \(2,\) of a"),
    (node(Ops.REDUCE_AXIS, x, arg=ReduceArg(Ops.SUB, (0,))), "reduces by SUB, which is not one of"),
    (node(Ops.ASSIGN, x, x.cast(dtypes.int32)), "stores dtypes.int into dtypes.float; cast it"),
    (node(Ops.ASSIGN, x, x.reshape((24,))), r"stores the shape \(24,\) into \(4, 6\)"),
    (node(Ops.GATHER, x, x, arg=0), "indexes by dtypes.float, not by integers"),
    (node(Ops.GATHER, x.reshape((8, 3)), i, arg=1), r"an index \(4,\) beside a source \(8, 3\)"),
    (node(Ops.SCATTER_ADD, x, i, arg=(4, 6, 9)), "a batch of 2 axes, and sources of 2 and 1"),
    (node(Ops.CONST, arg=1), "CONST holds 1, which is not a float, in dtypes.float"),
    (node(Ops.BITCAST, i, dtype=dtypes.void), "one of them has no bits"),
    (node(Ops.BITCAST, i.reshape((2, 2)), dtype=dtypes.float64), None),
    (node(Ops.BITCAST, i.reshape((4, 1)), dtype=dtypes.float64), "does not divide the last axis"),
    (node(Ops.COPY, x, arg=("CPU:0", "CPU:1")), "which is not a device"),
    (node(Ops.COPY, x, arg=PARTIAL), "COPY leaves unreduced partial values on"),
    (node(Ops.ALLREDUCE, split, arg=FULL), "has nothing to reduce"),
    # partial sums may be stored, to be reduced later
    (UOp.sink(partial_sums), None),
    (node(Ops.CONTIGUOUS, partial_sums), "CONTIGUOUS reads unreduced partial values"),
    (node(Ops.MSELECT, split, arg=2), "takes part 2 of a value on 2 devices"),
    (node(Ops.MSTACK, first, second, arg=TWO), None),
    (node(Ops.MSTACK, first, second), "has the argument None, not a Sharding"),
    (node(Ops.MSTACK, first, first, arg=TWO), "part 1 is a .* on CPU, expected on CPU:1"),
    (
        node(Ops.MSTACK, first, zero.reshape((1, 1)).expand((4, 6)), arg=TWO),
        "a source on no device",
    ),
    (
        node(Ops.MSTACK, first.shrink(((0, 2), (0, 6))), second, arg=TWO),
        r"part 0 .* expected of shape \(3, 6\)",
    ),
    (local, "in the tensor graph a device is a name, a Sharding or None"),
    (
        UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(0, (4,), ("CPU:0", "CPU:1"))),
        "a device is a name, a Sharding or None",
    ),
    (UOp(Ops.SINK, dtypes.float32, (x,)), "SINK has the dtype dtypes.float, not void"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_TENSOR)
def test_the_tensor_graph_refuses(wrong: UOp, message: str | None) -> None:
    if message is None:
        verify(wrong, TENSOR)
        return
    with pytest.raises(SpecError, match=f"^in the tensor graph, .*{message}"):
        verify(wrong, TENSOR)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (split, "in the per-device graph a device is a name, an Spmd or None"),
        (node(Ops.ADD, local, x.shrink(((0, 2), (0, 6)))), "a COPY is missing"),
        (node(Ops.COPY, local, arg="CPU"), "which a TRANSFER does in messages"),
        (node(Ops.TRANSFER, local, arg="CPU"), "TRANSFER has the argument 'CPU'"),
        (node(Ops.COPY, zero, arg=FULL), "which is not a device"),
        (node(Ops.MSTACK, first, second, arg=TWO), "MSTACK has the argument .*, not a Spmd"),
        (node(Ops.MSTACK, second, first, arg=SPMD), "MSTACK has sources on"),
        (node(Ops.MSTACK, first, second.shrink(((0, 2), (0, 6))), arg=SPMD), "pad the last blocks"),
        (node(Ops.ALLREDUCE, local, arg=SPMD), "ALLREDUCE is no op of the per-device graph"),
    ],
)
def test_the_per_device_graph_refuses(wrong: UOp, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        verify(wrong, PER_DEVICE)


def test_a_transfer_is_part_of_the_per_device_graph() -> None:
    arg = TransferArg("CPU", (2, 2, 6), (), CommInfo("gather", "", "", ""))
    verify(UOp.sink(node(Ops.TRANSFER, local, arg=arg)), PER_DEVICE)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (x, "BUFFER is no op of the kernel graph"),
        (UOp.sink(load), "SINK has the source LOAD, not STORE"),
        (node(Ops.INDEX, zero, r), "indexes dtypes.float, which is not a pointer"),
        (pointer.index(zero), "indexes by dtypes.float, not by an integer"),
        (pointer.index(r, r), "has a condition in dtypes.index, not in bool"),
        (UOp(Ops.INDEX, pointer.dtype, (pointer,)), r"has 1 sources, not \(pointer, index"),
        (pointer.index(r, r < 3).load(), "has no value where its condition is false"),
        (pointer.index(r).load(two), "has an alternative in dtypes.index"),
        (UOp(Ops.LOAD, dtypes.float32, (pointer,)), "does not load from an INDEX"),
        (UOp(Ops.STORE, dtypes.void, (pointer, zero)), "does not store to an INDEX"),
        (pointer.index(r).store(r, r), "stores dtypes.index into dtypes.float.*; cast it"),
        (pointer.index(r).store(zero, two), "has the source CONST, not RANGE"),
        (load.reduce(r, arg=Ops.SUB), "which is not one of ADD, MUL, MAX"),
        (load.reduce(two, arg=Ops.ADD), "has the source CONST, not RANGE"),
        (UOp(Ops.DEFINE_GLOBAL, dtypes.float32, (), 0), "has the dtype dtypes.float, no pointer"),
        (UOp(Ops.DEFINE_GLOBAL, pointer.dtype, (), "x"), "has the argument 'x', not a int"),
    ],
)
def test_the_kernel_graph_refuses(wrong: UOp, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        verify(wrong, KERNEL)


def test_a_linear_program_is_a_list() -> None:
    program = list(UOp.sink(store).toposort())
    type_verify([*program, UOp(Ops.END, dtypes.void, (r,))], LINEAR)
    with pytest.raises(SpecError, match="RESHAPE is no op of the linear program"):
        type_verify([*program, x.reshape((24,))], LINEAR)


def test_an_error_shows_the_node() -> None:
    with pytest.raises(SpecError, match=r"(?s)cast it:\nADD float\n  BUFFER float.*\n  CAST int\n"):
        verify(UOp.sink(node(Ops.ADD, x, x.cast(dtypes.int32)).sqrt()), TENSOR)


def test_tables_are_total() -> None:
    every = [spec.checks.keys() for spec in (TENSOR, PER_DEVICE, KERNEL, LINEAR)]
    # PARAM is in a kernel's tensor form, between two of these forms
    assert frozenset(Ops) - frozenset().union(*every) == {Ops.PARAM}
    assert all(GroupOp.Elementwise <= ops for ops in every)
    assert GroupOp.Movement == _MOVEMENT.keys()
    assert not GroupOp.Movement & KERNEL.checks.keys()
