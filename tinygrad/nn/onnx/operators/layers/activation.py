"""Activations, and the softmax family."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.dtype import dtypes
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.operators.math.elementwise import unary
from tinygrad.nn.onnx.registry import operator
from tinygrad.tensor import Tensor

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "HardSwish": Tensor.hardswish,
    "Mish": Tensor.mish,
    "Relu": Tensor.relu,
    "Sigmoid": Tensor.sigmoid,
    "Softplus": Tensor.softplus,
    "Softsign": Tensor.softsign,
    "Tanh": Tensor.tanh,
}
for name, method in PLAIN.items():
    operator(name)(unary(method))


@operator("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return x.leaky_relu(alpha)


@operator("ThresholdedRelu")
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return (x > alpha).where(x, 0)


@operator("PRelu")
def parametric_relu(x: Tensor, slope: Tensor) -> Tensor:
    return (x < 0).where(x * slope, x)


@operator("Elu")
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.elu(alpha)


@operator("Celu")
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.celu(alpha)


@operator("Selu")
def selu(
    x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Tensor:
    return x.selu(alpha, gamma)


@operator("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (x * alpha + beta).clamp(0, 1)


@operator("Shrink")
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    moved = (x < -lambd).where(x + bias, (x > lambd).where(x - bias, 0))
    return moved.cast(x.dtype)


@operator("Swish")
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


@operator("SwiGLU")
def swiglu(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    return swish(a, alpha=alpha) * b


@operator("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate not in ("none", "tanh"):
        raise OnnxError(f"approximate is {approximate!r}, not none or tanh")
    return x.gelu(approximate)


@operator("Softmax")
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.softmax(axis)


@operator("LogSoftmax")
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.log_softmax(axis)


@operator("Hardmax")
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first largest element along an axis, 0 elsewhere."""
    largest = x.argmax(axis, keepdim=True)
    shape = tuple(-1 if i == axis % x.ndim else 1 for i in range(x.ndim))
    places = Tensor.arange(x.shape[axis], dtype=dtypes.int32).reshape(shape)
    return places.eq(largest).cast(x.dtype)
