"""The names of a dialect of C: of types, literals, functions and qualifiers.

A dialect is data: each language of `cuda.py`, `hip.py`, `metal.py`, `opencl.py` and `gnu_c.py` is
one value, which the renderers read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tinygrad.dtype import AddrSpace, DType, dtypes, truncate
from tinygrad.dtype.float_format import BFLOAT16, FLOAT16
from tinygrad.uop import Ops

NARROW_FLOATS = {dtypes.float16: ("half", FLOAT16), dtypes.bfloat16: ("bfloat16", BFLOAT16)}
"""Floats that are only moved and converted: their name in functions of preludes, and format."""
_MIN_INTEGER = -(1 << 63)


@dataclass(frozen=True, eq=False)
class Dialect:
    """What a dialect of C calls things. A dtype without a name in `types` does not exist there."""

    name: str
    types: Mapping[DType, str]
    """The names of scalar types."""
    suffixes: Mapping[DType, str]
    """What a literal of a type ends in."""
    functions: Mapping[Ops, str]
    """The functions that ops are written as, on float64."""
    infinity: Mapping[DType, str]
    nan: Mapping[DType, str]
    float32_suffix: str = "f"
    """What the name of a function ends in, on float32."""
    helper: str = "static inline"
    """The qualifiers of a helper function."""
    unroll: str = "#pragma unroll"
    """Goes before the number of steps of a loop that is unrolled."""
    wraps: bool = False
    """Whether the compiler is told that signed integers wrap around."""

    def type(self, dtype: DType) -> str:
        """The name of a scalar type."""
        return self.types[dtype]

    def function(self, op: Ops, dtype: DType) -> str:
        """The name of the function of an op on float32 or float64."""
        suffix = self.float32_suffix if dtype.scalar() is dtypes.float32 else ""
        return self.functions[op] + suffix

    def literal(self, dtype: DType, value: Any) -> str:
        """A literal of a scalar type."""
        scalar = dtype.scalar()
        if dtypes.is_bool(scalar):
            return str(int(bool(value)))
        if scalar in NARROW_FLOATS:
            name, form = NARROW_FLOATS[scalar]
            return f"{name}_of_bits({form.encode(value):#06x})"
        if dtypes.is_float(scalar):
            return self._float(scalar, float(value))
        return self._integer(scalar, value)

    def _integer(self, dtype: DType, value: Any) -> str:
        convert = truncate.get(dtype)
        integer = int(value) if convert is None else int(convert(value))
        suffix = self.suffixes.get(dtype, "")
        if integer == _MIN_INTEGER:
            # C has no negative literals, and the magnitude does not fit the type
            return f"({integer + 1}{suffix} - 1)"
        if dtype is dtypes.index and abs(integer) >= 1 << 31:
            suffix = self.suffixes[dtypes.int64]
        text = f"{integer}{suffix}"
        return f"({text})" if integer < 0 else text

    def _float(self, dtype: DType, value: float) -> str:
        value = truncate[dtype](value)
        if math.isnan(value):
            return self.nan[dtype]
        if math.isinf(value):
            return f"({'-' if value < 0 else ''}{self.infinity[dtype]})"
        text = f"{_shortest(dtype, value)}{self.suffixes.get(dtype, '')}"
        return f"({text})" if text.startswith("-") else text


@dataclass(frozen=True, eq=False, kw_only=True)
class GPUDialect(Dialect):
    """What a dialect for GPUs calls things. Templates name their fields in braces."""

    prelude: str
    """The file of its prelude."""
    kernel: str
    """The head of a kernel: `threads` of a block, `cluster`, `name` and `parameters`."""
    cluster: str = ""
    """Says how many `blocks` are a cluster, where there are any."""
    few_blocks: str = ""
    """Follows `threads` where a thread needs many registers, so that the compiler does not spill
    some of them to have more blocks resident."""
    pointer: str
    """A pointer parameter: `number`, `type` and `name`."""
    value: str
    """An integer parameter: likewise."""
    tensor_map: str = ""
    """The parameter of a tensor map: `name`, where there are any."""
    struct: str
    """A vector type: `name`, `type` of a lane, `count` of lanes and `alignment` in bytes."""
    shared: str
    """The qualifier of shared memory: `alignment` in bytes."""
    static_shared_bytes: int = 1 << 30
    """Upper bound of the shared memory that a kernel declares; beyond it, the launch gives it."""
    header: str = ""
    """Goes before everything else."""
    spaces: Mapping[AddrSpace, str] = field(default_factory=dict)
    """The qualifier of a pointer to each kind of memory, where the language has them."""
    own_parameters: tuple[str, ...] = ()
    """Parameters for the numbers of a block and a thread, where they are no functions."""
    block_number: str = "block_number()"
    thread_number: str = "thread_number()"


def _shortest(dtype: DType, value: float) -> str:
    """The shortest decimal that rounds to this number in its type."""
    digits = next(n for n in range(1, 18) if truncate[dtype](float(f"{value:.{n}g}")) == value)
    text = f"{value:.{digits}g}"
    return text if any(c in text for c in ".e") else text + ".0"
