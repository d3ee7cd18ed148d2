"""Helper functions of one kernel: operations on scalars that C lacks.

A `HelperLibrary` renders calls and collects the types and functions that they use; its definitions
precede the kernel.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.cstyle.dialect import Dialect
from tinygrad.renderer.cstyle.types import is_unsigned, type_suffix


class HelperLibrary:
    """The types and helper functions of one kernel, as text by name."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.types: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    @property
    def definitions(self) -> dict[str, str]:
        """The text of all definitions, types first."""
        return {**self.types, **self.functions}

    def type(self, dtype: DType) -> str:
        """The name of a scalar or vector type."""
        return self.dialect.type(dtype) if dtype.count == 1 else self.vector_type(dtype)

    def vector_type(self, dtype: DType) -> str:
        """The name of a vector type, which is defined on first use."""
        raise NotImplementedError(f"{self.dialect.name} has no vectors")

    def saturate(self, source: DType, target: DType, value: str) -> str:
        """A float as an integer, saturated if it is out of range."""
        name = self._define(
            f"{type_suffix(target)}_saturated_{type_suffix(source)}",
            self.dialect.type(target),
            f"{self.dialect.type(source)} x",
            f"return {self._saturated(source, target, 'x')};",
        )
        return f"{name}({value})"

    def bits(self, source: DType, target: DType, value: str) -> str:
        """A bitcast between scalars."""
        a, b = self.dialect.type(source), self.dialect.type(target)
        name = self._define(
            f"{type_suffix(target)}_of_{type_suffix(source)}",
            b,
            f"{a} x",
            f"union {{ {a} from; {b} to; }} bits = {{x}}; return bits.to;",
        )
        return f"{name}({value})"

    def _saturated(self, source: DType, target: DType, x: str) -> str:
        """A scalar float as an integer: the nearest limit if it is out of range, 0 for NaN."""
        literal = self.dialect.literal
        low, high = int(dtypes.min(target)), int(dtypes.max(target))
        # one more than the maximum is a power of two, which every wide float type holds
        above, below = literal(source, high + 1), literal(source, low)
        converted = f"{x} > {below} ? ({self.dialect.type(target)}){x} : {literal(target, low)}"
        if low:
            converted = f"{x} != {x} ? 0 : {converted}"
        return f"{x} >= {above} ? {literal(target, high)} : {converted}"

    def _define(self, name: str, result: str, parameters: str, body: str) -> str:
        head = f"{self.dialect.helper} {result} {name}({parameters})"
        self.functions.setdefault(name, f"{head} {{ {body} }}\n")
        return name


def safe_division(dtype: DType, operator: str, a: str, b: str, negated: str = "") -> str:
    """Scalar `/` or `%` that does not trap: x / 0 is 0, x % 0 is x, a divisor of -1 negates.

    `negated` is the negative of `a`, where `-a` may not be.
    """
    of_zero = "0" if operator == "/" else a
    if is_unsigned(dtype):
        return f"({b} == 0 ? {of_zero} : {a} {operator} {b})"
    of_minus_one = (negated or f"-{a}") if operator == "/" else "0"
    return f"({b} == 0 ? {of_zero} : {b} == -1 ? {of_minus_one} : {a} {operator} {b})"
