"""Matrix factorizations, and hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.backend.ops.oracle import Array, arrays
from tinygrad import Device, Tensor, dtypes

SHAPES = [(1, 1), (3, 3), (5, 3), (3, 5), (2, 4, 4), (7, 2), (2, 3, 2, 3), (1, 4), (4, 1)]
# matrices without full rank, or with orthogonal columns
SPECIAL: dict[str, Array] = {
    "outer product": np.outer([1, 2, 3], [1, 0, 2]),
    "zeros": np.zeros((3, 2)),
    "ones": np.ones((4, 4)),
    "identity": np.eye(4),
    "diagonal": np.diag([-1.0, 3.0, 0.0, 2.0]),
    "turned": np.array([[0.0, 2.0], [1.0, 0.0]]),
    "large": np.array([[3e15, 1e15], [1e15, 2e15]]),
    "small": np.array([[3e-15, 1e-15], [1e-15, 2e-15]]),
}


def assert_orthogonal(x: Tensor) -> None:
    product = (x.transpose(-1, -2) @ x).numpy()
    np.testing.assert_allclose(
        product, np.broadcast_to(np.eye(x.shape[-1]), product.shape), atol=1e-5
    )


def assert_qr(a: Array) -> None:
    q, r = Tensor(a).qr()
    assert (q.shape, r.shape) == ((*a.shape[:-1], a.shape[-2]), a.shape)
    scale = max(np.abs(a).max(), 1e-30)
    np.testing.assert_allclose((q @ r).numpy() / scale, a / scale, atol=1e-5)
    np.testing.assert_array_equal(np.tril(r.numpy(), -1), 0)
    assert_orthogonal(q)


def assert_svd(a: Array, full: bool) -> None:
    u, s, v = Tensor(a).svd(full_matrices=full)
    expected = np.linalg.svd(a, full_matrices=full)
    assert [x.shape for x in (u, s, v)] == [x.shape for x in expected]
    scale = max(np.abs(a).max(), 1e-30)
    np.testing.assert_allclose(s.numpy() / scale, expected[1] / scale, rtol=1e-4, atol=1e-5)
    assert (np.diff(s.numpy()) <= 0).all()
    assert (s.numpy() >= 0).all()
    k = min(a.shape[-2:])
    product = (u.numpy()[..., :k] * s.numpy()[..., None, :]) @ v.numpy()[..., :k, :]
    np.testing.assert_allclose(product / scale, a / scale, atol=1e-5)
    if full or a.shape[-2] >= a.shape[-1]:
        assert_orthogonal(u)
    if full or a.shape[-2] <= a.shape[-1]:
        assert_orthogonal(v.transpose(-1, -2))


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_qr(shape: tuple[int, ...]) -> None:
    assert_qr(arrays([shape])[0])


@pytest.mark.sample(10, values=False)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_svd(shape: tuple[int, ...], full: bool) -> None:
    assert_svd(arrays([shape])[0], full)


@pytest.mark.sample(16)
@pytest.mark.parametrize("name", SPECIAL)
def test_factorizations_of_special_matrices(name: str) -> None:
    a = SPECIAL[name].astype(np.float32)
    assert_qr(a)
    assert_svd(a, True)


@pytest.mark.slow
def test_factorizations_of_float64_of_integers_and_of_views() -> None:
    a = arrays([(4, 3)])[0].astype(np.float64)
    q, r = Tensor(a).qr()
    assert q.dtype == r.dtype == dtypes.float64
    np.testing.assert_allclose((q @ r).numpy(), a, atol=1e-14)
    _, s, _ = Tensor(a).svd()
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(a)[1], rtol=1e-12)
    integers = np.arange(6).reshape(2, 3)
    q, r = Tensor(integers).qr()
    np.testing.assert_allclose((q @ r).numpy(), integers, atol=1e-5)
    np.testing.assert_allclose(
        Tensor(integers).T.flip(0).svd()[1].numpy(), np.linalg.svd(integers)[1], atol=1e-5
    )


def test_factorizations_of_empty_matrices() -> None:
    assert [x.shape for x in Tensor.zeros(0, 2).qr()] == [(0, 0), (0, 2)]
    assert [x.shape for x in Tensor.zeros(2, 0).svd()] == [(2, 2), (0,), (0, 0)]


def test_factorizations_of_vectors_are_errors() -> None:
    for method in (Tensor.qr, Tensor.svd):
        with pytest.raises(ValueError, match=r"takes matrices, not shape \(1,\)"):
            method(Tensor([1.0]))


# ---- hashes ----

HASHES: dict[str, Callable[[bytes], bytes]] = {
    "sha3_224": lambda message: hashlib.sha3_224(message).digest(),
    "sha3_256": lambda message: hashlib.sha3_256(message).digest(),
    "shake_128": lambda message: hashlib.shake_128(message).digest(16),
}


@pytest.mark.sample(9, values=False)
@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("size", [0, 3, 135, 136, 137, 167, 168, 300, 500])
def test_keccak(size: int, name: str) -> None:
    message = bytes(i * 7 % 256 for i in range(size))
    assert Tensor(message).keccak(name).numpy().tobytes() == HASHES[name](message)


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [10, 300])
def test_keccak_of_several_messages(size: int) -> None:
    messages = (np.arange(6 * size) * 31 % 256).astype(np.uint8).reshape(3, 2, size)
    found = Tensor(messages).keccak().numpy()
    assert found.shape == (3, 2, 32)
    for place in np.ndindex(3, 2):
        expected = hashlib.sha3_256(messages[place].tobytes()).digest()
        assert found[place].tobytes() == expected


def test_keccak_of_sharded_messages() -> None:
    messages = (np.arange(4 * 300) * 31 % 256).astype(np.uint8).reshape(4, 300)
    devices = tuple(f"{Device.DEFAULT}:{i}" for i in range(2))
    found = Tensor(messages).shard(devices, axis=0).realize().keccak().numpy()
    expected = [hashlib.sha3_256(message.tobytes()).digest() for message in messages]
    assert [digest.tobytes() for digest in found] == expected


def test_keccak_of_a_view_and_of_no_messages() -> None:
    message = bytes(range(40))
    found = Tensor(message).flip(0)[::2].keccak().numpy().tobytes()
    assert found == hashlib.sha3_256(message[::-1][::2]).digest()
    assert Tensor.zeros(0, 4, dtype=dtypes.uint8).keccak().shape == (0, 32)


@pytest.mark.parametrize(
    ("message", "name", "kind", "text"),
    [
        (Tensor([1.0]), "sha3_256", TypeError, "takes bytes, not dtypes.float; cast"),
        (Tensor(b"a"), "md5", ValueError, "'md5' is not one of sha3_224"),
        (Tensor(1, dtype=dtypes.uint8), "sha3_256", ValueError, "reshape one byte to"),
    ],
)
def test_inputs_that_cannot_be_hashed_are_errors(
    message: Tensor, name: str, kind: Any, text: str
) -> None:
    with pytest.raises(kind, match=text):
        message.keccak(name)


@pytest.mark.slow
def test_hash_is_a_tree_of_shake_128() -> None:
    data = b"abc" + bytes((1 << 20) - 3)
    leaves = [hashlib.shake_128(data[i : i + 4096]).digest(16) for i in range(0, 1 << 20, 4096)]
    expected = hashlib.shake_128(b"".join(leaves)).digest(16)
    assert Tensor(b"abc").hash().numpy().tobytes() == expected


@pytest.mark.slow
def test_a_parameter_may_be_hashed() -> None:
    parameter = Tensor([1.0, 2.0], requires_grad=True)
    assert parameter.hash().tolist() == Tensor([1.0, 2.0]).hash().tolist()
