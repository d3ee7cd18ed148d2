"""`UOp`, the class of every node, composed of one family of methods for each concern.

A node of the tensor graph denotes one logical array of its *global* shape; `UOp.device` says where
it lives.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tinygrad.dtype import dtypes
from tinygrad.errors import ArgumentError
from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import (
    AxisType,
    BufferArg,
    KernelInfo,
    ParamArg,
    RangeArg,
    ReduceArg,
    ViewArg,
    WindowArg,
)
from tinygrad.uop.methods.expression import ExpressionMixin
from tinygrad.uop.methods.kernel_language import KernelMixin
from tinygrad.uop.methods.properties import PropertiesMixin
from tinygrad.uop.methods.tensor_graph import TensorGraphMixin
from tinygrad.uop.node import symbolic_args
from tinygrad.uop.render import infix, tree
from tinygrad.uop.rewrite import PatternMatcher, graph_rewrite
from tinygrad.uop.sint import resolve, smax, smin, sym_infer
from tinygrad.uop.upat import UPat

# fmt: off
__all__ = [
    "AxisType", "BufferArg", "GroupOp", "KernelInfo", "Ops", "ParamArg", "PatternMatcher",
    "RangeArg", "ReduceArg", "UOp", "UPat", "Variable", "ViewArg", "WindowArg", "graph_rewrite",
    "resolve", "sint", "smax", "smin", "sym_infer", "symbolic_args",
]
# fmt: on


class UOp(PropertiesMixin, ExpressionMixin, TensorGraphMixin, KernelMixin):
    """One interned node. Build with `UOp(op, dtype, src, arg)` or, better, by its methods."""

    __slots__ = ()

    def __repr__(self) -> str:
        return infix(self) if self.dtype is dtypes.index else tree(self)

    def sink(*src: UOp, arg: Any = None) -> UOp:
        """Gather several outputs under one root: `UOp.sink(x, y)`, or `x.sink(y)`."""
        return UOp(Ops.SINK, dtypes.void, src, arg)

    def group(*stores: UOp) -> UOp:
        """Several stores of a kernel, in any order."""
        return UOp(Ops.NOOP, dtypes.void, stores)

    # ---- storage ----

    @property
    def realized(self) -> Any:
        """The storage of a stored value (`Buffer` or `MultiBuffer`), or None."""
        base = self.base
        if base.op is Ops.MSELECT and base.src[0].op is Ops.BUFFER:
            shards = base.src[0].memory
            return None if shards is None else shards[base.arg]
        return base.memory

    @property
    def is_realized(self) -> bool:
        """Whether the value below all movement is in memory."""
        return self.realized is not None

    @property
    def buffer(self) -> Any:
        """The storage of this value; an error if it is not realized."""
        found = self.realized
        if found is None:
            raise ArgumentError(f"{self.base.op.name} is not realized, so it has no buffer")
        return found


sint: TypeAlias = int | UOp
Variable: TypeAlias = UOp
"""A size that may be symbolic: an int, or an integer known when a kernel runs."""
