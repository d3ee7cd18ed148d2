"""Pooling, its indices and interpolation, against an oracle in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.ops.conv_oracle import (
    Array,
    Windows,
    along_last_axes,
    array,
    avg_pool,
    avg_pool_gradient,
    close,
    in_full,
    integers,
    interpolation,
    max_pool,
    max_pool_gradient,
    max_unpool,
)
from tinygrad import Tensor, dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

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
    "padding of each side": {"kernel_size": 2, "stride": (1, 2), "padding": (1, 0, 0, 1)},
    "dilation": {"kernel_size": (3, 2), "stride": 2, "dilation": (1, 3), "padding": 1},
    "all together": {
        "kernel_size": (2, 3),
        "stride": (3, 2),
        "dilation": (2, 1),
        "padding": (0, 1, 1, 0),
        "ceil_mode": True,
    },
    "one axis": {"kernel_size": (3,), "stride": 2, "padding": 1},
    "three axes": {"kernel_size": (2, 3, 2), "stride": (2, 1, 2), "ceil_mode": True},
}
SHAPES = {"one axis": (2, 3, 9), "three axes": (1, 2, 5, 6, 5)}


def pool_case(name: str) -> tuple[Array, Windows, dict[str, Any]]:
    options = {"kernel_size": 2} | POOL_CASES[name]
    x = array(*SHAPES.get(name, (2, 3, 8, 7)))
    kernel = in_full(options["kernel_size"], 2)
    rest = {key: value for key, value in options.items() if key != "kernel_size"}
    return x, Windows(x.shape[-len(kernel) :], kernel, **{"stride": kernel} | rest), options


@pytest.mark.sample(6)
@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("name", POOL_CASES)
def test_avg_pool2d_and_its_gradient_equal_the_oracle(name: str, count_include_pad: bool) -> None:
    x, windows, options = pool_case(name)
    ours, expected = Tensor(x, requires_grad=True), avg_pool(x, windows, count_include_pad)
    out = ours.avg_pool2d(**options, count_include_pad=count_include_pad)
    above = array(*expected.shape, seed=1)
    (gradient,) = (out * Tensor(above)).sum().gradient(ours)
    close(gradient, avg_pool_gradient(windows, above, count_include_pad))
    close(out, expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", POOL_CASES)
def test_max_pool2d_its_indices_and_its_gradient_equal_the_oracle(name: str) -> None:
    x, windows, options = pool_case(name)
    ours, (expected, positions) = Tensor(x, requires_grad=True), max_pool(x, windows)
    out, indices = ours.max_pool2d(**options, return_indices=True)
    above = array(*expected.shape, seed=1)
    (gradient,) = (out * Tensor(above)).sum().gradient(ours)
    close(gradient, max_pool_gradient(x, windows, above))
    np.testing.assert_array_equal(indices.numpy(), positions)
    close(out, expected)


@pytest.mark.parametrize("kind", ["integers", "not-a-number", "infinities"])
def test_ties_and_nan(kind: str) -> None:
    x = integers(2, 2, 7, 8).astype(np.float32) // 4
    if kind != "integers":
        x[array(*x.shape) > 0.5] = np.nan if kind == "not-a-number" else -np.inf
    options: dict[str, Any] = {"kernel_size": (2, 3), "stride": (2, 1), "padding": 1}
    expected, positions = max_pool(x, Windows((7, 8), (2, 3), (2, 1), padding=1))
    out, indices = Tensor(x).max_pool2d(**options, return_indices=True)
    np.testing.assert_array_equal(out.numpy(), expected)
    np.testing.assert_array_equal(indices.numpy(), positions)


def test_the_oracle_of_pooling_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    one_side_only = {"padding of each side", "all together"}
    for name in POOL_CASES.keys() - one_side_only:
        x, windows, options = pool_case(name)
        count = len(windows.sizes)
        theirs = torch.tensor(x, requires_grad=True)
        function = getattr(torch.nn.functional, f"max_pool{count}d")
        expected, positions = function(theirs, **options, return_indices=True)
        above = array(*expected.shape, seed=1)
        (expected * torch.tensor(above)).sum().backward()
        found, indices = max_pool(x, windows)
        np.testing.assert_array_equal(found, expected.detach().numpy(), err_msg=name)
        np.testing.assert_array_equal(indices, positions.numpy(), err_msg=name)
        gradient = max_pool_gradient(x, windows, above)
        np.testing.assert_allclose(gradient, theirs.grad.numpy(), 1e-5, 1e-5, err_msg=name)
        if "dilation" not in options:
            for included in (True, False):
                function = getattr(torch.nn.functional, f"avg_pool{count}d")
                mean = function(torch.tensor(x), **options, count_include_pad=included)
                found = avg_pool(x, windows, included)
                np.testing.assert_allclose(found, mean.numpy(), 1e-5, 1e-5, err_msg=name)


def test_an_empty_batch_gives_an_empty_batch() -> None:
    x = Tensor.empty(0, 3, 8, 8)
    assert x.avg_pool2d(3, padding=1, count_include_pad=False).numpy().shape == (0, 3, 3, 3)
    values, indices = x.max_pool2d(return_indices=True)
    assert values.numpy().shape == indices.numpy().shape == (0, 3, 4, 4)
    assert values.max_unpool2d(indices).numpy().shape == (0, 3, 8, 8)
    assert x.interpolate((4, 5)).numpy().shape == (0, 3, 4, 5)


def test_pooling_needs_no_batch_axes() -> None:
    x = array(4, 6)
    close(Tensor(x).max_pool2d(2), max_pool(x, Windows((4, 6), (2, 2), 2))[0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.float16])
def test_max_pool2d_pads_with_the_smallest_value(dtype: Any) -> None:
    x = np.full((1, 1, 2, 2), 0 if dtype is np.uint8 else -5, dtype)
    out = Tensor(x).max_pool2d(2, padding=1)
    assert out.dtype is Tensor(x).dtype
    np.testing.assert_array_equal(out.numpy(), x)


def test_equal_maxima_share_the_gradient() -> None:
    x = Tensor(np.ones((1, 1, 2, 2), np.float32), requires_grad=True)
    (gradient,) = x.max_pool2d(2).sum().gradient(x)
    np.testing.assert_array_equal(gradient.numpy(), np.full((1, 1, 2, 2), 0.25, np.float32))


def test_avg_pool2d_of_integers_is_a_float() -> None:
    out = Tensor(integers(1, 1, 4, 4)).avg_pool2d(2)
    assert out.dtype is dtypes.float
    close(out, avg_pool(integers(1, 1, 4, 4), Windows((4, 4), (2, 2), 2), True))


def test_avg_pool2d_of_half_does_not_overflow() -> None:
    out = Tensor(np.full((1, 1, 8, 8), 60000, np.float16)).avg_pool2d(8)
    assert out.dtype is dtypes.half
    assert out.numpy().item() == np.float16(60000)


# ---- indices ----


@pytest.mark.parametrize(
    ("options", "output_size"),
    [
        ({"kernel_size": 2}, None),
        ({"kernel_size": 2}, (9, 8)),
        ({"kernel_size": 2}, (2, 3, 9, 8)),
        ({"kernel_size": (3, 2), "stride": (3, 1)}, None),
        ({"kernel_size": 3, "stride": 3, "padding": 1}, (8, 8)),
        ({"kernel_size": 2, "stride": 1}, (8, 8)),
    ],
)
def test_max_unpool2d_undoes_max_pool2d(options: dict[str, Any], output_size: Any) -> None:
    x = array(2, 3, 8, 8)
    kernel = in_full(options["kernel_size"], 2)
    rest = {key: value for key, value in options.items() if key != "kernel_size"}
    values, positions = max_pool(x, Windows((8, 8), kernel, **{"stride": kernel} | rest))
    found = Tensor(x).max_pool2d(**options, return_indices=True)
    undone = found[0].max_unpool2d(found[1], **options, output_size=output_size)
    sizes = undone.shape[2:] if output_size is None else output_size[-2:]
    assert undone.shape == (2, 3, *sizes)
    close(undone, max_unpool(values, positions, (2, 3), sizes))


def test_elements_with_an_index_out_of_range_are_dropped() -> None:
    values, indices = Tensor([[[1.0, 2.0]], [[3.0, 4.0]]]), Tensor([[[9, 1]], [[-1, 0]]])
    assert values.max_unpool2d(indices, (2,)).tolist() == [[[0, 2, 0, 0]], [[4, 0, 0, 0]]]


def test_elements_with_equal_indices_count_once() -> None:
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


# ---- interpolation ----


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("mode", "align_corners"),
    [("linear", False), ("linear", True), ("nearest", False), ("nearest-exact", False)],
)
@pytest.mark.parametrize("size", [(5,), (1,), (7, 3), (4, 9), (3, 8, 2)], ids=str)
def test_interpolate_and_its_gradient_equal_the_oracle(
    size: tuple[int, ...], mode: str, align_corners: bool
) -> None:
    x = array(2, 4, 3, 6)
    old = x.shape[-len(size) :]
    matrices = [
        interpolation(n, new, mode, align_corners) for n, new in zip(old, size, strict=True)
    ]
    ours, expected = Tensor(x, requires_grad=True), along_last_axes(x, matrices)
    out = ours.interpolate(size, mode, align_corners)
    above = array(*expected.shape, seed=1)
    (gradient,) = (out * Tensor(above)).sum().gradient(ours)
    close(gradient, along_last_axes(above, [matrix.T for matrix in matrices]))
    close(out, expected)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
def test_interpolated_integers_are_rounded_once(kind: Any) -> None:
    limits = np.iinfo(kind)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (2, 5, 7), kind, endpoint=True)
    for size, aligned in (((9, 4), False), ((3, 11), True)):
        matrices = [interpolation(n, new, "linear", aligned) for n, new in zip((5, 7), size)]
        exact = along_last_axes(x.astype(np.float64), matrices)
        found = Tensor(x).interpolate(size, align_corners=aligned)
        assert np.abs(found.numpy() - exact).max() < 0.5 + 1e-4
        assert found.numpy().dtype == kind


def test_the_oracle_of_interpolation_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    x = array(1, 2, 4, 5)
    for size in ((7, 3), (4, 9), (1, 2), (8, 10)):
        for mode, aligned in (("bilinear", False), ("bilinear", True), ("nearest", None)):
            expected = torch.nn.functional.interpolate(
                torch.tensor(x), size=size, mode=mode, align_corners=aligned
            )
            name = mode.removeprefix("bi")
            matrices = [interpolation(o, n, name, bool(aligned)) for o, n in zip((4, 5), size)]
            np.testing.assert_allclose(along_last_axes(x, matrices), expected, 1e-5, 1e-5)


# ---- the graph ----


def nodes(tensor: Tensor, op: Ops) -> list[UOp]:
    return [node for node in tensor.uop.toposort() if node.op is op]


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 3}])
def test_windows_that_do_not_overlap_are_a_reshape(options: dict[str, int]) -> None:
    x = Tensor.empty(1, 1, 6, 6, requires_grad=True)
    for pooled in (x.max_pool2d(2, **options), x.avg_pool2d(2, **options)):
        assert not nodes(pooled, Ops.WINDOW)
        assert not nodes(pooled.sum().gradient(x)[0], Ops.UNWINDOW)


# ---- errors ----


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.max_pool2d(9), r"max_pool2d.*\(9, 9\).*\(8, 8\)"),
        (lambda x: x.avg_pool2d((2,) * 5), r"5 axes.*\(1, 3, 8, 8\)"),
        (lambda x: x.max_pool2d(2, stride=(1, 2, 3)), r"stride.*2 numbers"),
        (lambda x: x.max_unpool2d(Tensor.empty(1, 3, 4, 4)), r"\(1, 3, 4, 4\).*\(1, 3, 8, 8\)"),
        (lambda x: x.max_unpool2d(x), r"integers, not dtypes.float"),
        (lambda x: x.interpolate((4, 4), "cubic"), r"'cubic' is not one of linear, nearest"),
        (lambda x: x.interpolate((4, 0)), r"\(4, 0\) do not fit shape"),
    ],
)
def test_errors_name_the_mismatch(call: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Tensor.empty(1, 3, 8, 8))


def test_interpolation_to_one_number_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"size=3 .*\(3,\)"):
        Tensor.empty(1, 1, 8).interpolate(3)  # type: ignore[arg-type]
