"""GNU C vector types, and helper functions for operations on vectors that GNU C lacks.

A vector of bools is a mask: integers as wide as the compared elements, 0 or -1 in each lane.
"""

from __future__ import annotations

from tinygrad.dtype import DType
from tinygrad.renderer.cstyle.helpers import HelperLibrary, safe_division
from tinygrad.renderer.cstyle.types import mask_type, type_suffix
from tinygrad.uop import Ops

_LANE_OPERATORS = {Ops.ADD: "+", Ops.MUL: "*", Ops.AND: "&", Ops.OR: "|"}


class VectorLibrary(HelperLibrary):
    """The vector types and helper functions of one kernel in GNU C."""

    def vector_type(self, dtype: DType) -> str:
        name = type_suffix(dtype)
        if name not in self.types:
            scalar, size = self.dialect.type(dtype.scalar()), dtype.itemsize
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
            f"{self.dialect.type(dtype.scalar())} x",
            f"return ({self.type(dtype)}){{{', '.join(['x'] * dtype.count)}}};",
        )
        return f"{name}({value})"

    def constant(self, dtype: DType, value: object) -> str:
        """A splat of a number, or the lanes of a tuple."""
        if isinstance(value, tuple):
            return self.lanes(dtype, [self.dialect.literal(dtype, x) for x in value])
        return self.splat(dtype, self.dialect.literal(dtype, value))

    def convert(self, source: DType, target: DType, value: str) -> str:
        """A lane-wise conversion of values."""
        if source is target:
            return value
        return f"__builtin_convertvector({value}, {self.type(target)})"

    def saturate(self, source: DType, target: DType, value: str) -> str:
        if target.count == 1:
            return super().saturate(source, target, value)
        kind = self.type(target)
        lane = super().saturate(source.scalar(), target.scalar(), "x[i]")
        name = self._define(
            f"{kind}_saturated_{self.type(source)}",
            kind,
            f"{self.type(source)} x",
            f"{kind} y; {self._each(target)} y[i] = {lane}; return y;",
        )
        return f"{name}({value})"

    def bits(self, source: DType, target: DType, value: str) -> str:
        if target.count == 1:
            return super().bits(source, target, value)
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

    def call(self, op: Ops, dtype: DType, value: str) -> str:
        """The function of an op on each lane."""
        kind, function = self.type(dtype), self.dialect.function(op, dtype)
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
        kind, function = self.type(dtype), self.dialect.function(Ops.MOD, dtype)
        name = self._define(
            f"{kind}_fmod",
            kind,
            f"{kind} a, {kind} b",
            f"{self._each(dtype)} a[i] = {function}(a[i], b[i]); return a;",
        )
        return f"{name}({a}, {b})"

    def reduce(self, op: Ops, dtype: DType, value: str) -> str:
        """A tree reduction of all lanes to a scalar; masks reduce to 0 or -1."""
        kind, scalar = self.type(dtype), self.dialect.type(dtype.scalar())
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
        kind, scalar = self.type(dtype), self.dialect.type(dtype.scalar())
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

    @staticmethod
    def _each(dtype: DType) -> str:
        return f"for (int i = 0; i < {dtype.count}; i++)"
