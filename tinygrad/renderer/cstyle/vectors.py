"""GNU C vector types, and helper functions for operations that GNU C lacks.

A `VectorLibrary` renders vector expressions and collects the types and functions that they use; its
`text` precedes the kernel. A vector of bools is a mask: integers as wide as the compared elements,
0 or -1 in each lane.
"""

from __future__ import annotations

from tinygrad.dtype import DType, dtypes
from tinygrad.renderer.cstyle.types import SCALARS, is_unsigned, literal, mask_type, type_suffix
from tinygrad.uop import Ops

_LANE_OPERATORS = {Ops.ADD: "+", Ops.MUL: "*", Ops.AND: "&", Ops.OR: "|"}


class VectorLibrary:
    """The vector types and helper functions of one kernel."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.functions: dict[str, str] = {}

    @property
    def text(self) -> str:
        """All definitions, types first."""
        return "".join([*self.types.values(), *self.functions.values()])

    def type(self, dtype: DType) -> str:
        """The name of a scalar or vector type. Vectors of bools are masks; see `mask_type`."""
        if dtype.count == 1:
            return SCALARS[dtype]
        name = type_suffix(dtype)
        if name not in self.types:
            scalar, size = SCALARS[dtype.scalar()], dtype.itemsize
            self.types[name] = (
                f"typedef {scalar} {name} __attribute__((vector_size({size})));\n"
                # vectors in memory are aligned to their elements only
                f"typedef {scalar} {name}_mem __attribute__((vector_size({size}), "
                f"aligned({dtype.scalar().itemsize}), may_alias));\n"
            )
        return name

    def in_memory(self, dtype: DType, address: str) -> str:
        """The lvalue of the vector at an address."""
        return f"*({self.type(dtype)}_mem *)({address})"

    def lanes(self, dtype: DType, values: list[str]) -> str:
        """A vector built from scalars."""
        return f"(({self.type(dtype)}){{{', '.join(values)}}})"

    def splat(self, dtype: DType, value: str) -> str:
        """A splat: one scalar in all lanes."""
        name = self._define(
            f"{self.type(dtype)}_all",
            self.type(dtype),
            f"{SCALARS[dtype.scalar()]} x",
            f"return ({self.type(dtype)}){{{', '.join(['x'] * dtype.count)}}};",
        )
        return f"{name}({value})"

    def constant(self, dtype: DType, value: object) -> str:
        """A splat of a number, or the lanes of a tuple."""
        if isinstance(value, tuple):
            return self.lanes(dtype, [literal(dtype, x) for x in value])
        return self.splat(dtype, literal(dtype, value))

    def convert(self, source: DType, target: DType, value: str) -> str:
        """A lane-wise conversion of values."""
        if source is target:
            return value
        return f"__builtin_convertvector({value}, {self.type(target)})"

    def saturate(self, source: DType, target: DType, value: str) -> str:
        """Floats as integers, of values or of lanes, with those out of range saturated."""
        a, b = source.scalar(), target.scalar()
        scalar = self._define(
            f"{type_suffix(b)}_saturated_{type_suffix(a)}",
            SCALARS[b],
            f"{SCALARS[a]} x",
            f"return {saturated(a, b, 'x')};",
        )
        if target.count == 1:
            return f"{scalar}({value})"
        kind = self.type(target)
        name = self._define(
            f"{kind}_saturated_{self.type(source)}",
            kind,
            f"{self.type(source)} x",
            f"{kind} y; {self._each(target)} y[i] = {scalar}(x[i]); return y;",
        )
        return f"{name}({value})"

    def bits(self, target: DType, value: str) -> str:
        """A bitcast to another vector type."""
        return f"(({self.type(target)}){value})"

    def where(self, dtype: DType, mask: str, yes: str, no: str) -> str:
        """Select lanes of `yes` where the mask, as wide as `dtype`, is set, else of `no`."""
        kind, integers = self.type(dtype), mask_type(dtype.count, dtype.scalar().itemsize)
        m = self.type(integers)
        name = self._define(
            f"{kind}_where",
            kind,
            f"{m} mask, {kind} yes, {kind} no",
            f"return ({kind})((({m})yes & mask) | (({m})no & ~mask));",
        )
        return f"{name}({mask}, {yes}, {no})"

    def call(self, function: str, dtype: DType, value: str) -> str:
        """A scalar function applied to each lane."""
        kind = self.type(dtype)
        name = self._define(
            f"{kind}_{function.removeprefix('__builtin_')}",
            kind,
            f"{kind} x",
            f"{self._each(dtype)} x[i] = {function}(x[i]); return x;",
        )
        return f"{name}({value})"

    def divide(self, dtype: DType, operator: str, a: str, b: str) -> str:
        """Lane-wise integer `a / b` or `a % b` that does not trap on a divisor of 0 or -1."""
        kind = self.type(dtype)
        form = "quotient" if operator == "/" else "remainder"
        name = self._define(
            f"{kind}_{form}",
            kind,
            f"{kind} a, {kind} b",
            f"{self._each(dtype)} a[i] = {safe_division(dtype, operator, 'a[i]', 'b[i]')}; "
            "return a;",
        )
        return f"{name}({a}, {b})"

    def remainder(self, dtype: DType, a: str, b: str) -> str:
        """Lane-wise `fmod(a, b)` of float64."""
        kind = self.type(dtype)
        name = self._define(
            f"{kind}_fmod",
            kind,
            f"{kind} a, {kind} b",
            f"{self._each(dtype)} a[i] = __builtin_fmod(a[i], b[i]); return a;",
        )
        return f"{name}({a}, {b})"

    def reduce(self, op: Ops, dtype: DType, value: str) -> str:
        """A tree reduction of all lanes to a scalar; masks reduce to 0 or -1."""
        kind, scalar = self.type(dtype), SCALARS[dtype.scalar()]
        if op is Ops.MAX:
            step = "x[i] < x[i + n] || x[i + n] != x[i + n] ? x[i + n] : x[i]"
        else:
            step = f"x[i] {_LANE_OPERATORS[op]} x[i + n]"
        name = self._define(
            f"{kind}_reduce_{op.name.lower()}",
            scalar,
            f"{kind} x",
            f"for (int n = {dtype.count // 2}; n > 0; n /= 2) for (int i = 0; i < n; i++) "
            f"x[i] = {step}; return x[0];",
        )
        return f"{name}({value})"

    def load(
        self, dtype: DType, address: str, positions: DType | None, index: str, mask: str, other: str
    ) -> str:
        """A masked load of contiguous lanes, or a gather at `index`, whose type is `positions`.

        Where the byte mask is not set, memory is not touched and the lane is that of `other`.
        """
        return self._access("load", dtype, address, positions, index, mask, other)

    def store(
        self, dtype: DType, address: str, positions: DType | None, index: str, mask: str, value: str
    ) -> str:
        """A masked store or scatter of the lanes of `value`; arguments as in `load`."""
        return self._access("store", dtype, address, positions, index, mask, value)

    def _access(
        self,
        action: str,
        dtype: DType,
        address: str,
        positions: DType | None,
        index: str,
        mask: str,
        value: str,
    ) -> str:
        kind, scalar = self.type(dtype), SCALARS[dtype.scalar()]
        m = self.type(mask_type(dtype.count, 1))
        place = "i" if positions is None else "at[i]"
        extra = "" if positions is None else f", {self.type(positions)} at"
        suffix = "masked" if positions is None else f"at_{type_suffix(positions)}"
        if action == "load":
            result, first = kind, f"const {scalar} *p"
            body = f"if (mask[i]) value[i] = p[{place}]; return value;"
        else:
            result, first = "void", f"{scalar} *p"
            body = f"if (mask[i]) p[{place}] = value[i];"
        name = self._define(
            f"{kind}_{action}_{suffix}",
            result,
            f"{first}{extra}, {m} mask, {kind} value",
            f"{self._each(dtype)} {body}",
        )
        return f"{name}({address}{'' if positions is None else ', ' + index}, {mask}, {value})"

    def scalar_bits(self, source: DType, target: DType, value: str) -> str:
        """A bitcast between scalars."""
        a, b = SCALARS[source], SCALARS[target]
        name = self._define(
            f"{type_suffix(target)}_of_{type_suffix(source)}",
            b,
            f"{a} x",
            f"union {{ {a} from; {b} to; }} bits = {{x}}; return bits.to;",
        )
        return f"{name}({value})"

    @staticmethod
    def _each(dtype: DType) -> str:
        return f"for (int i = 0; i < {dtype.count}; i++)"

    def _define(self, name: str, result: str, parameters: str, body: str) -> str:
        head = f"static inline {result} {name}({parameters})"
        self.functions.setdefault(name, f"{head} {{ {body} }}\n")
        return name


def saturated(source: DType, target: DType, x: str) -> str:
    """A scalar float as an integer: the nearest limit if it is out of range, 0 for NaN."""
    low, high = int(dtypes.min(target)), int(dtypes.max(target))
    # one more than the maximum is a power of two, which every float type holds
    above, below = literal(source, high + 1), literal(source, low)
    converted = f"{x} > {below} ? ({SCALARS[target]}){x} : {literal(target, low)}"
    if low:
        converted = f"{x} != {x} ? 0 : {converted}"
    return f"{x} >= {above} ? {literal(target, high)} : {converted}"


def safe_division(dtype: DType, operator: str, a: str, b: str) -> str:
    """Scalar `/` or `%` that does not trap: x / 0 is 0, x % 0 is x, a divisor of -1 negates."""
    of_zero = "0" if operator == "/" else a
    if is_unsigned(dtype):
        return f"({b} == 0 ? {of_zero} : {a} {operator} {b})"
    of_minus_one = f"-{a}" if operator == "/" else "0"
    return f"({b} == 0 ? {of_zero} : {b} == -1 ? {of_minus_one} : {a} {operator} {b})"
