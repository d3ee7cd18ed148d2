"""Custom kernels on sharded tensors, with a rule that names their axes."""

from __future__ import annotations

import numpy as np
import pytest

from test.backend.codegen.custom_kernels import largest, matmul_gradient
from test.devices import device_names
from test.together import CommTrace
from tinygrad import Mesh, P, Tensor, TinyJit, UOp
from tinygrad.execution.realize import compiled_kernels
from tinygrad.nn.optim import SGD
from tinygrad.settings import Context
from tinygrad.sharding import Partial, Sharding, ShardingError
from tinygrad.sharding.placement_rule import check_rule, parse_rule, rule_layouts
from tinygrad.uop.ops import AxisType, KernelInfo, Ops

DEVICES = device_names(4)
RULE = "m k, k n -> m n"
M, K, N = 8, 16, 12
RNG = np.random.default_rng(0)
LEFT = RNG.standard_normal((M, K), dtype=np.float32)
RIGHT = RNG.standard_normal((K, N), dtype=np.float32)
# sums of 16 products in float32, and again in the gradient
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def matmul(c: UOp, a: UOp, b: UOp) -> UOp:
    i, j = UOp.range(c.shape[0], 0), UOp.range(c.shape[1], 1)
    k = UOp.range(a.shape[1], 2, axis_type=AxisType.REDUCE)
    product = (a[i, k] * b[k, j]).reduce(k, arg=Ops.ADD)
    return (
        c[i, j]
        .store(product)
        .end(i, j)
        .sink(arg=KernelInfo(name=f"matmul_{a.shape[0]}_{a.shape[1]}"))
    )


def matmul_once(c: UOp, a: UOp, b: UOp) -> UOp:
    return matmul(c, a, b).replace(arg=KernelInfo(name="matmul_once"))


def double(x: UOp) -> UOp:
    i, j = UOp.range(x.shape[0], 0), UOp.range(x.shape[1], 1)
    return x[i, j].store(x[i, j] * 2).end(i, j).sink()


def sum_and_rows(total: UOp, rows: UOp, x: UOp) -> UOp:
    i, j = UOp.range(x.shape[0], 0), UOp.range(x.shape[1], 1)
    k = UOp.range(x.shape[0], 2, axis_type=AxisType.REDUCE)
    columns = total[j].store(x[k, j].reduce(k, arg=Ops.ADD)).end(j)
    return UOp.group(columns, rows[i].store(x[i, 0]).end(i)).sink()


@pytest.mark.parametrize(
    ("left", "right", "result", "kinds"),
    [
        (None, None, None, {}),
        (0, None, 0, {}),
        (None, 1, 1, {}),
        # the reduction axis is sharded: partial sums of 8 * 12 floats, from each device to three
        # others
        (1, 0, None, {"all_reduce": 3 * 4 * M * N * 4}),
        # a replicated operand is sliced like the sharded one
        (1, None, None, {"all_reduce": 3 * 4 * M * N * 4}),
        # the smaller operand is resharded: gathering the right one would send more
        (0, 1, 1, {"all_gather": 3 * M * K * 4}),
    ],
)
def test_values_layouts_and_bytes_of_a_matmul(left, right, result, kinds):
    a, b = (
        Tensor(LEFT).shard(DEVICES, left).realize(),
        Tensor(RIGHT).shard(DEVICES, right).realize(),
    )
    with CommTrace() as trace:
        c = Tensor.custom_kernel(Tensor.empty(M, N), a, b, fxn=matmul, rule=RULE)[0].realize()
    assert c.device == Sharding(DEVICES, result)
    assert trace.kinds() == kinds
    np.testing.assert_allclose(c.numpy(), LEFT @ RIGHT, **CLOSE)


@pytest.mark.parametrize(("left", "right"), [(0, None), (1, 0), (0, 1), (None, 1)])
def test_gradients_of_a_matmul(left, right):
    a, b = Tensor(LEFT).shard(DEVICES, left), Tensor(RIGHT).shard(DEVICES, right)
    a.requires_grad = b.requires_grad = True
    inputs = Tensor.empty(M, N), a, b
    c = Tensor.custom_kernel(*inputs, fxn=matmul, grad_fxn=matmul_gradient, rule=RULE)[0]
    (c * c).sum().backward()
    twice = 2 * (LEFT @ RIGHT)
    np.testing.assert_allclose(a.grad.numpy(), twice @ RIGHT.T, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(b.grad.numpy(), LEFT.T @ twice, rtol=1e-4, atol=1e-3)
    assert a.grad.device == a.device
    assert b.grad.device == b.device


def losses_of_training(*, split: bool) -> list[float]:
    """Losses of a network of two matrices: the first column parallel, the second row parallel."""
    rng = np.random.default_rng(1)
    shapes = [(8, 16), (16, 4), (12, 8), (12, 4)]
    w1, w2, x, y = (Tensor(rng.standard_normal(s, dtype=np.float32)).realize() for s in shapes)
    if split:
        for tensor, axis in [(w1, 1), (w2, 0), (x, None), (y, None)]:
            tensor.shard_(DEVICES, axis)
    optimizer = SGD([w1, w2], lr=0.01)

    def linear(x: Tensor, w: Tensor) -> Tensor:
        inputs = Tensor.empty(x.shape[0], w.shape[1]), x, w
        return Tensor.custom_kernel(*inputs, fxn=matmul, grad_fxn=matmul_gradient, rule=RULE)[0]

    @TinyJit
    @Tensor.train()
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = ((linear(linear(x, w1).relu(), w2) - y) ** 2).mean().backward()
        optimizer.step()
        return loss.realize()

    return [step().item() for _ in range(4)]


@pytest.mark.slow
def test_training_on_sharded_weights_equals_training_on_one_device():
    on_one = losses_of_training(split=False)
    assert on_one[-1] < on_one[0]
    np.testing.assert_allclose(losses_of_training(split=True), on_one, rtol=1e-4)


def test_a_mesh_shards_rows_and_the_reduction_axis():
    mesh = Mesh((2, 2), ("rows", "reduction"), DEVICES)
    a, b = (
        Tensor(LEFT).shard(mesh, P("rows", "reduction")),
        Tensor(RIGHT).shard(mesh, P("reduction", None)),
    )
    c = Tensor.custom_kernel(Tensor.empty(M, N), a, b, fxn=matmul, rule=RULE)[0]
    assert c.device.split_axes == (0,)
    np.testing.assert_allclose(c.numpy(), LEFT @ RIGHT, **CLOSE)
    assert f"matmul_{M // 2}_{K // 2}" in compiled_kernels


def test_one_kernel_is_compiled_for_all_devices():
    a, b = Tensor(LEFT).shard(DEVICES, 0).realize(), Tensor(RIGHT).shard(DEVICES).realize()
    names = compiled_kernels.copy()
    compiled_kernels.clear()
    Tensor.custom_kernel(Tensor.empty(M, N), a, b, fxn=matmul_once, rule=RULE)[0].realize()
    assert list(compiled_kernels) == ["matmul_once"]
    compiled_kernels.extend(names)


def test_partial_outputs_are_reduced_with_the_given_op():
    x = Tensor(LEFT).shard(DEVICES, 1)
    y = Tensor.custom_kernel(Tensor.empty(M), x, fxn=largest, rule="m k -> m", reduce="max")[0]
    np.testing.assert_array_equal(y.numpy(), LEFT.max(1))


def test_an_axis_in_brackets_is_unsharded():
    x = Tensor(LEFT).shard(DEVICES, 1)
    y = Tensor.custom_kernel(Tensor.empty(M), x, fxn=largest, rule="m [k] -> m")[0]
    assert y.device == Sharding(DEVICES)
    np.testing.assert_array_equal(y.numpy(), LEFT.max(1))


@pytest.mark.parametrize("size", [K - 1, 5, 3])
def test_an_uneven_reduction_axis_is_unsharded(size: int) -> None:
    """The last block has padding, and a kernel reads whole blocks."""
    left, right = LEFT[:, :size], RIGHT[:size]
    a, b = Tensor(left).shard(DEVICES, 1), Tensor(right).shard(DEVICES, 0)
    c = Tensor.custom_kernel(Tensor.empty(M, N), a, b, fxn=matmul, rule=RULE)[0]
    np.testing.assert_allclose(c.numpy(), left @ right, **CLOSE)
    y = Tensor.custom_kernel(Tensor.empty(M), a, fxn=largest, rule="m k -> m", reduce="max")[0]
    np.testing.assert_array_equal(y.numpy(), left.max(1))


def test_in_place_on_each_device():
    x = Tensor(LEFT).shard(DEVICES, 0).realize()
    before = x + 0
    with CommTrace() as trace:
        y = Tensor.custom_kernel(x, fxn=double, rule="-> m k")[0].realize()
    assert trace.nbytes == 0
    np.testing.assert_array_equal(y.numpy(), 2 * LEFT)
    np.testing.assert_array_equal(x.numpy(), 2 * LEFT)
    np.testing.assert_array_equal(before.numpy(), LEFT)


def test_outputs_of_several_layouts():
    x = Tensor(LEFT).shard(DEVICES, 0)
    outputs = Tensor.empty(K), Tensor.empty(M)
    total, rows, _ = Tensor.custom_kernel(*outputs, x, fxn=sum_and_rows, rule="m k -> k, m")
    assert total.device == Sharding(DEVICES)
    assert rows.device == Sharding(DEVICES, 0)
    np.testing.assert_array_equal(rows.numpy(), LEFT[:, 0])
    np.testing.assert_allclose(total.numpy(), LEFT.sum(0), **CLOSE)


def test_a_kernel_without_inputs_writes_on_the_devices_of_its_outputs():
    def ones(y: UOp) -> UOp:
        i = UOp.range(y.shape[0], 0)
        return y[i].store(1.0).end(i).sink()

    y = Tensor.empty(8, device=Sharding(DEVICES, 0))
    result = Tensor.custom_kernel(y, fxn=ones, rule="-> m")[0]
    assert result.device == y.device == Sharding(DEVICES, 0)
    assert y.tolist() == [1.0] * 8


def test_a_rule_changes_nothing_on_one_device():
    c = Tensor.custom_kernel(Tensor.empty(M, N), Tensor(LEFT), Tensor(RIGHT), fxn=matmul, rule=RULE)
    np.testing.assert_allclose(c[0].numpy(), LEFT @ RIGHT, **CLOSE)


def test_strict_sharding_refuses_the_transfer():
    a, b = Tensor(LEFT).shard(DEVICES, 0), Tensor(RIGHT).shard(DEVICES, 1)
    with (
        Context(SHARDING="strict"),
        pytest.raises(ShardingError, match="custom_kernel would reshard"),
    ):
        Tensor.custom_kernel(Tensor.empty(M, N), a, b, fxn=matmul, rule=RULE)


# ---- the rule itself ----


def test_layouts_of_operands():
    rows, terms = Sharding(DEVICES, 0), Sharding(DEVICES, 1)
    shapes, nbytes = [(8, 4), (8, 16), (16, 4)], [128, 512, 256]
    rule = parse_rule(RULE)
    assert rule_layouts(rule, shapes, [None, rows, None], nbytes) == (
        rows,
        rows,
        Sharding(DEVICES),
    )
    assert rule_layouts(rule, shapes, [None, terms, None], nbytes, "MAX") == (
        Sharding(DEVICES, Partial("MAX")),
        terms,
        rows,
    )
    kept = parse_rule("m [k], k n -> m n")
    assert parse_rule("m -> ()").outputs == ((),)
    assert parse_rule("-> m").inputs == ()
    assert rule_layouts(kept, shapes, [None, terms, None], nbytes) == (Sharding(DEVICES),) * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m k", "has 0 arrows; write 'inputs -> outputs'"),
        ("m -> k -> n", "has 2 arrows"),
        ("m 4 -> m", "'4' is not the name of an axis; name axes by words"),
        ("m [k -> m", r"'\[k' is not the name of an axis"),
        ("m m -> m", "names the axis 'm' twice"),
        ("m,, k -> m", "nothing between two commas"),
    ],
)
def test_an_invalid_rule_is_refused(text, message):
    with pytest.raises(ShardingError, match=message):
        parse_rule(text)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(8, 4), (8, 16)], "has 1 outputs and 2 inputs for 2 tensors"),
        ([(8, 4), (8, 16, 1), (16, 4)], r"names 2 axes \(m k\) of tensor 1, .* shape \(8, 16, 1\)"),
        ([(8, 4), (8, 16), (15, 4)], "axis 'k' of the rule is 16 long and, in tensor 2"),
    ],
)
def test_tensors_that_do_not_fit_a_rule_are_refused(shapes, message):
    with pytest.raises(ShardingError, match=message):
        check_rule(parse_rule(RULE), shapes)


def test_errors_with_sharded_tensors_name_the_mistake():
    x = Tensor(LEFT).shard(DEVICES, 0)
    with pytest.raises(ShardingError, match="are sharded, .* name their axes by rule="):
        Tensor.custom_kernel(Tensor.empty(M), x, fxn=largest)
    with pytest.raises(ShardingError, match=r"writes the tensors \(0,\), but by the rule"):
        Tensor.custom_kernel(Tensor.empty(M), x, fxn=largest, rule="-> m, m k")
    with pytest.raises(ShardingError, match="reduce='mean' is not one of sum, prod, max"):
        Tensor.custom_kernel(Tensor.empty(M), x, fxn=largest, rule="m k -> m", reduce="mean")
