"""The types of elements: what they are, how they promote, and what values they hold.

A `DType` is interned: equal types are one object, so they hash and compare by identity. `dtypes`
names them. Promotion follows JAX's lattice. Conversion between Python numbers, numpy arrays and the
bits of narrow floats is in `float_format.py`.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeGuard

from tinygrad.float_format import BFLOAT16, FLOAT16, FLOAT32, FP8E4M3, FP8E5M2, FloatFormat
from tinygrad.settings import DEFAULT_FLOAT

if TYPE_CHECKING:
    import numpy

ConstType: TypeAlias = float | int | bool


class AddrSpace(Enum):
    """Where a pointer points: memory of the device, of a thread group, registers of a thread."""

    GLOBAL = 0
    LOCAL = 1
    REG = 2

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"


class _Interned(type):
    """Makes calls with the same arguments give the same object."""

    _instances: ClassVar[dict[tuple[Any, ...], Any]] = {}

    def __call__(cls, *args: Any) -> Any:
        key = (cls, *args)
        if key not in cls._instances:
            cls._instances[key] = super().__call__(*args)
        return cls._instances[key]


@dataclass(frozen=True, eq=False, repr=False)
class DType(metaclass=_Interned):
    """The type of an element, or of `count` elements that travel together as a vector."""

    priority: int
    """Orders promotion: of the types that can hold both operands, the lowest is taken."""
    itemsize: int
    """Size in bytes, of all lanes."""
    name: str
    """What C calls it."""
    fmt: str | None
    """The format character of the `struct` module, where it has one."""
    count: int
    """Number of lanes."""
    _scalar: DType | None

    @classmethod
    def new(cls, priority: int, itemsize: int, name: str, fmt: str | None = None) -> DType:
        """The scalar type with these properties."""
        return DType(priority, itemsize, name, fmt, 1, None)

    def __reduce__(self) -> tuple[Any, ...]:
        # copying and unpickling go through the constructor, which interns
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def __repr__(self) -> str:
        scalar = _NAMES.get(self.scalar(), self.scalar().name)
        return f"dtypes.{scalar}" + (f".vec({self.count})" if self.count > 1 else "")

    @property
    def base(self) -> DType:
        """What a pointer points to; any other type itself."""
        return self

    @property
    def vcount(self) -> int:
        """Number of lanes: of a pointer type, how many pointers; else `count`."""
        return self.count

    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self._scalar is None else self._scalar

    def vec(self, size: int) -> DType:
        """The vector of `size` such elements. Raises TypeError on a vector."""
        if size == self.count or self.name == "void":
            return self
        if self.count != 1:
            raise TypeError(f"cannot make {size} lanes of {self!r}, which is a vector already")
        return DType(
            self.priority, self.itemsize * size, f"{self.name}{size}", None, size, self.scalar()
        )

    def ptr(self, size: int = -1, addrspace: AddrSpace = AddrSpace.GLOBAL) -> PtrDType:
        """The pointer to `size` such elements; -1 says the number is not known."""
        return PtrDType.of(self, addrspace, size, 1)


@dataclass(frozen=True, eq=False, repr=False)
class PtrDType(DType):
    """The type of a pointer, or of `vcount` pointers. `itemsize` and `count` are its base's."""

    _base: DType
    addrspace: AddrSpace
    size: int
    """Number of elements behind the pointer; -1 is unknown."""
    _vcount: int

    @classmethod
    def of(cls, base: DType, addrspace: AddrSpace, size: int, vcount: int) -> PtrDType:
        """`vcount` pointers, each to `size` elements of `base`."""
        shared = (base.priority, base.itemsize, base.name, base.fmt, base.count, base._scalar)
        return PtrDType(*shared, base, addrspace, size, vcount)

    def __repr__(self) -> str:
        place = "" if self.addrspace is AddrSpace.GLOBAL else f", {self.addrspace!r}"
        lanes = f".vec({self._vcount})" if self._vcount > 1 else ""
        return f"{self._base!r}.ptr({self.size}{place}){lanes}"

    @property
    def base(self) -> DType:
        """What it points to."""
        return self._base

    @property
    def vcount(self) -> int:
        """How many pointers it is."""
        return self._vcount

    def scalar(self) -> DType:
        """The scalar type that it points to."""
        return self._base.scalar()

    def vec(self, size: int) -> PtrDType:
        """A vector of `size` such pointers. Raises TypeError on a vector of pointers."""
        if size == self._vcount:
            return self
        if self._vcount != 1:
            raise TypeError(f"cannot make {size} lanes of {self!r}, which is a vector already")
        return PtrDType.of(self._base, self.addrspace, self.size, size)

    def ptr(self, size: int = -1, addrspace: AddrSpace = AddrSpace.GLOBAL) -> PtrDType:
        """Raises TypeError: there are no pointers to pointers."""
        raise TypeError(f"cannot point to {self!r}; point to its base")

    def nbytes(self) -> int:
        """Bytes behind the pointer. Raises TypeError if its size is not known."""
        if self.size == -1:
            raise TypeError(f"{self!r} does not say how many elements it points to")
        return self.size * self.itemsize


class dtypes:
    """The element types by name, and questions about them. Vectors are asked about as scalars."""

    void: Final = DType.new(-1, 0, "void")
    # an integer of whatever width the device's index arithmetic needs; never stored in memory
    index: Final = DType.new(-1, 8, "index")
    bool: Final = DType.new(0, 1, "bool", "?")
    int8: Final = DType.new(1, 1, "signed char", "b")
    uint8: Final = DType.new(2, 1, "unsigned char", "B")
    int16: Final = DType.new(3, 2, "short", "h")
    uint16: Final = DType.new(4, 2, "unsigned short", "H")
    int32: Final = DType.new(5, 4, "int", "i")
    uint32: Final = DType.new(6, 4, "unsigned int", "I")
    int64: Final = DType.new(7, 8, "long", "q")
    uint64: Final = DType.new(8, 8, "unsigned long", "Q")
    fp8e4m3: Final = DType.new(10, 1, "float8_e4m3")
    fp8e5m2: Final = DType.new(11, 1, "float8_e5m2")
    float16: Final = DType.new(12, 2, "half", "e")
    bfloat16: Final = DType.new(13, 2, "__bf16")
    float32: Final = DType.new(14, 4, "float", "f")
    float64: Final = DType.new(15, 8, "double", "d")

    char: Final = int8
    uchar: Final = uint8
    short: Final = int16
    ushort: Final = uint16
    int: Final = int32
    uint: Final = uint32
    long: Final = int64
    ulong: Final = uint64
    half: Final = float16
    float: Final = float32
    double: Final = float64

    fp8s: Final = (fp8e4m3, fp8e5m2)
    floats: Final = (*fp8s, float16, bfloat16, float32, float64)
    uints: Final = (uint8, uint16, uint32, uint64)
    sints: Final = (int8, int16, int32, int64)
    ints: Final = (*uints, *sints)
    index_like: Final = (index,)
    all: Final = (*floats, *ints, bool)

    default_float: ClassVar[DType] = float32
    """The type of Python floats; may be set, also by the DEFAULT_FLOAT setting."""
    default_int: ClassVar[DType] = int32
    """The type of Python ints; may be set."""

    @staticmethod
    @functools.cache
    def is_float(dtype: DType) -> builtins.bool:
        """Whether it is a floating-point type."""
        return dtype.scalar() in dtypes.floats

    @staticmethod
    @functools.cache
    def is_int(dtype: DType) -> builtins.bool:
        """Whether it is an integer type; `index` is one, `bool` is not."""
        return dtype.scalar() in dtypes.ints or dtype.scalar() in dtypes.index_like

    @staticmethod
    @functools.cache
    def is_unsigned(dtype: DType) -> builtins.bool:
        """Whether it is an unsigned integer type."""
        return dtype.scalar() in dtypes.uints

    @staticmethod
    def is_bool(dtype: DType) -> builtins.bool:
        """Whether it is `bool`."""
        return dtype.scalar() is dtypes.bool

    @staticmethod
    @functools.cache
    def min(dtype: DType) -> ConstType:
        """The least value; `-inf` for floats."""
        scalar = dtype.scalar()
        if dtypes.is_float(scalar):
            return -builtins.float("inf")
        if dtypes.is_int(scalar):
            return 0 if dtypes.is_unsigned(scalar) else -1 << (scalar.itemsize * 8 - 1)
        return False

    @staticmethod
    @functools.cache
    def max(dtype: DType) -> ConstType:
        """The greatest value; `inf` for floats."""
        scalar = dtype.scalar()
        if dtypes.is_float(scalar):
            return builtins.float("inf")
        if dtypes.is_int(scalar):
            bits = scalar.itemsize * 8 - (not dtypes.is_unsigned(scalar))
            return (1 << bits) - 1
        return True

    @staticmethod
    def finfo(dtype: DType) -> tuple[builtins.int, builtins.int]:
        """The bits of a float's exponent and mantissa. Raises TypeError unless it is a float."""
        if dtype.scalar() not in _FINFO:
            raise TypeError(f"finfo needs a floating-point type, not {dtype!r}")
        return _FINFO[dtype.scalar()]

    @staticmethod
    def as_const(value: Any, dtype: DType) -> Any:
        """A Python number as the Python type of `dtype`; for a sequence, a tuple of them."""
        if isinstance(value, tuple | list):
            return tuple(dtypes.as_const(item, dtype) for item in value)
        if dtypes.is_float(dtype):
            return builtins.float(value)
        return builtins.int(value) if dtypes.is_int(dtype) else builtins.bool(value)

    @staticmethod
    def from_py(value: Any) -> DType:
        """The type a Python number, or the widest of a nested sequence of them, gets.

        Raises TypeError for anything else.
        """
        if isinstance(value, builtins.bool):
            return dtypes.bool
        if isinstance(value, builtins.int):
            return dtypes.default_int
        if isinstance(value, builtins.float):
            return dtypes.default_float
        if isinstance(value, tuple | list):
            if not value:
                return dtypes.default_float
            return builtins.max((dtypes.from_py(x) for x in value), key=lambda d: d.priority)
        raise TypeError(f"no dtype for {value!r} of type {type(value).__name__}")

    @staticmethod
    def fields() -> dict[str, DType]:
        """Every name of a type, with the type."""
        return dict(_FIELDS)


# the later of two names for one type is the short one, which the type is printed as
_FIELDS = {
    name: value
    for name, value in vars(dtypes).items()
    if isinstance(value, DType) and not name.startswith("default_")
}
_NAMES = {value: name for name, value in _FIELDS.items()}

_FINFO = {
    dtypes.fp8e4m3: (4, 3),
    dtypes.fp8e5m2: (5, 2),
    dtypes.float16: (5, 10),
    dtypes.bfloat16: (8, 7),
    dtypes.float32: (8, 23),
    dtypes.float64: (11, 52),
}


def to_dtype(dtype: DType | str) -> DType:
    """A type from its name (`"float16"`, `"half"`). Raises TypeError for an unknown name."""
    if isinstance(dtype, DType):
        return dtype
    if dtype.lower() not in _FIELDS:
        raise TypeError(f"{dtype!r} is not a dtype; there are {', '.join(_FIELDS)}")
    return _FIELDS[dtype.lower()]


# *** promotion: https://docs.jax.dev/en/latest/jep/9407-type-promotion.html ***

# what int64 and uint64 have in common: some float, of no width of its own; it becomes default_float
_WEAK_FLOAT = DType.new(9, 0, "weak float")

_NEXT_WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (_WEAK_FLOAT,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (_WEAK_FLOAT,),
    _WEAK_FLOAT: dtypes.fp8s,
    dtypes.fp8e4m3: (dtypes.float16, dtypes.bfloat16),
    dtypes.fp8e5m2: (dtypes.float16, dtypes.bfloat16),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


@functools.cache
def _at_least(dtype: DType) -> frozenset[DType]:
    """The types that `dtype` promotes to, itself included."""
    if dtype not in _NEXT_WIDER:
        raise TypeError(f"{dtype!r} does not promote; cast it first")
    return frozenset({dtype}).union(*(_at_least(wider) for wider in _NEXT_WIDER[dtype]))


@functools.cache
def _join(ds: tuple[DType, ...]) -> DType:
    if len(set(ds)) == 1:
        return ds[0]
    return min(frozenset.intersection(*map(_at_least, ds)), key=lambda dtype: dtype.priority)


def least_upper_dtype(*ds: DType) -> DType:
    """The type that operands of these types are computed in.

    int64 with uint64 gives `dtypes.default_float`. Raises TypeError where different types include
    one that does not promote: `void`, `index`, a vector or a pointer.
    """
    joined = _join(ds)
    return dtypes.default_float if joined is _WEAK_FLOAT else joined


def least_upper_float(dtype: DType) -> DType:
    """A float type as it is; for any other, what it and the default float give."""
    return dtype if dtypes.is_float(dtype) else least_upper_dtype(dtype, dtypes.default_float)


@functools.cache
def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target` too."""
    if source is target or dtypes.is_bool(source):
        return True
    if dtypes.is_bool(target):
        return False
    if dtypes.is_int(source) and dtypes.is_int(target):
        return dtypes.min(target) <= dtypes.min(source) and dtypes.max(source) <= dtypes.max(target)
    if not dtypes.is_float(target):
        return False
    exponent, mantissa = dtypes.finfo(target)
    if dtypes.is_int(source):
        bits = source.scalar().itemsize * 8 - (not dtypes.is_unsigned(source))
        return bits <= mantissa + 1 and bits < 2 ** (exponent - 1)
    source_exponent, source_mantissa = dtypes.finfo(source)
    return source_exponent <= exponent and source_mantissa <= mantissa


def sum_acc_dtype(dtype: DType) -> DType:
    """The type that a sum of such values is accumulated in."""
    if dtypes.is_unsigned(dtype):
        return least_upper_dtype(dtype, dtypes.uint32)
    if dtypes.is_int(dtype) or dtypes.is_bool(dtype):
        return least_upper_dtype(dtype, dtypes.int32)
    return least_upper_dtype(dtype, dtypes.float32)


# *** values ***

_FORMATS: dict[DType, FloatFormat] = {
    dtypes.fp8e4m3: FP8E4M3,
    dtypes.fp8e5m2: FP8E5M2,
    dtypes.float16: FLOAT16,
    dtypes.bfloat16: BFLOAT16,
    dtypes.float32: FLOAT32,
}


def _wrap(value: Any, bits: int, signed: bool) -> int:
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if signed and wrapped >> (bits - 1) else wrapped


truncate: dict[DType, Callable[[Any], Any]] = {
    dtypes.bool: bool,
    dtypes.float64: float,
    **{dtype: form.round for dtype, form in _FORMATS.items()},
    **{
        dtype: functools.partial(_wrap, bits=dtype.itemsize * 8, signed=dtype in dtypes.sints)
        for dtype in dtypes.ints
    },
}
"""For each type, the function that turns a Python number into the value the type would hold:
integers wrap around, floats round to nearest, ties to even."""


def to_storage_scalar(value: ConstType, dtype: DType) -> ConstType:
    """What to put into an array of `to_numpy_dtype(dtype)`: for bfloat16 and fp8, the bits."""
    return _FORMATS[dtype].encode(float(value)) if is_stored_as_bits(dtype) else value


def is_stored_as_bits(dtype: DType) -> bool:
    """Whether numpy has no such type, so that arrays hold its bits as unsigned integers."""
    return dtypes.is_float(dtype) and dtype.fmt is None


def to_numpy_dtype(dtype: DType) -> numpy.dtype[Any]:
    """The numpy type of the stored elements; see `is_stored_as_bits`. Raises TypeError for void."""
    import numpy

    if is_stored_as_bits(dtype):
        return numpy.dtype(f"u{dtype.itemsize}")
    if dtype is dtypes.index:
        return numpy.dtype("i8")
    if dtype.fmt is None:
        raise TypeError(f"numpy has no type for {dtype!r}")
    return numpy.dtype(f"={dtype.fmt}")


def from_numpy_dtype(dtype: Any) -> DType:
    """The type of a numpy type's elements, ml_dtypes' included. Raises TypeError if none is."""
    import numpy

    name = numpy.dtype(dtype).name
    name = {"float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2"}.get(name, name)
    if name not in _FIELDS:
        raise TypeError(f"there is no dtype for numpy's {name}")
    return _FIELDS[name]


def to_float32_array(stored: numpy.ndarray[Any, Any], dtype: DType) -> numpy.ndarray[Any, Any]:
    """An array of the bits of `dtype` (bfloat16 or fp8) as float32 values, of the same shape."""
    return _FORMATS[dtype].decode_array(stored)


def from_float32_array(values: numpy.ndarray[Any, Any], dtype: DType) -> numpy.ndarray[Any, Any]:
    """An array of floats as the bits of `dtype` (bfloat16 or fp8), of the same shape, rounded."""
    return _FORMATS[dtype].encode_array(values)


def is_const(value: object) -> TypeGuard[ConstType]:
    """Whether it is a Python number, which has no device and takes its neighbour's type."""
    return isinstance(value, int | float)


dtypes.default_float = to_dtype(DEFAULT_FLOAT.value)
if not dtypes.is_float(dtypes.default_float):
    raise TypeError(f"DEFAULT_FLOAT={DEFAULT_FLOAT.value} is not a floating-point type")
