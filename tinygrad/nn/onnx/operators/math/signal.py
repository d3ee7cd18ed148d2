"""Signals: window functions, Fourier transforms, mel scales.

Complex numbers are pairs along the last axis. A transform of n numbers is a product with an (n, n)
matrix, as models transform short frames.
"""

from __future__ import annotations

import math

import numpy as np

from tinygrad.dtype import DType, dtypes, to_numpy_dtype
from tinygrad.nn.onnx.element_types import dtype_of
from tinygrad.nn.onnx.errors import OnnxError
from tinygrad.nn.onnx.registry import operator
from tinygrad.nn.onnx.values import Array
from tinygrad.tensor import Tensor

# the factors of the cosines of 0, 1 and 2 periods
HANN = (0.5, -0.5, 0.0)
HAMMING = (25 / 46, -21 / 46, 0.0)
BLACKMAN = (0.42, -0.5, 0.08)


def cosine_window(
    size: Array, factors: tuple[float, ...], output_datatype: int, periodic: int
) -> Tensor:
    """A sum of cosines over `size` points; of one more than a period unless `periodic`."""
    count = int(size.item())
    period = max(1, count if periodic else count - 1)
    angle = Tensor.arange(count).float() * (2 * math.pi / period)
    terms = [(angle * i).cos() * factor for i, factor in enumerate(factors)]
    return (terms[0] + terms[1] + terms[2]).cast(dtype_of(output_datatype, "output_datatype"))


@operator("HannWindow")
def hann_window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return cosine_window(size, HANN, output_datatype, periodic)


@operator("HammingWindow")
def hamming_window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return cosine_window(size, HAMMING, output_datatype, periodic)


@operator("BlackmanWindow")
def blackman_window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return cosine_window(size, BLACKMAN, output_datatype, periodic)


def dft_matrix(rows: int, columns: int, period: int, dtype: DType) -> tuple[Tensor, Tensor]:
    """Cosines and sines of `2 pi i k / period`, each (rows, columns)."""
    position = np.outer(np.arange(rows), np.arange(columns)) % period
    angle = position * (2 * math.pi / period)
    kind = to_numpy_dtype(dtype)
    return Tensor(np.cos(angle).astype(kind)), Tensor(np.sin(angle).astype(kind))


def fourier_transform(x: Tensor, length: int, inverse: bool, onesided: bool) -> Tensor:
    """The Fourier transform along the last axis but one of x (..., n, 1 or 2), cut or padded with
    zeros to `length`: (..., length, 2). With `onesided`, only the first half of the frequencies; of
    an inverse, x is that half, and the result is real, (..., length, 1).
    """
    is_real = x.shape[-1] == 1
    if onesided and inverse:
        x = with_mirrored_half(x, length)
    x = x.pad_to(*x.shape[:-2], max(length, x.shape[-2]), None).shrink_to(
        *x.shape[:-2], length, None
    )
    bins = length // 2 + 1 if onesided and not inverse else length
    wide = x.dtype if x.dtype is dtypes.float64 else dtypes.float32
    cosine, sine = (part.to(x.device) for part in dft_matrix(length, bins, length, wide))
    sine = sine if inverse else -sine
    real = x[..., 0].cast(wide)
    parts = [real @ cosine, real @ sine]
    if not is_real:
        imaginary = x[..., 1].cast(wide)
        parts = [parts[0] - imaginary @ sine, parts[1] + imaginary @ cosine]
    if onesided and inverse:
        parts = parts[:1]
    result = Tensor.stack(*parts, dim=-1)
    return (result / length if inverse else result).cast(x.dtype)


def with_mirrored_half(x: Tensor, length: int) -> Tensor:
    """All frequencies of a real signal of `length`, from the first half of them."""
    half = length // 2 + 1
    x = x.pad_to(*x.shape[:-2], max(half, x.shape[-2]), None).shrink_to(*x.shape[:-2], half, None)
    mirrored = x[..., 1 : (length + 1) // 2, :].flip(-2)
    if x.shape[-1] == 2:
        mirrored = Tensor.stack(mirrored[..., 0], -mirrored[..., 1], dim=-1)
    return x.cat(mirrored, dim=-2)


@operator("DFT")
def dft(
    x: Tensor,
    dft_length: Array | None = None,
    axis: Array | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    if axis is None and x.ndim != 3:
        raise OnnxError(f"an input of shape {x.shape} needs axis, whose default differs by opset")
    at = x.ndim - 2 if axis is None else int(axis.item()) % x.ndim
    if at == x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise OnnxError(f"axis {at} of {x.shape}: the last axis holds real and imaginary parts")
    size = x.shape[at]
    default = 2 * (size - 1) if inverse and onesided else size
    length = default if dft_length is None else int(dft_length.item())
    moved = x.transpose(at, x.ndim - 2)
    return fourier_transform(moved, length, bool(inverse), bool(onesided)).transpose(at, x.ndim - 2)


@operator("STFT")
def stft(
    signal: Tensor,
    frame_step: Array,
    window: Tensor | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """The transforms of frames (batch, frames, frequencies, 2) of a signal (batch, n, 1 or 2)."""
    if frame_length is None and window is None:
        raise OnnxError("it needs frame_length or a window")
    length = int(window.shape[0]) if frame_length is None else int(frame_length.item())  # type: ignore[union-attr]
    frames = signal.unfold(1, length, int(frame_step.item())).transpose(-2, -1)
    if window is not None:
        frames = frames * window.reshape(length, 1)
    return fourier_transform(frames, length, False, bool(onesided))


@operator("MelWeightMatrix")
def mel_weight_matrix(
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int = 1,
) -> Tensor:
    """Triangles (frequencies, mel bins) whose corners are evenly spaced on the mel scale."""
    bins, length = int(num_mel_bins.item()), int(dft_length.item())
    low, high = (
        2595 * math.log10(1 + edge.item() / 700) for edge in (lower_edge_hertz, upper_edge_hertz)
    )
    mel = low + np.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mel / 2595) - 1)
    corners = ((length + 1) * hertz // sample_rate.item()).astype(int)
    first, middle, last = corners[:-2], corners[1:-1], corners[2:]
    frequency = np.arange(length // 2 + 1)[:, None]
    rising = (frequency - first) / np.maximum(middle - first, 1)
    falling = (last - frequency) / np.maximum(last - middle, 1)
    inside = (first <= frequency) & (frequency < last)
    weights = np.where(inside, np.where(frequency < middle, rising, falling), 0.0)
    weights = np.where(frequency == middle, 1.0, weights)
    return Tensor(weights.astype(np.float32)).cast(dtype_of(output_datatype, "output_datatype"))
