"""Convolution, transposed convolution and the Winograd algorithm against an oracle in numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from test.backend.ops.conv_oracle import (
    Array,
    Windows,
    array,
    close,
    conv,
    conv_gradients,
    conv_transpose,
    conv_transpose_gradients,
    in_full,
    integers,
    pairs_of,
)
from tinygrad import Tensor, dtypes
from tinygrad.mixin.nn.winograd import IMAGE, RESULT, WEIGHT
from tinygrad.schedule.grouping.rewrite import phases
from tinygrad.settings import Context
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.ops import UOp


def assert_equals_oracle(
    function: Callable[..., Tensor],
    inputs: tuple[Array, ...],
    expected: Array,
    gradients: Callable[[Array], tuple[Array, ...]],
) -> None:
    """A function has the expected value, and the gradients that the oracle has of the one above."""
    tensors = [Tensor(value, requires_grad=True) for value in inputs]
    out = function(*tensors)
    above = array(*expected.shape, seed=3)
    found = (out * Tensor(above)).sum().gradient(*tensors)
    for actual, wanted in zip(found, gradients(above), strict=True):
        close(actual, wanted)
    # last, since realized tensors forget their graph
    close(out, expected)


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


def conv_windows(x: Array, w: Array, options: dict[str, Any]) -> tuple[Windows, int]:
    options = dict(options)
    groups = options.pop("groups", 1)
    return Windows(x.shape[2:], w.shape[2:], **options), groups


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", CONV_CASES)
def test_conv2d_and_its_gradients_equal_the_oracle(name: str) -> None:
    x, w, options = conv_case(name)
    windows, groups = conv_windows(x, w, options)
    bias = array(w.shape[0], seed=2)
    expected = conv(x, w, windows, groups) + bias.reshape(-1, *(1,) * (x.ndim - 2))

    def gradients(above: Array) -> tuple[Array, ...]:
        of_bias = above.sum((0, *range(2, x.ndim)))
        return *conv_gradients(x, w, windows, above, groups), of_bias

    assert_equals_oracle(partial(Tensor.conv2d, **options), (x, w, bias), expected, gradients)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [name for name, x in CONV_CASES.items() if "stride" in x])
def test_gradients_of_strided_convolutions_are_split_into_phases(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(phases, "MIN_ELEMENTS", 0)
    x, w, options = conv_case(name)
    windows, groups = conv_windows(x, w, options)
    # another dtype than elsewhere, so that no plan is cached
    x, w = x.astype(np.float64), w.astype(np.float64)
    a = Tensor(x).realize()
    y = a.conv2d(Tensor(w).realize(), **options)
    above = array(*y.shape, seed=2, dtype=np.float64)
    by_input = y.gradient(a, gradient=Tensor(above).realize())[0]
    kernels = len(by_input.contiguous().schedule())
    # without phases there is a kernel for the products, and one that writes zeros between them
    assert (kernels > 2) == has_phases(w.shape[2:], options)
    close(by_input, conv_gradients(x, w, windows, above, groups)[0], 1e-12)


def has_phases(kernel: tuple[int, ...], options: dict[str, Any]) -> bool:
    """Whether the windows overlap and have a stride."""
    strides = in_full(options["stride"], len(kernel))
    dilations = in_full(options.get("dilation", 1), len(kernel))
    pairs = zip(kernel, strides, dilations, strict=True)
    return any(k > s > 1 and d == 1 for k, s, d in pairs)


@pytest.mark.sample(3)
@pytest.mark.parametrize("wino", [0, 1])
@pytest.mark.parametrize("name", ["plain", "stride", "padding of each side", "groups", "one axis"])
def test_second_order_gradients_of_conv2d(name: str, wino: int) -> None:
    x, w, options = conv_case(name)
    windows, groups = conv_windows(x, w, options)
    direction = array(*x.shape, seed=5)
    ours = [Tensor(value, requires_grad=True) for value in (x, w)]
    with Context(WINO=wino):
        (first,) = ours[0].conv2d(ours[1], **options).square().sum().mul(0.5).gradient(ours[0])
    found = (first * Tensor(direction)).sum().gradient(*ours)
    # with y = conv(x) and e = conv(direction), the sum above is that of y * e
    y, e = conv(x, w, windows, groups), conv(direction, w, windows, groups)
    by_x, first_by_w = conv_gradients(x, w, windows, e, groups)
    second_by_w = conv_gradients(direction, w, windows, y, groups)[1]
    close(found[0], by_x, 1e-4)
    close(found[1], first_by_w + second_by_w, 1e-4)


@pytest.mark.slow
def test_the_oracle_of_convolution_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in CONV_CASES:
        x, w, options = conv_case(name)
        windows, groups = conv_windows(x, w, options)
        pairs = pairs_of(options.pop("padding", 0), x.ndim - 2)
        theirs = [torch.tensor(value, requires_grad=True) for value in (x, w)]
        padded = torch.nn.functional.pad(theirs[0], [p for pair in pairs[::-1] for p in pair])
        function = getattr(torch.nn.functional, f"conv{x.ndim - 2}d")
        expected = function(padded, theirs[1], **options)
        above = array(*expected.shape, seed=3)
        (expected * torch.tensor(above)).sum().backward()
        results = (conv(x, w, windows, groups), *conv_gradients(x, w, windows, above, groups))
        wanted = (expected.detach(), *(value.grad for value in theirs))
        for mine, other in zip(results, wanted, strict=True):
            np.testing.assert_allclose(mine, other.numpy(), 2e-5, 2e-5, err_msg=name)


def test_an_empty_batch_gives_an_empty_batch() -> None:
    x, w = Tensor.empty(0, 3, 8, 8, requires_grad=True), Tensor.ones(4, 3, 3, 3)
    w.requires_grad = True
    out = x.conv2d(w, padding=1)
    by_x, by_w = out.sum().gradient(x, w)
    assert out.numpy().shape == (0, 4, 8, 8)
    assert by_x.numpy().shape == (0, 3, 8, 8)
    assert (by_w.numpy() == np.zeros((4, 3, 3, 3))).all()
    with Context(WINO=1):
        assert x.conv2d(w).numpy().shape == (0, 4, 6, 6)
    assert x.conv_transpose2d(Tensor.ones(3, 4, 2, 2), stride=2).numpy().shape == (0, 4, 16, 16)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_conv2d_of_integers_is_exact_and_keeps_the_dtype(dtype: Any) -> None:
    x = np.abs(integers(1, 2, 4, 4)).astype(dtype)
    w = np.abs(integers(1, 2, 2, 2, seed=1) % 3).astype(dtype)
    out = Tensor(x).conv2d(Tensor(w))
    assert out.dtype is Tensor(x).dtype
    np.testing.assert_array_equal(out.numpy(), conv(x, w, Windows((4, 4), (2, 2))).astype(dtype))


def test_half_precision_is_accumulated_in_float() -> None:
    x = np.full((1, 1, 1, 4096), 1, np.float16)
    w = np.full((1, 1, 1, 4096), 1, np.float16)
    w[..., 0] = 2048
    out = Tensor(x).conv2d(Tensor(w))
    assert out.dtype is dtypes.half
    # accumulated in half precision, the sum would stay at 2048
    assert out.numpy().item() == np.float16(2048 + 4095)


def test_an_explicit_dtype_is_that_of_the_result() -> None:
    x = np.full((1, 1, 2, 2), 100, np.int8)
    out = Tensor(x).conv2d(Tensor(x), dtype=dtypes.int32)
    assert out.dtype is dtypes.int32
    assert out.numpy().item() == 40000


def test_dtypes_promote() -> None:
    out = Tensor(integers(1, 1, 3, 3)).conv2d(Tensor(array(1, 1, 2, 2)))
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
    "padding of each side": {"stride": 2, "padding": (1, 2, 3, 0)},
    "output padding of a stride": {"stride": 2, "output_padding": 3},
    "groups with dilation": {"w": (4, 1, 3, 2), "groups": 4, "dilation": 2, "stride": (3, 1)},
    "three axes": {"x": (1, 2, 3, 2, 3), "w": (2, 3, 2, 3, 2), "stride": 2},
}


def transpose_case(name: str) -> tuple[Array, Array, dict[str, Any]]:
    options = dict(TRANSPOSE_CASES[name])
    x = array(*options.pop("x", (2, 4, 5, 4)))
    return x, array(*options.pop("w", (4, 5, 3, 3)), seed=1), options


def transpose_windows(x: Array, w: Array, options: dict[str, Any]) -> tuple[Windows, int]:
    options = dict(options)
    groups, extra = options.pop("groups", 1), options.pop("output_padding", 0)
    count = x.ndim - 2
    stride, dilation = (in_full(options.get(key, 1), count) for key in ("stride", "dilation"))
    pairs = pairs_of(options.get("padding", 0), count)
    sizes = [
        (i - 1) * s - sum(pair) + d * (k - 1) + 1 + e
        for i, s, pair, d, k, e in zip(
            x.shape[2:], stride, pairs, dilation, w.shape[2:], in_full(extra, count), strict=True
        )
    ]
    return Windows(tuple(sizes), w.shape[2:], **options), groups


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TRANSPOSE_CASES)
def test_conv_transpose2d_and_its_gradients_equal_the_oracle(name: str) -> None:
    x, w, options = transpose_case(name)
    windows, groups = transpose_windows(x, w, options)
    bias = array(w.shape[1] * groups, seed=2)
    expected = conv_transpose(x, w, windows, groups) + bias.reshape(-1, *(1,) * (x.ndim - 2))

    def gradients(above: Array) -> tuple[Array, ...]:
        of_bias = above.sum((0, *range(2, x.ndim)))
        return *conv_transpose_gradients(x, w, windows, above, groups), of_bias

    function = partial(Tensor.conv_transpose2d, **options)
    assert_equals_oracle(function, (x, w, bias), expected, gradients)


@pytest.mark.slow
def test_the_oracle_of_the_transpose_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    # torch refuses these two forms of padding
    for name in TRANSPOSE_CASES.keys() - {"padding of each side", "output padding of a stride"}:
        x, w, options = transpose_case(name)
        windows, groups = transpose_windows(x, w, options)
        theirs = [torch.tensor(value, requires_grad=True) for value in (x, w)]
        function = getattr(torch.nn.functional, f"conv_transpose{x.ndim - 2}d")
        expected = function(*theirs, **options)
        above = array(*expected.shape, seed=3)
        (expected * torch.tensor(above)).sum().backward()
        results = (
            conv_transpose(x, w, windows, groups),
            *conv_transpose_gradients(x, w, windows, above, groups),
        )
        wanted = (expected.detach(), *(value.grad for value in theirs))
        for mine, other in zip(results, wanted, strict=True):
            np.testing.assert_allclose(mine, other.numpy(), 2e-5, 2e-5, err_msg=name)


def test_conv_transpose2d_is_the_adjoint_of_conv2d() -> None:
    x, w = array(2, 4, 9, 9), array(6, 4, 3, 3, seed=1)
    y = Tensor(x).conv2d(Tensor(w), stride=2, padding=1)
    g = array(*y.shape, seed=2)
    back = Tensor(g).conv_transpose2d(Tensor(w), stride=2, padding=1)
    left = float((y.numpy().astype(np.float64) * g).sum())
    right = float((back.numpy().astype(np.float64) * x).sum())
    assert left == pytest.approx(right, rel=1e-4)


# ---- the graph ----


def nodes(tensor: Tensor, op: Ops) -> list[UOp]:
    return [node for node in tensor.uop.toposort() if node.op is op]


def test_padding_is_applied_directly_to_the_stored_input() -> None:
    x = Tensor.empty(2, 4, 7, 7)
    (pad,) = nodes(x.conv2d(Tensor.empty(8, 4, 3, 3), padding=1), Ops.PAD)
    assert pad.src[0] is x.uop


def test_the_gradient_of_the_input_is_movement_around_one_product() -> None:
    x = Tensor.empty(2, 4, 7, 7, requires_grad=True)
    out = x.conv2d(Tensor.empty(8, 4, 3, 3), padding=1)
    (gradient,) = out.sum().gradient(x)
    chain = [gradient.uop]
    while chain[-1].op in GroupOp.Movement | {Ops.REDUCE_AXIS, Ops.CAST}:
        chain.append(chain[-1].src[0])
    assert chain[-1].op is Ops.MUL
    ops = [node.op for node in chain if node.op in {Ops.REDUCE_AXIS, Ops.UNWINDOW, Ops.PAD}]
    # the sum over the kernel, the UNWINDOW, and the sum over output channels
    assert ops == [Ops.REDUCE_AXIS, Ops.UNWINDOW, Ops.REDUCE_AXIS]


# ---- Winograd ----


def test_the_winograd_matrices_compute_a_convolution() -> None:
    image, weight, result = (np.array(m).astype(np.float64) for m in (IMAGE, WEIGHT, RESULT))
    d, g = array(6, 6, dtype=np.float64), array(3, 3, seed=1, dtype=np.float64)
    tile = result @ ((image @ d @ image.T) * (weight @ g @ weight.T)) @ result.T
    np.testing.assert_allclose(
        tile, conv(d[None, None], g[None, None], Windows((6, 6), (3, 3)))[0, 0], atol=1e-12
    )


WINOGRAD_CASES: dict[str, dict[str, Any]] = {
    "one tile": {"x": (1, 2, 6, 6), "w": (3, 2, 3, 3)},
    "part of a tile": {"x": (1, 2, 4, 5), "w": (3, 2, 3, 3)},
    "padding": {"x": (2, 3, 9, 10), "w": (4, 3, 3, 3), "padding": 1},
    "padding of each side": {"x": (1, 3, 5, 6), "w": (2, 3, 3, 3), "padding": (0, 2, 1, 3)},
    "groups": {"x": (2, 4, 8, 8), "w": (6, 2, 3, 3), "groups": 2, "padding": 1},
}


@pytest.mark.sample(6)
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
def test_winograd_is_used_for_plain_windows_of_floats_only(options: dict[str, Any]) -> None:
    x, w = Tensor(integers(1, 1, 8, 8)), Tensor(integers(1, 1, 3, 3, seed=1))
    direct = x.conv2d(w, **options)
    with Context(WINO=1):
        assert x.conv2d(w, **options).uop is direct.uop


def test_winograd_of_half_precision_is_accurate() -> None:
    x, w = array(1, 8, 8, 8, dtype=np.float16), array(4, 8, 3, 3, seed=1, dtype=np.float16)
    with Context(WINO=1):
        out = Tensor(x).conv2d(Tensor(w))
    assert out.dtype is dtypes.half
    close(out, conv(x, w, Windows((8, 8), (3, 3))), 4e-3)


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
        (lambda x: x.conv2d(Tensor.empty(4, 3, 0, 3)), r"\(4, 3, 0, 3\).*has an empty kernel"),
        (lambda x: x.conv_transpose2d(Tensor.empty(3, 3, 2, 2), padding=9), r"leaves no elements"),
    ],
)
def test_errors_name_the_mismatch(call: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Tensor.empty(1, 3, 8, 8))


@pytest.mark.parametrize("name", ["stride", "dilation", "padding"])
def test_a_fractional_size_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}=1\.5 must be an integer"):
        Tensor.empty(1, 1, 8, 8).conv2d(Tensor.empty(1, 1, 3, 3), **{name: 1.5})
