"""Convolution and pooling: against plain loops in numpy, and against torch if it is there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, dtypes
from tinygrad.mixin.winograd import IMAGE, RESULT, WEIGHT
from tinygrad.settings import Context
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, int], ...]


def array(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole_numbers(*shape: int, seed: int = 0, dtype: Any = np.int32) -> Array:
    return np.random.default_rng(seed).integers(-8, 8, shape).astype(dtype)


def close(actual: Tensor, expected: Any, tolerance: float = 2e-5) -> None:
    found = actual.numpy()
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=tolerance, atol=tolerance)


# ---- oracles ----


def places(*sizes: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(size) for size in sizes))


def loop_conv(
    x: Array,
    w: Array,
    groups: int = 1,
    stride: tuple[int, ...] = (1, 1),
    dilation: tuple[int, ...] = (1, 1),
    pairs: Pairs = ((0, 0), (0, 0)),
) -> Array:
    """One product at a time, in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pairs))
    kernel = w.shape[2:]
    sizes = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(padded.shape[2:], kernel, stride, dilation)
    ]
    result = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_group = w.shape[0] // groups
    for out, place, at in itertools.product(range(w.shape[0]), places(*sizes), places(*kernel)):
        first = out // per_group * w.shape[1]
        where = tuple(p * s + k * d for p, k, s, d in zip(place, at, stride, dilation))
        channels = padded[(slice(None), slice(first, first + w.shape[1]), *where)]
        result[(slice(None), out, *place)] += channels @ w[(out, slice(None), *at)]
    return result


def loop_conv_transpose(x: Array, w: Array, groups: int, stride: int, dilation: int) -> Array:
    """Each element spread over the places it reaches, without padding."""
    kernel = w.shape[2:]
    sizes = [(n - 1) * stride + dilation * (k - 1) + 1 for n, k in zip(x.shape[2:], kernel)]
    result = np.zeros((x.shape[0], w.shape[1] * groups, *sizes))
    per_group = x.shape[1] // groups
    for channel, place, at in itertools.product(
        range(x.shape[1]), places(*x.shape[2:]), places(*kernel)
    ):
        first = channel // per_group * w.shape[1]
        where = tuple(p * stride + k * dilation for p, k in zip(place, at))
        result[(slice(None), slice(first, first + w.shape[1]), *where)] += np.outer(
            x[(slice(None), channel, *place)], w[(channel, slice(None), *at)]
        )
    return result


def loop_pool(
    x: Array,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    choose: Callable[[Array], Any],
    dilation: tuple[int, ...] = (1, 1),
    pairs: Pairs = ((0, 0), (0, 0)),
    fill: float = 0.0,
) -> Array:
    """`choose` of each window of the last axes."""
    count = len(kernel)
    leading = x.shape[: x.ndim - count]
    padded = np.pad(x, (*((0, 0),) * len(leading), *pairs), constant_values=fill)
    sizes = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(padded.shape[-count:], kernel, stride, dilation)
    ]
    result = np.zeros((*leading, *sizes))
    for outer in places(*leading):
        for place in places(*sizes):
            window = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d)
                for p, s, k, d in zip(place, stride, kernel, dilation)
            )
            result[(*outer, *place)] = choose(padded[(*outer, *window)])
    return result


# ---- conv2d ----

CONV_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "one channel": {"x": (2, 1, 5, 5), "w": (3, 1, 3, 3)},
    "1x1 kernel": {"w": (5, 4, 1, 1)},
    "1x1 kernel with stride": {"w": (5, 4, 1, 1), "stride": 2},
    "even kernel": {"w": (5, 4, 2, 4)},
    "kernel as large as the input": {"w": (5, 4, 7, 6)},
    "stride": {"stride": 2},
    "strides": {"stride": (3, 2)},
    "stride as large as the kernel": {"w": (5, 4, 2, 2), "stride": 2},
    "stride larger than the kernel": {"w": (5, 4, 2, 2), "stride": 3},
    "dilation": {"dilation": 2},
    "dilations with stride": {"dilation": (2, 1), "stride": (1, 2)},
    "padding": {"padding": 1},
    "paddings": {"padding": (2, 1)},
    "padding of each side": {"padding": (1, 2, 3, 0)},
    "all together": {"stride": 2, "dilation": (1, 2), "padding": (2, 1, 0, 3)},
    "groups": {"x": (2, 6, 7, 6), "w": (4, 3, 3, 3), "groups": 2},
    "depthwise": {"x": (2, 4, 7, 6), "w": (8, 1, 3, 3), "groups": 4, "padding": 1},
    "one axis": {"x": (2, 4, 9), "w": (3, 4, 3), "stride": 2, "padding": 1},
    "one axis, each side": {"x": (2, 4, 9), "w": (3, 4, 3), "padding": (2, 0)},
    "three axes": {"x": (1, 2, 4, 5, 6), "w": (3, 2, 2, 3, 2), "stride": (1, 2, 1)},
    "three axes, each side": {
        "x": (1, 2, 3, 4, 5),
        "w": (3, 2, 2, 2, 2),
        "padding": (1, 0, 0, 2, 1, 1),
    },
}


def conv_case(name: str) -> tuple[Array, Array, dict[str, Any]]:
    options = dict(CONV_CASES[name])
    x = array(*options.pop("x", (2, 4, 7, 6)))
    return x, array(*options.pop("w", (5, 4, 3, 3)), seed=1), options


def in_full(options: dict[str, Any], count: int) -> dict[str, Any]:
    """The options of a case as one entry for each axis."""
    full: dict[str, Any] = {"groups": options.get("groups", 1)}
    for name in ("stride", "dilation"):
        value = options.get(name, 1)
        full[name] = (value,) * count if isinstance(value, int) else value
    padding = options.get("padding", 0)
    if isinstance(padding, int):
        padding = (padding,) * count
    if len(padding) == count:
        full["pairs"] = tuple((p, p) for p in padding)
    else:
        full["pairs"] = tuple(reversed(list(zip(padding[::2], padding[1::2]))))
    return full


@pytest.mark.parametrize("name", CONV_CASES)
def test_conv2d_equals_a_loop(name: str) -> None:
    x, w, options = conv_case(name)
    expected = loop_conv(x, w, **in_full(options, x.ndim - 2))
    close(Tensor(x).conv2d(Tensor(w), **options), expected)


@pytest.mark.parametrize("name", CONV_CASES)
def test_gradients_of_conv2d_equal_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    x, w, options = conv_case(name)
    full = in_full(options, x.ndim - 2)
    bias = array(w.shape[0], seed=2)
    ours = [Tensor(value, requires_grad=True) for value in (x, w, bias)]
    theirs = [torch.tensor(value, requires_grad=True) for value in (x, w, bias)]
    out = ours[0].conv2d(ours[1], ours[2], **options)
    padded = torch.nn.functional.pad(
        theirs[0], [p for pair in reversed(full.pop("pairs")) for p in pair]
    )
    function = getattr(torch.nn.functional, f"conv{x.ndim - 2}d")
    expected = function(padded, theirs[1], theirs[2], **full)
    weights = array(*expected.shape, seed=3)
    (expected * torch.tensor(weights)).sum().backward()
    for ours_, theirs_ in zip((out * Tensor(weights)).sum().gradient(*ours), theirs):
        close(ours_, theirs_.grad)
    # last, since what is computed forgets what it was computed from
    close(out, expected.detach())


def test_a_bias_is_added_to_each_channel() -> None:
    x, w, bias = array(2, 3, 5, 5), array(4, 3, 3, 3, seed=1), array(4, seed=2)
    expected = loop_conv(x, w) + bias.reshape(1, 4, 1, 1)
    close(Tensor(x).conv2d(Tensor(w), Tensor(bias)), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_conv2d_of_integers_is_exact_and_keeps_the_dtype(dtype: Any) -> None:
    x = np.abs(whole_numbers(1, 2, 4, 4)).astype(dtype)
    w = np.abs(whole_numbers(1, 2, 2, 2, seed=1) % 3).astype(dtype)
    out = Tensor(x).conv2d(Tensor(w))
    assert out.dtype is Tensor(x).dtype
    np.testing.assert_array_equal(out.numpy(), loop_conv(x, w).astype(dtype))


def test_half_precision_is_accumulated_in_float() -> None:
    x = np.full((1, 1, 1, 4096), 1, np.float16)
    w = np.full((1, 1, 1, 4096), 1, np.float16)
    w[..., 0] = 2048
    out = Tensor(x).conv2d(Tensor(w))
    assert out.dtype is dtypes.half
    # added one after the other in half precision, it would stay at 2048
    assert out.numpy().item() == np.float16(2048 + 4095)


def test_a_given_dtype_is_that_of_the_result() -> None:
    x = np.full((1, 1, 2, 2), 100, np.int8)
    out = Tensor(x).conv2d(Tensor(x), dtype=dtypes.int32)
    assert out.dtype is dtypes.int32
    assert out.numpy().item() == 40000


def test_dtypes_promote() -> None:
    out = Tensor(whole_numbers(1, 1, 3, 3)).conv2d(Tensor(array(1, 1, 2, 2)))
    assert out.dtype is dtypes.float


# ---- conv_transpose2d ----

TRANSPOSE_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stride": {"stride": 2},
    "stride as large as the kernel": {"w": (4, 5, 2, 2), "stride": 2},
    "stride larger than the kernel": {"w": (4, 5, 2, 2), "stride": 3, "output_padding": 2},
    "strides": {"stride": (3, 2), "w": (4, 5, 4, 3)},
    "padding": {"padding": 1},
    "padding with stride": {"padding": (1, 2), "stride": 2},
    "output padding": {"stride": 2, "output_padding": 1, "padding": 1},
    "dilation": {"dilation": 2},
    "dilation with stride": {"dilation": (2, 3), "stride": (2, 2), "padding": 1},
    "dilation of one axis": {"dilation": (2, 1), "stride": (3, 2), "output_padding": (2, 0)},
    "groups": {"w": (4, 3, 3, 3), "groups": 2, "stride": 2},
    "one axis": {"x": (2, 4, 5), "w": (4, 3, 4), "stride": 3},
    "three axes": {"x": (1, 2, 3, 2, 3), "w": (2, 3, 2, 3, 2), "stride": 2},
}


@pytest.mark.parametrize("name", TRANSPOSE_CASES)
def test_conv_transpose2d_and_its_gradients_equal_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    options = dict(TRANSPOSE_CASES[name])
    x = array(*options.pop("x", (2, 4, 5, 4)))
    w = array(*options.pop("w", (4, 5, 3, 3)), seed=1)
    bias = array(w.shape[1] * options.get("groups", 1), seed=2)
    ours = [Tensor(value, requires_grad=True) for value in (x, w, bias)]
    theirs = [torch.tensor(value, requires_grad=True) for value in (x, w, bias)]
    function = getattr(torch.nn.functional, f"conv_transpose{x.ndim - 2}d")
    out, expected = ours[0].conv_transpose2d(*ours[1:], **options), function(*theirs, **options)
    weights = array(*expected.shape, seed=3)
    (expected * torch.tensor(weights)).sum().backward()
    for ours_, theirs_ in zip((out * Tensor(weights)).sum().gradient(*ours), theirs):
        close(ours_, theirs_.grad)
    # last, since what is computed forgets what it was computed from
    close(out, expected.detach())


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose2d_equals_a_loop(stride: int, dilation: int, groups: int) -> None:
    x, w = array(2, 4, 3, 4), array(4, 3, 3, 2, seed=1)
    out = Tensor(x).conv_transpose2d(Tensor(w), None, groups, stride, dilation)
    close(out, loop_conv_transpose(x, w, groups, stride, dilation))


def test_padding_of_each_side_cuts_the_transpose() -> None:
    x, w = array(1, 2, 4, 4), array(2, 3, 3, 3, seed=1)
    out = Tensor(x).conv_transpose2d(Tensor(w), stride=2, padding=(1, 2, 3, 0))
    close(out, loop_conv_transpose(x, w, 1, 2, 1)[:, :, 3:, 1:-2])


def test_conv_transpose2d_is_the_adjoint_of_conv2d() -> None:
    x, w = array(2, 4, 9, 9), array(6, 4, 3, 3, seed=1)
    y = Tensor(x).conv2d(Tensor(w), stride=2, padding=1)
    g = array(*y.shape, seed=2)
    back = Tensor(g).conv_transpose2d(Tensor(w), stride=2, padding=1)
    left = float((y.numpy().astype(np.float64) * g).sum())
    right = float((back.numpy().astype(np.float64) * x).sum())
    assert left == pytest.approx(right, rel=1e-4)


# ---- the form of the graph ----


def nodes(tensor: Tensor, op: Ops) -> list[UOp]:
    return [node for node in tensor.uop.toposort() if node.op is op]


def test_padding_is_directly_above_the_stored_input() -> None:
    x = Tensor.empty(2, 4, 7, 7)
    (pad,) = nodes(x.conv2d(Tensor.empty(8, 4, 3, 3), padding=1), Ops.PAD)
    assert pad.src[0] is x.uop


def test_the_gradient_by_the_input_is_movement_above_one_product() -> None:
    x = Tensor.empty(2, 4, 7, 7, requires_grad=True)
    out = x.conv2d(Tensor.empty(8, 4, 3, 3), padding=1)
    (gradient,) = out.sum().gradient(x)
    chain = [gradient.uop]
    while chain[-1].op in GroupOp.Movement | {Ops.REDUCE_AXIS, Ops.CAST}:
        chain.append(chain[-1].src[0])
    assert chain[-1].op is Ops.MUL
    ops = [node.op for node in chain if node.op in {Ops.REDUCE_AXIS, Ops.UNWINDOW, Ops.PAD}]
    # of the sum over the kernel, of the windows put back, of the sum over output channels
    assert ops == [Ops.REDUCE_AXIS, Ops.UNWINDOW, Ops.REDUCE_AXIS]


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 3}])
def test_windows_that_do_not_overlap_are_a_reshape(options: dict[str, int]) -> None:
    x = Tensor.empty(1, 1, 6, 6, requires_grad=True)
    for pooled in (x.max_pool2d(2, **options), x.avg_pool2d(2, **options)):
        assert not nodes(pooled, Ops.WINDOW)
        assert not nodes(pooled.sum().gradient(x)[0], Ops.UNWINDOW)


# ---- pooling ----

POOL_CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlapping": {"kernel_size": 3, "stride": 2},
    "stride 1": {"kernel_size": (3, 2), "stride": 1},
    "gaps": {"kernel_size": 2, "stride": 3},
    "padding": {"kernel_size": 3, "padding": 1},
    "padding, overlapping": {"kernel_size": (3, 4), "stride": (1, 2), "padding": (1, 2)},
    "ceil": {"kernel_size": 2, "ceil_mode": True},
    "ceil, overlapping": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "ceil, padding": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    "ceil, gaps": {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
    "one axis": {"kernel_size": (3,), "stride": 2, "padding": 1},
    "three axes": {"kernel_size": (2, 3, 2), "stride": (2, 1, 2), "ceil_mode": True},
}
SHAPES = {"one axis": (2, 3, 9), "three axes": (1, 2, 5, 6, 5)}


def torch_pool(kind: str, x: Any, options: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    kernel = options["kernel_size"]
    count = 2 if isinstance(kernel, int) else len(kernel)
    return getattr(torch.nn.functional, f"{kind}_pool{count}d")(x, **options)


def check_pool_against_torch(kind: str, name: str, **more: Any) -> None:
    torch = pytest.importorskip("torch")
    options = {"kernel_size": 2} | POOL_CASES[name] | more
    x = array(*SHAPES.get(name, (2, 3, 8, 7)))
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    out = getattr(ours, f"{kind}_pool2d")(**options)
    expected = torch_pool(kind, theirs, options)
    weights = array(*expected.shape, seed=1)
    (expected * torch.tensor(weights)).sum().backward()
    (gradient,) = (out * Tensor(weights)).sum().gradient(ours)
    close(gradient, theirs.grad)
    close(out, expected.detach())


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("name", POOL_CASES)
def test_avg_pool2d_and_its_gradient_equal_torch(name: str, count_include_pad: bool) -> None:
    check_pool_against_torch("avg", name, count_include_pad=count_include_pad)


@pytest.mark.parametrize("name", POOL_CASES)
def test_max_pool2d_and_its_gradient_equal_torch(name: str) -> None:
    check_pool_against_torch("max", name)


@pytest.mark.parametrize("dilation", [2, (1, 3)])
def test_max_pool2d_with_dilation_equals_torch(dilation: Any) -> None:
    check_pool_against_torch("max", "overlapping", dilation=dilation)


@pytest.mark.parametrize("kernel", [(2, 3), (3, 2)])
@pytest.mark.parametrize("stride", [(1, 2), (3, 3)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 2)])
def test_pooling_equals_a_loop(
    kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> None:
    x, pairs = array(1, 2, 6, 7), ((0, 1), (1, 0))
    options: dict[str, Any] = {
        "kernel_size": kernel,
        "stride": stride,
        "dilation": dilation,
        "padding": (1, 0, 0, 1),
    }
    mean = loop_pool(x, kernel, stride, np.mean, dilation, pairs)
    counted = loop_pool(x, kernel, stride, np.nanmean, dilation, pairs, np.nan)
    largest = loop_pool(x, kernel, stride, np.max, dilation, pairs, -np.inf)
    close(Tensor(x).avg_pool2d(**options), mean)
    close(Tensor(x).max_pool2d(**options), largest)
    assert not np.isnan(counted).any()
    close(Tensor(x).avg_pool2d(**options, count_include_pad=False), counted)


def test_pooling_needs_no_batch_axes() -> None:
    x = array(4, 6)
    close(Tensor(x).max_pool2d(2), loop_pool(x, (2, 2), (2, 2), np.max))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float16])
def test_max_pool2d_pads_with_the_least_value(dtype: Any) -> None:
    x = np.full((1, 1, 2, 2), 0 if dtype is np.uint8 else -5, dtype)
    out = Tensor(x).max_pool2d(2, padding=1)
    assert out.dtype is Tensor(x).dtype
    np.testing.assert_array_equal(out.numpy(), x)


def test_equal_largest_elements_share_the_gradient() -> None:
    x = Tensor(np.ones((1, 1, 2, 2), np.float32), requires_grad=True)
    (gradient,) = x.max_pool2d(2).sum().gradient(x)
    np.testing.assert_array_equal(gradient.numpy(), np.full((1, 1, 2, 2), 0.25, np.float32))


def test_avg_pool2d_of_integers_is_a_float() -> None:
    out = Tensor(whole_numbers(1, 1, 4, 4)).avg_pool2d(2)
    assert out.dtype is dtypes.float
    close(out, loop_pool(whole_numbers(1, 1, 4, 4), (2, 2), (2, 2), np.mean))


def test_avg_pool2d_of_half_does_not_overflow() -> None:
    out = Tensor(np.full((1, 1, 8, 8), 60000, np.float16)).avg_pool2d(8)
    assert out.dtype is dtypes.half
    assert out.numpy().item() == np.float16(60000)


# ---- indices ----


@pytest.mark.parametrize("name", POOL_CASES)
def test_indices_of_max_pool2d_equal_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    options = {"kernel_size": 2} | POOL_CASES[name] | {"return_indices": True}
    x = array(*SHAPES.get(name, (2, 3, 8, 7)))
    values, indices = Tensor(x).max_pool2d(**options)
    expected_values, expected_indices = torch_pool("max", torch.tensor(x), options)
    close(values, expected_values)
    np.testing.assert_array_equal(indices.numpy(), expected_indices.numpy())


def test_the_first_of_equal_elements_is_named() -> None:
    _, indices = Tensor(np.zeros((1, 1, 4, 4), np.float32)).max_pool2d(2, return_indices=True)
    np.testing.assert_array_equal(indices.numpy(), [[[[0, 2], [8, 10]]]])


@pytest.mark.parametrize(
    ("options", "output_size"),
    [
        ({"kernel_size": 2}, None),
        ({"kernel_size": 2}, (9, 8)),
        ({"kernel_size": 2}, (2, 3, 9, 8)),
        ({"kernel_size": (3, 2), "stride": (3, 1)}, None),
        ({"kernel_size": 3, "stride": 3, "padding": 1}, (8, 8)),
    ],
)
def test_max_unpool2d_undoes_max_pool2d(options: dict[str, Any], output_size: Any) -> None:
    torch = pytest.importorskip("torch")
    x = array(2, 3, 8, 8)
    pooled = Tensor(x).max_pool2d(**options, return_indices=True)
    theirs = torch_pool("max", torch.tensor(x), options | {"return_indices": True})
    expected = torch.nn.functional.max_unpool2d(*theirs, **options, output_size=output_size)
    close(pooled[0].max_unpool2d(pooled[1], **options, output_size=output_size), expected)


def test_elements_that_meet_count_once() -> None:
    x = np.zeros((1, 1, 3, 3), np.float32)
    x[0, 0, 1, 1] = 7
    values, indices = Tensor(x).max_pool2d(2, stride=1, return_indices=True)
    np.testing.assert_array_equal(values.max_unpool2d(indices, 2, stride=1).numpy(), x)


def test_gradient_of_max_unpool2d() -> None:
    values, weights = array(1, 2, 2, 2), array(1, 2, 4, 4, seed=1)
    indices = np.array([0, 3, 8, 10, 5, 2, 13, 15], np.int32).reshape(1, 2, 2, 2)
    x = Tensor(values, requires_grad=True)
    (gradient,) = (x.max_unpool2d(Tensor(indices)) * Tensor(weights)).sum().gradient(x)
    flat = np.take_along_axis(weights.reshape(2, 16), indices.reshape(2, 4), 1)
    close(gradient, flat.reshape(1, 2, 2, 2))


# ---- Winograd ----


def test_the_matrices_make_a_convolution() -> None:
    image, weight, result = (np.array(m).astype(np.float64) for m in (IMAGE, WEIGHT, RESULT))
    d, g = array(6, 6, dtype=np.float64), array(3, 3, seed=1, dtype=np.float64)
    tile = result @ ((image @ d @ image.T) * (weight @ g @ weight.T)) @ result.T
    np.testing.assert_allclose(tile, loop_conv(d[None, None], g[None, None])[0, 0], atol=1e-12)


WINOGRAD_CASES: dict[str, dict[str, Any]] = {
    "one tile": {"x": (1, 2, 6, 6), "w": (3, 2, 3, 3)},
    "part of a tile": {"x": (1, 2, 4, 5), "w": (3, 2, 3, 3)},
    "padding": {"x": (2, 3, 9, 10), "w": (4, 3, 3, 3), "padding": 1},
    "padding of each side": {"x": (1, 3, 5, 6), "w": (2, 3, 3, 3), "padding": (0, 2, 1, 3)},
    "groups": {"x": (2, 4, 8, 8), "w": (6, 2, 3, 3), "groups": 2, "padding": 1},
}


@pytest.mark.parametrize("name", WINOGRAD_CASES)
def test_winograd_and_its_gradients_equal_the_direct_form(name: str) -> None:
    options = dict(WINOGRAD_CASES[name])
    x, w = array(*options.pop("x")), array(*options.pop("w"), seed=1)
    results = []
    for wino in (0, 1):
        inputs = [Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)]
        with Context(WINO=wino):
            out = inputs[0].conv2d(inputs[1], **options)
        weights = Tensor(array(*out.shape, seed=2))
        results.append([out, *(out * weights).sum().gradient(*inputs)])
    for direct, fast in zip(*results):
        close(fast, direct.numpy(), 2e-4)


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"dilation": 2}, {"dtype": dtypes.int32}], ids=str
)
def test_winograd_is_for_plain_windows_of_floats(options: dict[str, Any]) -> None:
    x, w = Tensor(whole_numbers(1, 1, 8, 8)), Tensor(whole_numbers(1, 1, 3, 3, seed=1))
    direct = x.conv2d(w, **options)
    with Context(WINO=1):
        assert x.conv2d(w, **options).uop is direct.uop


def test_winograd_of_half_precision_is_accurate() -> None:
    x, w = array(1, 8, 8, 8, dtype=np.float16), array(4, 8, 3, 3, seed=1, dtype=np.float16)
    with Context(WINO=1):
        out = Tensor(x).conv2d(Tensor(w))
    assert out.dtype is dtypes.half
    close(out, loop_conv(x, w), 4e-3)


# ---- errors ----


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.conv2d(Tensor.empty(4, 5, 3, 3)), r"\(1, 3, 8, 8\) has 3.*\(4, 5, 3, 3\).*5"),
        (lambda x: x.conv2d(Tensor.empty(4, 3, 3)), r"\(1, 3, 8, 8\).*\(4, 3, 3\).*spatial"),
        (lambda x: x.conv2d(Tensor.empty(4, 1, 3, 3), groups=3), r"groups=3.*\(4, 1, 3, 3\)"),
        (lambda x: x.conv2d(Tensor.empty(4, 3, 9, 9)), r"\(9, 9\), more than.*\(1, 3, 8, 8\)"),
        (lambda x: x.conv2d(Tensor.empty(4, 3, 3, 3), padding=(1, 1, 1)), r"3 numbers for 2"),
        (lambda x: x.conv2d(Tensor.empty(4, 3, 3, 3), stride=0), r"stride=0.*at least 1"),
        (lambda x: x.conv2d(Tensor.empty(4, 3, 3, 3), dilation=(1, 1, 1)), r"dilation.*2 numbers"),
        (lambda x: x.conv_transpose2d(Tensor.empty(4, 3, 3, 3)), r"3 channels.*\(4, 3, 3, 3\)"),
        (lambda x: x.conv_transpose2d(Tensor.empty(3, 3, 2, 2), padding=9), r"leaves nothing"),
        (lambda x: x.max_pool2d(9), r"max_pool2d.*\(9, 9\).*\(8, 8\)"),
        (lambda x: x.avg_pool2d((2,) * 5), r"5 axes.*\(1, 3, 8, 8\)"),
        (lambda x: x.max_pool2d(2, stride=(1, 2, 3)), r"stride.*2 numbers"),
        (lambda x: x.max_unpool2d(Tensor.empty(1, 3, 4, 4)), r"\(1, 3, 4, 4\).*\(1, 3, 8, 8\)"),
    ],
)
def test_an_error_names_what_does_not_fit(call: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Tensor.empty(1, 3, 8, 8))
