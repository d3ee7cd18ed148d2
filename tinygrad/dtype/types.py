"""The element types: `DType`, `PtrDType`, and their names in `dtypes`.

A type is interned: equal types are one object, so they hash and compare by identity.
"""

from __future__ import annotations

import builtins
import functools
import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, Union
from weakref import WeakValueDictionary

from tinygrad.settings import DEFAULT_FLOAT

if TYPE_CHECKING:
    import numpy

ConstType: TypeAlias = float | int | bool
DTypeLike: TypeAlias = Union["DType", str, type[Any], "numpy.dtype[Any]"]
"""What programs may pass as a dtype; see `to_dtype`."""


class AddrSpace(Enum):
    """The address space of a pointer: global memory, memory of a thread block, registers."""

    GLOBAL = 0
    LOCAL = 1
    REG = 2

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"


class _Interned(type):
    """A metaclass that interns: calls with equal arguments return one object, as long as it is
    used. Programs on ever new sizes make ever new pointer types.
    """

    _instances: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()
    # reentrant, since the garbage collector may run anywhere
    _lock = threading.RLock()

    def __call__(cls, *args: Any) -> Any:
        key = (cls, *args)
        found = cls._instances.get(key)
        if found is None:
            with _Interned._lock:
                found = cls._instances.get(key)
                if found is None:
                    found = cls._instances[key] = super().__call__(*args)
        return found


@functools.total_ordering
@dataclass(frozen=True, eq=False, repr=False)
class DType(metaclass=_Interned):
    """The type of an element, or of a vector of `count` elements. Ordered by promotion."""

    priority: int
    """The promotion order: the lowest type that can hold both operands is chosen."""
    itemsize: int
    """Size in bytes, of all lanes."""
    name: str
    """The name in C."""
    fmt: str | None
    """The format character of the `struct` module, if any."""
    count: int
    """Number of lanes."""
    _scalar: DType | None

    @classmethod
    def new(cls, priority: int, itemsize: int, name: str, fmt: str | None = None) -> DType:
        """The scalar type with these properties."""
        return DType(priority, itemsize, name, fmt, 1, None)

    def __reduce__(self) -> tuple[Any, ...]:
        # copying and unpickling go through the constructor, which interns
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def __repr__(self) -> str:
        scalar = _NAMES.get(self.scalar(), self.scalar().name)
        return f"dtypes.{scalar}" + (f".vec({self.count})" if self.count > 1 else "")

    def __lt__(self, other: DType) -> bool:
        if not isinstance(other, DType):
            return NotImplemented
        mine = self.priority, self.itemsize, self.name, self.count
        return mine < (other.priority, other.itemsize, other.name, other.count)

    @property
    def bitsize(self) -> int:
        """Bits that hold a value, of all lanes: 1 for each bool, which takes a byte of memory."""
        return self.count if self.scalar().fmt == "?" else self.itemsize * 8

    @property
    def min(self) -> ConstType:
        """The minimum, as `dtypes.min`."""
        return dtypes.min(self)

    @property
    def max(self) -> ConstType:
        """The maximum, as `dtypes.max`."""
        return dtypes.max(self)

    @property
    def base(self) -> DType:
        """The pointee of a pointer; any other type itself."""
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
        """The pointer to `size` such elements; -1 if the number is unknown."""
        return PtrDType.of(self, addrspace, size, 1)


@dataclass(frozen=True, eq=False, repr=False)
class PtrDType(DType):
    """The type of a pointer, or of `vcount` pointers. `itemsize` and `count` are its base's."""

    _base: DType
    addrspace: AddrSpace
    size: int
    """Number of elements of the pointee; -1 is unknown."""
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
        """The pointee."""
        return self._base

    @property
    def vcount(self) -> int:
        """The number of pointers."""
        return self._vcount

    def scalar(self) -> DType:
        """The scalar type of the pointee."""
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
        """Bytes of the pointee. Raises TypeError if its size is unknown."""
        if self.size == -1:
            raise TypeError(f"{self!r} does not say how many elements it points to")
        return self.size * self.itemsize


class dtypes:
    """The element types by name, and predicates on them. A vector is treated as its scalar type."""

    void: Final = DType.new(-1, 0, "void")
    # an integer of the width of the device's index arithmetic; never stored in memory
    weakint: Final = DType.new(-1, 8, "index")
    index: Final = weakint
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
    fp8e4m3fnuz: Final = DType.new(12, 1, "float8_e4m3fnuz")
    fp8e5m2fnuz: Final = DType.new(13, 1, "float8_e5m2fnuz")
    float16: Final = DType.new(14, 2, "half", "e")
    bfloat16: Final = DType.new(15, 2, "__bf16")
    float32: Final = DType.new(16, 4, "float", "f")
    float64: Final = DType.new(17, 8, "double", "d")

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

    fp8s: Final = (fp8e4m3, fp8e5m2, fp8e4m3fnuz, fp8e5m2fnuz)
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
        """The minimum; `-inf` for floats, but -448 for fp8e4m3, as that and fnuz types have no
        infinities.
        """
        scalar = dtype.scalar()
        if dtypes.is_float(scalar):
            return -dtypes.max(scalar)
        if dtypes.is_int(scalar):
            return 0 if dtypes.is_unsigned(scalar) else -1 << (scalar.itemsize * 8 - 1)
        return False

    @staticmethod
    @functools.cache
    def max(dtype: DType) -> ConstType:
        """The maximum; `inf` for floats, but 448 for fp8e4m3, 240 and 57344 for fnuz types."""
        scalar = dtype.scalar()
        if dtypes.is_float(scalar):
            return _LARGEST_NUMBERS.get(scalar, builtins.float("inf"))
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
        """The type of a Python number, or the widest type of a nested sequence of them.

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
        """Every name of a type of elements, with the type; `void` and `index` are none."""
        return dict(_FIELDS)


# the later of two names for one type is the short one, used for printing
_NAMED = {
    name: value
    for name, value in vars(dtypes).items()
    if isinstance(value, DType) and not name.startswith("default_")
}
_NAMES = {value: name for name, value in _NAMED.items()}
_FIELDS = {name: value for name, value in _NAMED.items() if value in dtypes.all}

# of the floats without infinities
_LARGEST_NUMBERS = {
    dtypes.fp8e4m3: 448.0,
    dtypes.fp8e4m3fnuz: 240.0,
    dtypes.fp8e5m2fnuz: 57344.0,
}
_FINFO = {
    dtypes.fp8e4m3: (4, 3),
    dtypes.fp8e5m2: (5, 2),
    dtypes.fp8e4m3fnuz: (4, 3),
    dtypes.fp8e5m2fnuz: (5, 2),
    dtypes.float16: (5, 10),
    dtypes.bfloat16: (8, 7),
    dtypes.float32: (8, 23),
    dtypes.float64: (11, 52),
}


def to_dtype(dtype: DTypeLike) -> DType:
    """A type from its name (`"float16"`, `"half"`), or from that of a numpy dtype; `int` and
    `float` are the default types. Raises TypeError for anything else.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, type) and dtype in (bool, int, float):
        return dtypes.from_py(dtype())
    name = dtype.lower() if isinstance(dtype, str) else _numpy_name(dtype)
    if name not in _NAMED:
        raise TypeError(f"{dtype!r} is not a dtype; there are {', '.join(_NAMED)}")
    return _NAMED[name]


def _numpy_name(dtype: Any) -> str:
    """The name of a numpy dtype or scalar type; empty for anything else."""
    import numpy as np

    if isinstance(dtype, np.dtype) or (isinstance(dtype, type) and issubclass(dtype, np.generic)):
        name: str = np.dtype(dtype).name
        return name
    return ""


dtypes.default_float = to_dtype(DEFAULT_FLOAT.value)
if not dtypes.is_float(dtypes.default_float):
    raise TypeError(f"DEFAULT_FLOAT={DEFAULT_FLOAT.value} is not a floating-point type")
