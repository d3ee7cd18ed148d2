"""Random tensors: distributions, initial weights, dropout, sampling.

Input: shapes and the parameters of distributions. Output: tensors whose values depend on the seed
and on the order of draws, not on devices or layouts. They are contiguous by default, since every
use of a tensor must see the same numbers.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.device import Device
from tinygrad.dtype import DType, DTypeLike, dtypes, to_dtype, truncate
from tinygrad.errors import ArgumentError
from tinygrad.helpers import prod
from tinygrad.mixin.creation import known_sizes, max_sizes, sizes_of
from tinygrad.mixin.indexing.sorting import SortingMixin
from tinygrad.storage.files import place_or_create_file
from tinygrad.storage.placement import canonical_device, fitting_layout
from tinygrad.storage.random_generator import random_generator
from tinygrad.uop import Ops
from tinygrad.uop.arguments import integer_argument, number_argument
from tinygrad.uop.broadcast import const_node
from tinygrad.uop.device_value import DeviceLike, TensorDevice, is_file
from tinygrad.uop.ops import UOp, sint
from tinygrad.uop.reshard import computing_device
from tinygrad.uop.sint import index_dtype


class RandomMixin(SortingMixin):
    """`rand`, `randn`, `randint`, `kaiming_uniform`, `dropout`, `multinomial`."""

    __slots__ = ()

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Seed the random number generator; equal seeds give equal numbers. Raises TypeError for
        what is no integer.

        >>> Tensor.manual_seed(42)
        >>> x = Tensor.rand(2).tolist()
        >>> Tensor.manual_seed(42)
        >>> Tensor.rand(2).tolist() == x
        True
        """
        random_generator.seed(integer_argument("manual_seed", "seed", seed))

    def threefry(self, seed: Any) -> Self:
        """Random bits: the Threefry-2x32 hash of 64-bit counters under a 64-bit key.

        Raises TypeError unless both are uint64.

        >>> Tensor([0], dtype=dtypes.uint64).threefry(Tensor([0], dtype=dtypes.uint64)).item()
        11077253088097075545
        """
        a, b = self._operands(seed, False, "threefry")
        if a.dtype is not dtypes.uint64:
            raise TypeError(f"threefry takes uint64, not {a.dtype}; cast both first")
        return self._result(a.alu(Ops.THREEFRY, b), seed)

    @classmethod
    def _random_bits(cls, shape: tuple[int, ...], device: TensorDevice) -> UOp:
        """64 random bits for each element."""
        count = prod(shape)
        start, key = random_generator.draw(device, count)
        number = UOp.arange(count, dtypes.uint64) + start.expand((count,))
        return number.alu(Ops.THREEFRY, key.expand((count,))).reshape(shape)

    @classmethod
    def _random(
        cls,
        node: UOp,
        shape: tuple[sint, ...],
        device: DeviceLike,
        contiguous: bool,
        requires_grad: bool | None,
    ) -> Self:
        """The random numbers `node` on a device; the first of them for a symbolic `shape`."""
        if is_file(device):
            node = place_or_create_file(cls, node, device)
        else:
            node = node.copy_to_device(device)
            node = node.contiguous() if contiguous else node
        found = cls._new(node)
        if found.shape != shape:
            found = found.shrink_to(shape)
        return found.requires_grad_(requires_grad)

    @classmethod
    def rand(
        cls,
        *shape: Any,
        device: DeviceLike = None,
        dtype: DTypeLike | None = None,
        contiguous: bool = True,
        requires_grad: bool | None = None,
    ) -> Self:
        """Uniform random floats in [0, 1). Raises ValueError for an integer dtype.

        >>> x = Tensor.rand(100)
        >>> bool((x >= 0).all().item()), bool((x < 1).all().item())
        (True, True)
        """
        dtype = dtypes.default_float if dtype is None else to_dtype(dtype)
        if not dtypes.is_float(dtype):
            raise ArgumentError(f"rand returns floats, not {dtype}; use randint")
        symbolic, sizes = sizes_of(shape), max_sizes(shape)
        layout = fitting_layout(canonical_device(device) or Device.DEFAULT, sizes)
        if 0 in sizes:
            return cls.zeros(symbolic, dtype=dtype, device=layout, requires_grad=requires_grad)
        node = uniform_node(cls._random_bits(sizes, layout), dtype)
        return cls._random(node, symbolic, layout, contiguous, requires_grad)

    def rand_like(self, **kwargs: Any) -> Self:
        """`rand` with the shape, dtype and device of this tensor, unless given.

        >>> Tensor.ones(2, 3).rand_like().shape
        (2, 3)
        """
        return self.rand(*self.shape, **self._like(kwargs))

    @classmethod
    def randn(
        cls,
        *shape: Any,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
        device: DeviceLike = None,
        **kwargs: Any,
    ) -> Self:
        """Standard normal random numbers (Box and Muller, 1958), in the default float type.

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        dtype = dtypes.default_float if dtype is None else to_dtype(dtype)
        symbolic, sizes = sizes_of(shape), max_sizes(shape)
        layout = fitting_layout(canonical_device(device) or Device.DEFAULT, sizes)
        if 0 in sizes:
            return cls.zeros(symbolic, dtype=dtype, device=layout, requires_grad=requires_grad)
        if dtype is dtypes.float64:
            exact, both = dtypes.float64, cls._new(cls._random_bits((2, *sizes), layout), False)
            bits, others = (both._slice_axis(0, i, i + 1).squeeze(0).uop for i in range(2))
        else:
            # the 64 bits of one number are enough for two floats
            exact, bits = dtypes.float32, cls._random_bits(sizes, layout)
            others = bits.alu(Ops.SHR, const_node(32, bits.dtype))
        radius, angle = (cls._new(uniform_node(x, exact), False) for x in (bits, others))
        normal = (2 * math.pi * angle).cos() * (-2 * (1 - radius).log()).sqrt()
        return cls._random(normal.cast(dtype).uop, symbolic, layout, True, requires_grad)

    def randn_like(
        self, dtype: DTypeLike | None = None, requires_grad: bool | None = None, **kwargs: Any
    ) -> Self:
        """`randn` with the shape, dtype and device of this tensor, unless given.

        >>> Tensor.ones(2, 3).randn_like().shape
        (2, 3)
        """
        settings = {"device": computing_device(self.device)} | kwargs
        dtype = self.dtype if dtype is None else dtype
        return self.randn(*self.shape, dtype=dtype, requires_grad=requires_grad, **settings)

    @classmethod
    def randint(
        cls,
        *shape: Any,
        low: int = 0,
        high: int = 10,
        dtype: DTypeLike = dtypes.int,
        device: DeviceLike = None,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Uniform random integers from `low` to `high`, excluded.

        Raises TypeError for bounds or a dtype other than integers, ValueError for an empty range
        and for one that the dtype cannot hold.

        >>> x = Tensor.randint(100, low=5, high=10)
        >>> bool((x >= 5).all().item()), bool((x < 10).all().item())
        (True, True)
        """
        dtype = to_dtype(dtype)
        if not isinstance(low, int) or not isinstance(high, int) or not dtypes.is_int(dtype):
            raise TypeError(f"randint takes integers, not {low!r} to {high!r} as {dtype}")
        if high <= low:
            raise ArgumentError(f"randint: there is no integer from {low} to below {high}")
        if low < dtypes.min(dtype) or high - 1 > dtypes.max(dtype):
            raise ArgumentError(
                f"randint: {low} to {high - 1} is not within {dtype}, which holds "
                f"{dtypes.min(dtype)} to {dtypes.max(dtype)}; use a wider dtype"
            )
        symbolic, sizes = sizes_of(shape), max_sizes(shape)
        layout = fitting_layout(canonical_device(device) or Device.DEFAULT, sizes)
        if 0 in sizes:
            return cls.zeros(symbolic, dtype=dtype, device=layout, requires_grad=requires_grad)
        bits, span = cls._random_bits(sizes, layout), high - low
        if span <= 1 << 32:
            # the upper half of the product is as uniform as the bits
            bits = (bits & const_node(0xFFFFFFFF, bits.dtype)) * const_node(span, bits.dtype)
            offset = bits.alu(Ops.SHR, const_node(32, bits.dtype))
        else:
            offset = bits.alu(Ops.MOD, const_node(span, bits.dtype))
        node = (offset + const_node(low, bits.dtype)).cast(dtype)
        return cls._random(node, symbolic, layout, True, requires_grad)

    @classmethod
    def uniform(
        cls,
        *shape: Any,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Uniform random floats in [low, high), as `dtype` rounds `low`.

        >>> bool((Tensor.uniform(100, low=2, high=3) >= 2).all().item())
        True
        """
        dtype = dtypes.default_float if dtype is None else to_dtype(dtype)
        exact = dtypes.float64 if dtype is dtypes.float64 else None
        low, high = (
            number_argument("uniform", name, x) for name, x in (("low", low), ("high", high))
        )
        unit = cls.rand(*shape, dtype=exact, **kwargs)
        found = (high - low) * unit + low
        if low < high < math.inf and (low or dtype.itemsize < dtypes.float32.itemsize):
            # the sum and the cast may round up to `high`
            kind = dtype if dtypes.is_float(dtype) else dtypes.float32
            found = found.minimum(_largest_below(high, kind))
        return found.cast(dtype).requires_grad_(requires_grad)

    @classmethod
    def normal(
        cls,
        *shape: Any,
        mean: float = 0.0,
        std: float = 1.0,
        requires_grad: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Normal random numbers with this mean and standard deviation. Raises ValueError for a
        negative deviation.

        >>> Tensor.normal(2, 3, mean=10, std=2).shape
        (2, 3)
        """
        if isinstance(std, (int, float)) and not std >= 0:
            raise ArgumentError(f"normal: std={std} must be nonnegative")
        return (std * cls.randn(*shape, **kwargs) + mean).requires_grad_(requires_grad)

    @classmethod
    def randperm(
        cls, n: int, device: DeviceLike = None, dtype: DTypeLike = dtypes.int, **kwargs: Any
    ) -> Self:
        """A random permutation of the integers below `n`.

        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        order = cls.rand(n, device=device).argsort().cast(dtype)
        return order.requires_grad_(kwargs.get("requires_grad"))

    # ---- initial weights: arXiv:1502.01852, and Glorot and Bengio (2010) ----

    @classmethod
    def scaled_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Uniform in [-1, 1), divided by the square root of the number of elements.

        >>> Tensor.scaled_uniform(2, 3).shape
        (2, 3)
        """
        bound = max(1, prod(known_sizes(shape))) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **kwargs: Any) -> Self:
        """Glorot (Xavier) uniform initialization. Raises ValueError for a shape without axes.

        >>> Tensor.glorot_uniform(2, 3).shape
        (2, 3)
        """
        sizes = known_sizes(shape)
        if not sizes:
            raise ArgumentError("glorot_uniform needs a shape with axes, not ()")
        bound = math.sqrt(6 / max(1, sizes[0] + prod(sizes[1:])))
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Kaiming (He) uniform initialization, for leaky relu of slope `a`.

        >>> Tensor.kaiming_uniform(2, 3).shape
        (2, 3)
        """
        bound = math.sqrt(3.0) * _kaiming_deviation(shape, a)
        return cls.uniform(*shape, low=-bound, high=bound, **kwargs)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **kwargs: Any) -> Self:
        """Kaiming (He) normal initialization, for leaky relu of slope `a`.

        >>> Tensor.kaiming_normal(2, 3).shape
        (2, 3)
        """
        return cls.normal(*shape, mean=0.0, std=_kaiming_deviation(shape, a), **kwargs)

    # ---- dropout and sampling ----

    def dropout(self, p: float = 0.5) -> Self:
        """Dropout: zero each element with probability `p`, and scale the others by 1 / (1 - p).

        The identity unless `Tensor.training`. Raises ValueError for a `p` outside [0, 1].

        >>> Tensor([1.0, 2.0]).dropout().tolist()
        [1.0, 2.0]
        """
        p = number_argument("dropout", "p", p)
        if not 0 <= p <= 1:
            raise ArgumentError(f"dropout: p={p} is not within 0 to 1")
        if not type(self).training or p == 0:  # type: ignore[attr-defined]
            return self
        chance = self.rand_like(dtype=dtypes.float32, requires_grad=False, contiguous=False)
        return (chance >= p).where(self, 0) / (1.0 - p if p < 1 else 1.0)

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Sample indices with the elements as weights, as int32, or int64 past 2**31 elements.

        From a vector (n,), or from each row of (rows, n). Raises ValueError for other shapes, and
        for more samples than elements without replacement. Where no weight is positive, the indices
        are arbitrary.

        >>> Tensor([0.0, 1.0, 0.0]).multinomial(2, replacement=True).tolist()
        [1, 1]
        """
        num_samples = integer_argument("multinomial", "num_samples", num_samples)
        if self.ndim not in (1, 2) or num_samples <= 0:
            raise ArgumentError(
                f"multinomial: {num_samples} samples of shape {self.shape}; it takes one sample or "
                "more of a vector, or of each row of a matrix"
            )
        weight = self.unsqueeze(0) if self.ndim == 1 else self
        rows, count = weight.shape
        if num_samples > count and not replacement:
            raise ArgumentError(
                f"multinomial: {num_samples} samples of {count} elements need replacement=True"
            )
        if replacement or num_samples == 1:
            total = weight._relative_weights().cumsum(1)
            chance = self.rand(rows, num_samples, 1, device=computing_device(self.device))
            whole = total._slice_axis(1, count - 1, count)
            below = chance * whole.unsqueeze(1) >= total.unsqueeze(1)
            # not past the last positive weight
            chosen = below.sum(2).minimum((total < whole).sum(1, keepdim=True))
        else:
            # exponential arrival times at these rates: the first arrivals are the sample
            rate = weight.cast(dtypes.float32)
            time = (1 - self.rand(rows, count, device=computing_device(self.device))).log() / rate
            chosen = (rate > 0).where(time, -math.inf).topk(num_samples, dim=1)[1]
        return (chosen.squeeze(0) if self.ndim == 1 else chosen).cast(index_dtype(count))

    def _relative_weights(self) -> Self:
        """Weights (rows, n) relative to the maximum of their row, so that sums do not overflow."""
        weight = self.cast(dtypes.float32)
        largest = weight.max(1, keepdim=True)
        # beside infinite weights, finite ones are 0
        infinite = weight.isinf().cast(dtypes.float32)
        scaled = largest.isinf().where(infinite, weight / largest)
        return (largest > 0).where(scaled, 0)


def uniform_node(bits: UOp, dtype: DType) -> UOp:
    """64 random bits as floats in [0, 1), with the precision of the dtype."""
    precision = dtypes.finfo(dtype)[1] + 1
    if precision <= 32:
        bits, width, signed, exact = bits.cast(dtypes.uint32), 32, dtypes.int32, dtypes.float32
    else:
        width, signed, exact = 64, dtypes.int64, dtypes.float64
    top = bits.alu(Ops.SHR, const_node(width - precision, bits.dtype))
    return (top.cast(signed).cast(exact) * const_node(2.0**-precision, exact)).cast(dtype)


def _largest_below(limit: float, dtype: DType) -> float:
    """The largest number of a float dtype that is less than `limit`."""
    rounded: float = truncate[dtype](limit)
    if rounded < limit:
        return rounded
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    exponent = math.frexp(rounded)[1] - 1 if rounded else -math.inf
    smallest = 2 - (1 << (exponent_bits - 1))
    spacing = math.ldexp(1.0, int(max(exponent, smallest)) - mantissa_bits)
    # the spacing below a power of two is half of that above: this is nearest to either neighbour
    below: float = truncate[dtype](rounded - 0.625 * spacing)
    return below


def _kaiming_deviation(shape: tuple[Any, ...], a: float) -> float:
    fan_in = max(1, prod(known_sizes(shape)[1:]))
    slope = number_argument("kaiming initialization", "a", a)
    return math.sqrt(2.0 / (1 + slope**2)) / math.sqrt(fan_in)
