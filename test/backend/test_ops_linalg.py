"""Factors of matrices, resized images, hashes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from test.backend.oracle import arrays, compare, torch
from tinygrad import Tensor

SHAPES = [(1, 1), (3, 3), (5, 3), (3, 5), (2, 4, 4), (7, 2)]


def assert_orthogonal(x: Tensor) -> None:
    product = (x.transpose(-1, -2) @ x).numpy()
    np.testing.assert_allclose(
        product, np.broadcast_to(np.eye(x.shape[-1]), product.shape), atol=1e-5
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_qr(shape: tuple[int, ...]) -> None:
    (a,) = arrays([shape])
    q, r = Tensor(a).qr()
    np.testing.assert_allclose((q @ r).numpy(), a, atol=1e-5)
    np.testing.assert_allclose(np.tril(r.numpy(), -1), 0, atol=1e-5)
    assert_orthogonal(q)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_svd(shape: tuple[int, ...], full: bool) -> None:
    (a,) = arrays([shape])
    u, s, v = Tensor(a).svd(full_matrices=full)
    expected = np.linalg.svd(a, full_matrices=full)
    assert [x.shape for x in (u, s, v)] == [x.shape for x in expected]
    np.testing.assert_allclose(s.numpy(), expected[1], rtol=1e-4, atol=1e-5)
    k = min(shape[-2:])
    product = (u.numpy()[..., :k] * s.numpy()[..., None, :]) @ v.numpy()[..., :k, :]
    np.testing.assert_allclose(product, a, atol=1e-5)
    assert_orthogonal(u)
    assert_orthogonal(v.transpose(-1, -2))


def test_svd_of_a_matrix_that_is_not_of_full_rank() -> None:
    a = np.outer([1, 2, 3], [1, 0, 2]).astype(np.float32)
    u, s, v = Tensor(a).svd()
    np.testing.assert_allclose(s.numpy(), [np.sqrt(14 * 5), 0, 0], atol=1e-5)
    assert_orthogonal(u)
    assert_orthogonal(v)


def test_factors_are_of_matrices() -> None:
    for method in (Tensor.qr, Tensor.svd):
        with pytest.raises(ValueError, match="is of matrices"):
            method(Tensor([1.0]))


@pytest.mark.parametrize("size", [(5, 7), (10, 14), (3, 4), (8, 3), (1, 1)])
@pytest.mark.parametrize(
    ("mode", "theirs", "settings"),
    [
        ("linear", "bilinear", {"align_corners": False}),
        ("linear", "bilinear", {"align_corners": True}),
        ("nearest", "nearest", {}),
        ("nearest-exact", "nearest-exact", {}),
    ],
)
def test_interpolate(size: tuple[int, int], mode: str, theirs: str, settings: Any) -> None:
    compare(
        arrays([(2, 3, 5, 7)]),
        lambda x: torch.nn.functional.interpolate(x, size=size, mode=theirs, **settings),
        lambda x: x.interpolate(size, mode, **settings),
    )


def test_interpolation_that_cannot_be() -> None:
    x = Tensor.ones(2, 3)
    for arguments in (((4, 4, 4),), ((0,),), ((4,), "cubic"), ((4,), "nearest", True)):
        with pytest.raises(ValueError, match="interpolate"):
            x.interpolate(*arguments)


@pytest.mark.parametrize("message", [b"abc", b"a" * 135, b"b" * 136, b"c" * 300])
def test_keccak(message: bytes) -> None:
    x = Tensor(message)
    assert x.keccak().numpy().tobytes() == hashlib.sha3_256(message).digest()
    assert x.keccak("sha3_224").numpy().tobytes() == hashlib.sha3_224(message).digest()
    assert x.keccak("shake_128").numpy().tobytes() == hashlib.shake_128(message).digest(16)


def test_keccak_of_several_messages() -> None:
    messages = np.arange(60, dtype=np.uint8).reshape(3, 2, 10)
    found = Tensor(messages).keccak().numpy()
    assert found.shape == (3, 2, 32)
    assert found[2, 1].tobytes() == hashlib.sha3_256(messages[2, 1].tobytes()).digest()


@pytest.mark.slow
def test_hash_is_a_tree_of_shake_128() -> None:
    data = b"abc" + bytes((1 << 20) - 3)
    leaves = [hashlib.shake_128(data[i : i + 4096]).digest(16) for i in range(0, 1 << 20, 4096)]
    expected = hashlib.shake_128(b"".join(leaves)).digest(16)
    assert Tensor(b"abc").hash().numpy().tobytes() == expected
