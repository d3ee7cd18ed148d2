"""Half precision: a composite function computes in float32 and rounds once, and so its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import Device, GlobalCounters, Tensor, dtypes, nn
from tinygrad.dtype import DType
from tinygrad.nn.state import get_parameters

HALVES = [dtypes.float16, dtypes.bfloat16]
ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(Tensor, name)
        for name in (
            *("tanh", "erf", "sigmoid", "tan", "asinh", "sinh", "atanh", "acos", "rsqrt", "gelu"),
            *("quick_gelu", "silu", "mish", "softplus", "logsigmoid", "elu", "celu", "selu"),
            *("hardswish", "hardsigmoid", "softsign", "leaky_relu", "log10"),
        )
    },
    "pow": lambda x: x**3,
    "fractional pow": lambda x: x**1.7,
    "power of a number": lambda x: 3**x,
    "logaddexp": lambda x: x.logaddexp(x * 0.5),
    "lerp": lambda x: x.lerp(x * 2, 0.3),
    "exact gelu": lambda x: x.gelu("none"),
    "fmod": lambda x: x.fmod(0.75),
}
REDUCING: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "logcumsumexp": lambda x: x.logcumsumexp(),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(0),
    "mean": lambda x: x.mean(0),
    "prod": lambda x: (x * 0.5).prod(0),
    "layernorm": lambda x: x.layernorm(),
    "normalize": lambda x: x.normalize(3),
    "batchnorm": lambda x: x.batchnorm(x[0], x[1], x[2], x[3]),
    "cross_entropy": lambda x: x.cross_entropy(Tensor.arange(8) % 5),
    "sparse": lambda x: x.sparse_categorical_crossentropy(Tensor.arange(8), label_smoothing=0.1),
    "nll_loss": lambda x: x.nll_loss(Tensor.arange(8)),
    "bce": lambda x: x.binary_crossentropy_logits((x > 0).cast(x.dtype)),
    "linear": lambda x: x.linear(x.transpose(), x[0]),
    "conv2d": lambda x: x.reshape(1, 1, 8, 8).conv2d(x[:3, :3].reshape(1, 1, 3, 3), x[0, :1]),
    "interpolate": lambda x: x.interpolate((5, 3)),
}


def check(function: Callable[[Tensor], Tensor], value: Tensor) -> None:
    """Compare with the same function of float32, whose results are rounded to the half type."""
    results = []
    for x in (value, value.float()):
        x = x.detach().realize()
        x.requires_grad = True
        y = function(x)
        # the gradient of the result is that of a half in both
        y.cast(value.dtype).float().square().sum().backward()
        assert y.dtype is x.dtype and x.grad is not None and x.grad.dtype is x.dtype
        results.append((y.cast(value.dtype).float().numpy(), x.grad.cast(value.dtype).float()))
    (y, gradient), (expected, expected_gradient) = results
    np.testing.assert_array_equal(y, expected)
    # the gradient of the result is rounded on the way
    a, b = gradient.numpy(), expected_gradient.numpy()
    steps = 2.0 ** -(7 if value.dtype is dtypes.bfloat16 else 10)
    np.testing.assert_allclose(a, b, rtol=4 * steps, atol=4 * steps * np.nanmax(np.abs(b)))


@pytest.mark.sample(18, values=False)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", [*ELEMENTWISE, *REDUCING])
def test_composite_functions_round_once(name: str, dtype: DType) -> None:
    generator = np.random.default_rng(0)
    if name in ELEMENTWISE:
        values = generator.uniform(0.05, 0.95, 64).astype(np.float32)
        check(ELEMENTWISE[name], Tensor(values).cast(dtype))
    else:
        values = generator.normal(size=(8, 8)).astype(np.float32) * 3
        check(REDUCING[name], Tensor(values).cast(dtype))


def test_values_that_overflow_or_vanish_in_half() -> None:
    x = Tensor([0.0, 1000.0, 2000.0, 3000.0], dtype=dtypes.float16)
    expected = np.array([-1.3416, -0.4472, 0.4472, 1.3416])
    np.testing.assert_allclose(x.layernorm().numpy(), expected, atol=1e-3)
    assert x.std().item() == 1291
    layer = nn.BatchNorm(1)
    for parameter in get_parameters(layer):
        if parameter.dtype is dtypes.float32:
            parameter.replace(parameter.half())
    with Tensor.train():
        found = layer(x.reshape(4, 1))
        assert found.dtype is dtypes.float16
        np.testing.assert_allclose(found.numpy()[:, 0], expected, atol=1e-3)
    scaled = x.reshape(2, 2).newton_schulz(5, (3.4445, -4.775, 2.0315))
    assert np.isfinite(scaled.numpy()).all()
    assert abs(Tensor([0.003], dtype=dtypes.bfloat16).tanh().item() - 0.003) < 1e-5
    assert Tensor([-11.0], dtype=dtypes.bfloat16).tan().item() == 226
    assert Tensor([300.0], dtype=dtypes.float16).pow(3).rsqrt().item() == 0


def test_explicit_types_and_promotion_stay() -> None:
    x = Tensor([[1.0, 2.0]], dtype=dtypes.float16)
    wide = Tensor([[1.0], [2.0]])
    assert x.softmax(dtype=dtypes.float32).dtype is dtypes.float32
    assert x.linear(wide, wide[0]).dtype is dtypes.float32
    assert x.linear(wide.half(), wide[0].half(), dtype=dtypes.float32).dtype is dtypes.float32
    assert x.linear(wide.half(), wide[0].half()).dtype is dtypes.float16
    assert x.logaddexp(x.cast(dtypes.bfloat16)).dtype is dtypes.float32
    assert x.cross_entropy(Tensor([1])).dtype is dtypes.float16
    assert nn.LayerNorm(2)(x).dtype is dtypes.float32
    assert all(part.dtype is dtypes.float16 for part in x.var_mean())
    hidden, cell = nn.LSTMCell(2, 3)(x.float())
    assert hidden.dtype is cell.dtype is dtypes.float32


def traffic(dtype: DType, function: Callable[..., Tensor]) -> tuple[int, int]:
    """Kernels, and bytes that they read and write, of a function and its gradients."""
    generator = np.random.default_rng(0)
    values = [generator.normal(size=(64, 64)).astype(np.float32) for _ in range(3)]
    xs = [Tensor(value).cast(dtype).realize() for value in values]
    for x in xs:
        x.requires_grad = True
    GlobalCounters.reset()
    y = function(*xs)
    (y.float() * 1.0).sum().backward()
    Tensor.realize(*[x.grad for x in xs if x.grad is not None])
    return GlobalCounters.kernel_count, GlobalCounters.global_mem


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [dtypes.float16, pytest.param(dtypes.bfloat16, marks=pytest.mark.slow)]
)
def test_casts_fuse_and_float32_is_not_stored(dtype: DType) -> None:
    functions: list[Callable[..., Tensor]] = [
        lambda x, v, w: (x @ v).gelu() @ w,
        lambda x, v, w: ((x @ v).silu() * (x @ w)) @ v,
        lambda x, v, w: (x + x.layernorm() @ v).layernorm() @ w,
        lambda x, v, w: x.linear(v, w[0]).relu().linear(w, v[0]),
        lambda x, v, w: x.reshape(1, 64, 64).scaled_dot_product_attention(v[None], w[None]),
    ]
    for function in functions:
        kernels, bytes_moved = traffic(dtype, function)
        wide_kernels, wide_bytes = traffic(dtypes.float32, function)
        # two kernels more: a cast stands between a norm and what it is computed from
        assert kernels <= wide_kernels + 2
        # half the bytes, but for scores of attention and for the statistics of rows
        assert bytes_moved <= 0.88 * wide_bytes


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_attention_in_blocks_rounds_weights_and_the_result(dtype: DType) -> None:
    """A target of matrix instructions multiplies with them, whichever has weights in registers."""
    rng = np.random.default_rng(0)
    q, k, v = (
        Tensor(rng.standard_normal((1, 2, rows, 24), dtype=np.float32)).cast(dtype).realize()
        for rows in (275, 301, 301)
    )
    wide = [x.float().numpy().astype(np.float64) for x in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / math.sqrt(24)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ wide[2] / weights.sum(-1, keepdims=True)
    bits = 11 if dtype is dtypes.float16 else 8
    GlobalCounters.reset()
    found = q.scaled_dot_product_attention(k, v).realize()
    assert GlobalCounters.kernel_count == 1
    np.testing.assert_allclose(found.float().numpy(), expected, rtol=0.01, atol=4 * 2.0**-bits)


def test_optimizer_states_of_half_gradients_do_not_vanish() -> None:
    weight = Tensor([1.0], dtype=dtypes.float16)
    weight.requires_grad = True
    optimizer = nn.optim.Adam([weight], lr=0.125)
    with Tensor.train():
        (weight * 1e-4).sum().backward()
        optimizer.step()
    # the square of the gradient is below the smallest float16
    assert weight.item() == 0.875


def test_saturated_functions_have_finite_values_and_gradients() -> None:
    values = [-3e38, -1e20, -300.0, -100.0, -89.0, -20.0, 0.0, 20.0, 89.0, 100.0, 300.0, 1e20, 3e38]
    for name in ("sigmoid", "softplus", "logsigmoid", "mish", "silu", "gelu", "tanh", "erf", "elu"):
        x = Tensor(values, requires_grad=True)
        y = getattr(x, name)()
        y.sum().backward()
        assert x.grad is not None
        assert np.isfinite(y.numpy()).all() and np.isfinite(x.grad.numpy()).all(), name
    a, b = Tensor([0.0, -math.inf, math.inf, 1e8]), Tensor([-20.0, -math.inf, math.inf, 1.0])
    a.requires_grad = b.requires_grad = True
    y = a.logaddexp(b)
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), [math.log1p(math.exp(-20)), -math.inf, math.inf, 1e8])
    assert a.grad is not None and b.grad is not None
    np.testing.assert_allclose(a.grad.numpy(), [1, 0.5, 0.5, 1], rtol=1e-6)
    np.testing.assert_allclose(b.grad.numpy(), [2.0611537e-9, 0.5, 0.5, 0], rtol=1e-5)
    x = Tensor([-50.0, -17.0, 50.0, 1e20], requires_grad=True)
    (x.elu() + x.mish()).sum().backward()
    assert x.grad is not None
    tails = [math.exp(y) * (2 + y) for y in (-50, -17)]
    np.testing.assert_allclose(x.grad.numpy(), [*tails, 2, 2], rtol=1e-5)
    # subnormal results of saturated sigmoids
    found = Tensor([-90.0]).sigmoid().item()
    assert 7e-40 < found < 9e-40 if Device[Device.DEFAULT].target.has_subnormals else found == 0


def test_a_product_that_is_not_summed_is_rounded() -> None:
    x = Tensor([300.0] * 32).half().realize()
    assert not (x * x).isfinite().any().item()
    assert (x * x - x * x).isnan().all().item()
    assert (x * x).max().item() == math.inf
