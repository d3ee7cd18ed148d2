"""The graphs that Tensor methods build, without running them; and which tensors share a node."""

from __future__ import annotations

from typing import Any

import pytest

from test.evaluator.tensor_graph import evaluate
from tinygrad import Device, Mesh, P, Sharding, Tensor, UOp, Variable, dtypes
from tinygrad.sharding import Partial, ShardingError
from tinygrad.uop import GroupOp, Ops

TWO = ("CPU:1", "CPU:2")
PARTIAL = Partial("ADD")


def ops(x: Tensor) -> list[Ops]:
    return [node.op for node in x.uop.toposort()]


# ---- constants ----


def test_constants_have_no_device_until_combined_with_a_tensor_on_one() -> None:
    for x in (Tensor(3.0), Tensor.ones(3), Tensor.arange(4), Tensor.eye(2)):
        assert x.uop.device is None
        assert x.device == Device.DEFAULT
    assert (Tensor.ones(3) + Tensor([1.0, 2.0, 3.0], device="CPU:1")).device == "CPU:1"


def test_an_explicit_device_is_kept() -> None:
    assert Tensor.ones(3, device="cpu:1").device == "CPU:1"
    assert Tensor.arange(3, device=TWO).device == Sharding(TWO)
    assert Tensor([1, 2], device="CPU:2").device == "CPU:2"


def test_a_new_tensor_in_a_layout_that_does_not_fit_is_replicated() -> None:
    layout = Sharding(TWO, 0)
    assert Tensor.zeros(4, device=layout).device == layout
    assert Tensor.zeros(3, device=layout).device == layout
    assert Tensor.zeros(1, device=layout).device == layout.replicated()
    assert Tensor.full((), 1, device=layout).device == layout.replicated()
    assert Tensor.empty(3, device=layout).device == layout


def test_a_range_is_one_leaf() -> None:
    assert ops(Tensor.arange(100)) == [Ops.ARANGE]
    assert Ops.REDUCE_AXIS not in ops(Tensor.eye(4)) + ops(Tensor.ones(4, 4).triu())


def test_equal_constants_are_one_node_unless_they_require_gradients() -> None:
    assert Tensor.ones(3).uop is Tensor.ones(3).uop
    a, b = Tensor.ones(3, requires_grad=True), Tensor.ones(3, requires_grad=True)
    assert a.uop is not b.uop
    (a * 2 + b * 3).sum().backward()
    assert evaluate(a.grad.uop).tolist() == [2, 2, 2]
    assert evaluate(b.grad.uop).tolist() == [3, 3, 3]


def test_realized_constants_have_their_own_memory() -> None:
    a, b = Tensor.zeros(3).contiguous(), Tensor.zeros(3).contiguous()
    assert a.uop is not b.uop
    x = Tensor([1, 2])
    assert x.clone().uop is not x.clone().uop


def test_requiring_a_gradient_later_separates_equal_constants() -> None:
    weights = [Tensor.ones(3) for _ in range(2)]
    for w in weights:
        w.requires_grad = True
    (weights[0] * weights[1] * 5).sum().backward()
    assert evaluate(weights[0].grad.uop).tolist() == [5, 5, 5]


# ---- nodes of operations ----


def test_python_numbers_are_not_expanded() -> None:
    x = Tensor([[1.0, 2.0]])
    for y in (x + 1, 2 * x, x - 0.5, x / 3, x**2, x < 1, (x > 0).where(x, 0)):
        assert Ops.EXPAND not in ops(y)


def test_operands_are_broadcast_by_movement_ops() -> None:
    y = Tensor([[1.0], [2.0]]) * Tensor([3.0, 4.0, 5.0])
    assert y.uop.op is Ops.MUL
    assert {x.op for x in y.uop.src} == {Ops.EXPAND}
    assert {x.shape for x in y.uop.src} == {(2, 3)}


def test_matmul_is_a_product_and_a_sum_in_float32() -> None:
    y = Tensor.empty(3, 4, dtype=dtypes.float16) @ Tensor.empty(4, 5, dtype=dtypes.float16)
    assert y.dtype == dtypes.float16
    reduces = [n for n in y.uop.toposort() if n.op is Ops.REDUCE_AXIS]
    assert [(n.dtype, n.src[0].op) for n in reduces] == [(dtypes.float32, Ops.MUL)]


def test_overlapping_windows_are_one_op_and_others_are_a_reshape() -> None:
    x = Tensor.empty(1, 9)
    assert ops(x.unfold(1, 3, 1)).count(Ops.WINDOW) == 1
    assert Ops.WINDOW not in ops(x.unfold(1, 3, 3))


def test_index_by_tensor_is_one_gather() -> None:
    x = Tensor.empty(5, 4, 3)
    y = x[Tensor([0, 1]), :, Tensor([0, 2])]
    assert y.shape == (2, 4)
    assert ops(y).count(Ops.GATHER) == 1
    assert Ops.REDUCE_AXIS not in ops(y)


def test_a_no_op_adds_no_node() -> None:
    x = Tensor.empty(2, 3)
    same = [x.reshape(2, 3), x.permute(0, 1), x.expand(2, 3), x.shrink((None, None)), x[:]]
    same += [x.cast(dtypes.float32), x.pad((0, 0)), x.to(x.device), x.transpose(0, 0)]
    assert {y.uop for y in same} == {x.uop}


# ---- gradients ----


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(True, None, True), (None, False, None), (False, False, False), (False, True, True)],
)
def test_a_result_needs_a_gradient_if_an_operand_does(
    first: Any, second: Any, expected: Any
) -> None:
    a = Tensor([1.0], requires_grad=first)
    b = Tensor([1.0], requires_grad=second)
    assert (a + b).requires_grad is expected
    assert (a < b).requires_grad is False
    assert a.detach().requires_grad is False


def test_backward_adds_to_gradients() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    for count in (1, 2):
        (x * 3).sum().backward()
        assert evaluate(x.grad.uop).tolist() == [3 * count] * 2


def test_backward_of_several_elements_needs_an_incoming_gradient() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match=r"shape \(2,\) needs the upstream gradient, gradient="):
        (x * 3).backward()
    (x * 3).backward(Tensor([1.0, 10.0]))
    assert evaluate(x.grad.uop).tolist() == [3, 30]


def test_gradient_by_a_tensor_that_the_result_does_not_depend_on() -> None:
    x, y = Tensor([1.0]), Tensor([1.0])
    with pytest.raises(RuntimeError, match="does not depend on target 1"):
        x.sum().gradient(x, y)
    found = x.sum().gradient(x, y, materialize_grads=True)
    assert evaluate(found[1].uop).tolist() == [0]


def test_second_derivatives() -> None:
    x = Tensor([2.0])
    first = (x * x * x).sum().gradient(x)[0]
    assert evaluate(first.sum().gradient(x)[0].uop).tolist() == [12]


# ---- symbolic sizes ----


def test_sizes_may_be_variables() -> None:
    n = Variable("n", 1, 8).bind(3)
    x = Tensor.empty(8, 4)[:n]
    assert x.shape == (n, 4)
    assert (x + 1).sum(1).shape == (n,)
    assert x.reshape(n, 2, 2).shape == (n, 2, 2)
    assert x.transpose(0, 1).shape == (4, n)
    assert (Tensor.from_uop(n) + 1).dtype == dtypes.int32
    assert Tensor.arange(n).shape == (n,)


def test_a_variable_may_be_an_index() -> None:
    position = Variable("position", 0, 7).bind(5)
    x = Tensor.empty(8, 4)
    assert x[position].shape == (4,)
    assert x[position : position + 1].shape == (1, 4)


# ---- devices ----


def test_shard_takes_tuples_layouts_and_meshes() -> None:
    x = Tensor.empty(4, 6)
    assert x.shard(TWO, 0).device == Sharding(TWO, 0)
    assert x.shard(TWO, -1).device == Sharding(TWO, 1)
    assert x.shard(TWO).device == Sharding(TWO)
    assert x.shard(Sharding(TWO, 1)).device == Sharding(TWO, 1)
    mesh = Mesh((2,), ("dp",), TWO)
    assert x.shard(mesh, P(None, "dp")).device == Sharding(TWO, 1)
    y = Tensor.empty(6, 4)
    assert y.shard_like(x.shard(TWO, 0)).device == Sharding(TWO, 0)
    assert x.to(TWO).device == Sharding(TWO)


@pytest.mark.parametrize(
    ("devices", "axis", "message"),
    [
        (("CPU:1", "CPU:1"), 0, "more than once"),
        (TWO, 2, "no axis 2"),
        (TWO, -3, "no axis -3"),
        ("CPU:1", 0, "takes a tuple"),
        (Sharding(TWO, 0), 1, "has its axes already"),
    ],
)
def test_an_impossible_shard_is_an_error(devices: Any, axis: int, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        Tensor.empty(4, 6).shard(devices, axis)


def test_a_tensor_moves_with_its_gradient() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    x.sum().backward()
    assert x.to("CPU:1").grad.device == "CPU:1"
    x.shard_(TWO, 0)
    assert (x.device, x.grad.device) == (Sharding(TWO, 0), Sharding(TWO, 0))


def test_tensors_on_several_devices_do_not_combine_silently() -> None:
    with pytest.raises(ShardingError, match="CPU:1 and CPU:2"):
        Tensor([1], device="CPU:1") + Tensor([1], device="CPU:2")


def test_a_sharded_training_step_has_only_the_necessary_communication() -> None:
    x, w = Tensor.empty(8, 4).shard(TWO, 0), Tensor.empty(4, 4).shard(TWO)
    w.requires_grad = True
    y = (x @ w).relu()
    loss = y.sum()
    loss.backward()
    moved = [n for n in w.grad.uop.toposort() if n.op in {Ops.COPY, Ops.ALLREDUCE}]
    moved = [n for n in moved if n.src[0].device in {Sharding(TWO, 0), Sharding(TWO, PARTIAL)}]
    assert [n.op for n in moved] == [Ops.ALLREDUCE]


# ---- mistakes ----


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (lambda x: x.reshape(4, 4), ValueError, r"\(2, 3\) -> \(4, 4\): 6 elements are not 16"),
        (lambda x: x.reshape(-1, -1), RuntimeError, "only one size can be -1"),
        (lambda x: x.reshape(4, -1), ValueError, "6 elements do not divide by 4"),
        (lambda x: x.permute(0, 0), ValueError, "does not name each of the 2 axes once"),
        (lambda x: x.expand(4, 3), ValueError, "only axes of size 1 can be repeated"),
        (lambda x: x.shrink(((0, 3), None)), ValueError, "is not within an axis"),
        (lambda x: x.sum(5), IndexError, "no axis 5"),
        (lambda x: x.unsqueeze(5), IndexError, "no axis 5"),
        (lambda x: x.pad((1,)), ValueError, "comes in pairs"),
        (
            lambda x: x.pad((1, 1), mode="mirror"),
            NotImplementedError,
            "mode 'mirror' is not one of",
        ),
        (bool, TypeError, "truth value of a tensor is ambiguous"),
        (lambda x: x.item(), ValueError, "item"),
        (lambda x: x & 1, RuntimeError, "integers and bools"),
        (lambda x: x.assign(Tensor.ones(4)), ValueError, "does not broadcast"),
        (lambda x: x.to(3), TypeError, "device must be a name"),
        (lambda x: len(x.sum()), TypeError, "no len"),
        (lambda x: x.cast("float33"), TypeError, "'float33' is not a dtype"),
        (lambda x: x.scatter(0, Tensor([[0]]), x, reduce="max"), TypeError, "reduce='max'"),
    ],
)
def test_errors_name_the_mistake(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake(Tensor.empty(2, 3))


def test_numpy_reads_or_computes_every_movement_op() -> None:
    """`numpy()` of a view of memory applies movement ops on the host."""
    x = Tensor([[1, 2, 3], [4, 5, 6]]).realize()
    views = [x.T, x[:, 1:], x.flip(1), x.reshape(3, 2), x[0].expand(2, 3), x.pad((1, 0))]
    for view in views:
        assert view.numpy().tolist() == evaluate(view.uop).tolist()
    assert GroupOp.Movement >= {Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK}


def test_a_tensor_of_a_node_is_that_node() -> None:
    node = UOp.arange(3)
    assert Tensor(node).uop is node
