"""QR and singular value decompositions.

Input: matrices in the last two axes, of known sizes; integers become floats. Output: their factors.
Each step is a tensor operation, so a decomposition runs on the device of the matrix.
"""

from __future__ import annotations

from typing import Any, Self

from tinygrad.errors import ArgumentError
from tinygrad.mixin.indexing.sorting import SortingMixin
from tinygrad.mixin.linalg.matmul import MatmulMixin
from tinygrad.mixin.precision import in_float32
from tinygrad.uop.device_value import replicated


class LinalgMixin(MatmulMixin, SortingMixin):
    """`qr`, `svd`."""

    __slots__ = ()

    def _matrix_sizes(self, what: str) -> tuple[int, int]:
        if self.ndim < 2:
            raise ArgumentError(f"{what} takes matrices, not shape {self.shape}")
        return int(self.shape[-2]), int(self.shape[-1])

    @in_float32
    def qr(self) -> tuple[Self, Self]:
        """QR decomposition: (..., m, n) to orthogonal (..., m, m) and upper triangular (..., m, n).

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
            r = r._reflect(v).contiguous()
            q = q.transpose(-1, -2)._reflect(v).transpose(-1, -2).contiguous()
        # rounding leaves small numbers below the diagonal
        return q, r.triu()

    def _reflector(self, k: int) -> Self:
        """The unit vector (..., m, 1) whose reflection zeroes column `k` below the diagonal."""
        m = self.shape[-2]
        position = self._positions_along(m).reshape(m, 1)
        column = (position >= k).where(self._slice_axis(self.ndim - 1, k, k + 1), 0)
        corner = column._slice_axis(self.ndim - 2, k, k + 1)
        length = column.square().sum(-2, keepdim=True).sqrt()
        # of the corner's sign, so that the sum does not cancel
        shift = (corner < 0).where(length.neg(), length)
        v = column + position.eq(k).where(shift, 0)
        norm = v.square().sum(-2, keepdim=True).sqrt()
        return ((norm > 0).where(v / norm, 0)).contiguous()

    def _reflect(self, v: Self) -> Self:
        return self - 2 * v * (v * self).sum(-2, keepdim=True)

    @in_float32
    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """Singular value decomposition `U @ diag(S) @ V` of (..., m, n), S in descending order.

        U is (..., m, m) and V (..., n, n), both orthogonal; with `full_matrices=False`, (..., m, k)
        and (..., k, n) for k = min(m, n). By one-sided Jacobi rotations (Hestenes, 1958) in rounds
        of disjoint pairs. Raises ValueError for vectors.

        >>> u, s, v = Tensor([[0.0, 2.0], [1.0, 0.0]]).svd()
        >>> [round(x, 4) for x in s.tolist()]
        [2.0, 1.0]
        """
        m, n = self._matrix_sizes("svd")
        if m < n:
            u, s, v = self.transpose(-1, -2).svd(full_matrices)
            return v.transpose(-1, -2), s, u.transpose(-1, -2)
        columns, v = self._as_float()._orthogonal_columns(n)
        # R of orthogonal columns is diagonal, up to signs
        q, r = columns.qr()
        diagonal = r._slice_axis(r.ndim - 2, 0, n)._take_diagonal(r.ndim - 2, r.ndim - 1)
        sign = (diagonal < 0).where(-1, 1).cast(q.dtype)
        padded = sign.pad(((0, 0),) * (sign.ndim - 1) + ((0, m - n),), value=1)
        u = q * padded.unsqueeze(-2)
        v = v.transpose(-1, -2)
        if not full_matrices:
            u = u._slice_axis(u.ndim - 1, 0, n)
        return u, diagonal.abs(), v

    def _orthogonal_columns(self, n: int) -> tuple[Self, Self]:
        """This matrix times a rotation, with orthogonal columns of falling norm; the rotation."""
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
            # the padding column has norm 0, as others may: sort it last
            is_added = v._slice_axis(v.ndim - 2, n, even).squeeze(-2).square() > 0.5
            lengths = is_added.where(-1, lengths)
        order = lengths.argsort(-1, descending=True).unsqueeze(-2)
        a, v = (
            x.gather(-1, order._broadcast_to((*x.shape[:-2], x.shape[-2], even))) for x in (a, v)
        )
        v = v.shrink_to(*(None for _ in v.shape[:-2]), n, n)
        return a._slice_axis(a.ndim - 1, 0, n), v


def _sweeps(n: int) -> int:
    """The number of sweeps over all pairs; convergence is quadratic, later for larger sizes."""
    return 6 + n.bit_length()


def _rotate_pairs(a: Any, v: Any) -> tuple[Any, Any]:
    """Make columns i and n/2 + i orthogonal, then move the columns to new partners."""
    half = a.shape[-1] // 2
    p, q = a._slice_axis(a.ndim - 1, 0, half), a._slice_axis(a.ndim - 1, half, 2 * half)
    alpha, beta = p.square().sum(-2, keepdim=True), q.square().sum(-2, keepdim=True)
    gamma = (p * q).sum(-2, keepdim=True)
    needed = gamma.abs() > 0
    zeta = (beta - alpha) / needed.where(2 * gamma, 1)
    sign = (zeta < 0).where(-1, 1)
    # above 1e15 the square of zeta may overflow, and the tangent is 1 / (2 * zeta)
    root = (1 + zeta.abs().clip(0, 1e15).square()).sqrt()
    tangent = needed.where(sign / (zeta.abs() + root), 0)
    cosine = (1 + tangent.square()).rsqrt()
    sine = (cosine * tangent).contiguous()
    cosine = cosine.contiguous()
    return _rotate_columns(a, cosine, sine, half), _rotate_columns(v, cosine, sine, half)


def _rotate_columns(x: Any, cosine: Any, sine: Any, half: int) -> Any:
    """Rotate both halves, then shift all columns but the first by one position in a cycle."""
    axis = x.ndim - 1
    p, q = x._slice_axis(axis, 0, half), x._slice_axis(axis, half, 2 * half)
    top, bottom = cosine * p - sine * q, sine * p + cosine * q
    if half == 1:
        return top.cat(bottom, dim=axis).contiguous()
    first, rest = top._slice_axis(axis, 0, 1), top._slice_axis(axis, 1, half - 1)
    last = top._slice_axis(axis, half - 1, half)
    moved = [bottom._slice_axis(axis, 0, 1), rest, bottom._slice_axis(axis, 1, half), last]
    return first.cat(*moved, dim=axis).contiguous()
