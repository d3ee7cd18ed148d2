"""Factors of matrices.

In: matrices in the last two axes, of known sizes; integers become floats. Out: their factors, by
methods whose steps are tensors too, so that they run where the matrix is.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.mixin.matmul import MatmulMixin
from tinygrad.mixin.sorting import SortingMixin
from tinygrad.uop.device_value import replicated


class LinalgMixin(MatmulMixin, SortingMixin):
    """`qr`, `svd`."""

    __slots__ = ()

    def _matrix_sizes(self, what: str) -> tuple[int, int]:
        if self.ndim < 2:
            raise ValueError(f"{what} is of matrices, not of shape {self.shape}")
        return int(self.shape[-2]), int(self.shape[-1])

    def qr(self) -> tuple[Self, Self]:
        """`Q @ R` of (..., m, n): Q (..., m, m) is orthogonal, R (..., m, n) upper triangular.

        By Householder reflections (Golub and Van Loan, 5.2). Raises ValueError for vectors.

        >>> q, r = Tensor([[3.0, 1.0], [4.0, 2.0]]).qr()
        >>> (q @ r).allclose(Tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-5)
        True
        """
        m, n = self._matrix_sizes("qr")
        r = self._as_float()
        q = self.eye(m, dtype=r.dtype)._broadcast_to((*self.shape[:-2], m, m))
        for k in range(min(m - 1, n)):
            v = r._reflector(k)
            r = r._reflected(v).contiguous()
            q = q.transpose(-1, -2)._reflected(v).transpose(-1, -2).contiguous()
        # rounding leaves what is not quite 0
        return q, r.triu()

    def _reflector(self, k: int) -> Self:
        """The unit vector (..., m, 1) whose reflection clears column `k` below the diagonal."""
        m = self.shape[-2]
        place = self.arange(m).reshape(m, 1)
        column = (place >= k).where(self._along(self.ndim - 1, k, k + 1), 0)
        corner = column._along(self.ndim - 2, k, k + 1)
        length = column.square().sum(-2, keepdim=True).sqrt()
        # away from the corner's own sign, so that nothing cancels
        shift = (corner < 0).where(length.neg(), length)
        v = column + place.eq(k).where(shift, 0)
        norm = v.square().sum(-2, keepdim=True).sqrt()
        return ((norm > 0).where(v / norm, 0)).contiguous()

    def _reflected(self, v: Self) -> Self:
        return self - 2 * v * (v * self).sum(-2, keepdim=True)

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """`U @ diag(S) @ V` of (..., m, n): U and V orthogonal, S falling and not negative.

        U is (..., m, m) and V (..., n, n), or with `full_matrices=False` (..., m, k) and
        (..., k, n), where k is the smaller of both. By one-sided Jacobi rotations (Hestenes, 1958)
        in rounds of disjoint pairs. Raises ValueError for vectors.

        >>> u, s, v = Tensor([[0.0, 2.0], [1.0, 0.0]]).svd()
        >>> [round(x, 4) for x in s.tolist()]
        [2.0, 1.0]
        """
        m, n = self._matrix_sizes("svd")
        if m < n:
            u, s, v = self.transpose(-1, -2).svd(full_matrices)
            return v.transpose(-1, -2), s, u.transpose(-1, -2)
        columns, v = self._as_float()._orthogonal_columns(n)
        # orthogonal columns have a diagonal R, up to signs
        q, r = columns.qr()
        diagonal = r._along(r.ndim - 2, 0, n)._diagonal_of(r.ndim - 2, r.ndim - 1)
        sign = (diagonal < 0).where(-1, 1).cast(q.dtype)
        padded = sign.pad(((0, 0),) * (sign.ndim - 1) + ((0, m - n),), value=1)
        u = q * padded.unsqueeze(-2)
        v = v.transpose(-1, -2)
        if not full_matrices:
            u = u._along(u.ndim - 1, 0, n)
        return u, diagonal.abs(), v

    def _orthogonal_columns(self, n: int) -> tuple[Self, Self]:
        """This times a rotation so that its columns are orthogonal and fall in length; and that."""
        even = n + n % 2
        a: Any = self.pad_to(*(None for _ in self.shape[:-1]), even).contiguous()
        v: Any = self.eye(even, dtype=self.dtype, device=replicated(self.device))
        v = v._broadcast_to((*self.shape[:-2], even, even))
        v = v.contiguous()
        if n > 1:
            for _ in range(_sweeps(n) * (even - 1)):
                a, v = _rotate_pairs(a, v)
        lengths = a.square().sum(-2)
        if even != n:
            # the column that was added stays empty, but equals others of length 0: it goes last
            is_added = v._along(v.ndim - 2, n, even).squeeze(-2).square() > 0.5
            lengths = is_added.where(-1, lengths)
        order = lengths.argsort(-1, descending=True).unsqueeze(-2)
        a, v = (
            x.gather(-1, order._broadcast_to((*x.shape[:-2], x.shape[-2], even))) for x in (a, v)
        )
        v = v.shrink_to(*(None for _ in v.shape[:-2]), n, n)
        return a._along(a.ndim - 1, 0, n), v


def _sweeps(n: int) -> int:
    """How often every pair is rotated; convergence is quadratic, later for larger matrices."""
    return 6 + n.bit_length()


def _rotate_pairs(a: Any, v: Any) -> tuple[Any, Any]:
    """Rotate column i with column n/2 + i until orthogonal, then move columns to new partners."""
    half = a.shape[-1] // 2
    p, q = a._along(a.ndim - 1, 0, half), a._along(a.ndim - 1, half, 2 * half)
    alpha, beta = p.square().sum(-2, keepdim=True), q.square().sum(-2, keepdim=True)
    gamma = (p * q).sum(-2, keepdim=True)
    needed = gamma.abs() > 0
    zeta = (beta - alpha) / needed.where(2 * gamma, 1)
    sign = (zeta < 0).where(-1, 1)
    # beyond 1e15 the square of zeta could overflow, and the angle is 1 / (2 * zeta)
    root = (1 + zeta.abs().clip(0, 1e15).square()).sqrt()
    tangent = needed.where(sign / (zeta.abs() + root), 0)
    cosine = (1 + tangent.square()).rsqrt()
    sine = (cosine * tangent).contiguous()
    cosine = cosine.contiguous()
    return _turned(a, cosine, sine, half), _turned(v, cosine, sine, half)


def _turned(x: Any, cosine: Any, sine: Any, half: int) -> Any:
    """Both halves rotated, then all columns but the first moved by one place in a circle."""
    axis = x.ndim - 1
    p, q = x._along(axis, 0, half), x._along(axis, half, 2 * half)
    top, bottom = cosine * p - sine * q, sine * p + cosine * q
    if half == 1:
        return top.cat(bottom, dim=axis).contiguous()
    first, rest = top._along(axis, 0, 1), top._along(axis, 1, half - 1)
    last = top._along(axis, half - 1, half)
    moved = [bottom._along(axis, 0, 1), rest, bottom._along(axis, 1, half), last]
    return first.cat(*moved, dim=axis).contiguous()
