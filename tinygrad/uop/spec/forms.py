"""The forms of the graph: for each form, a table of the ops it may contain and their checks."""

from __future__ import annotations

from tinygrad.uop import GroupOp, Ops
from tinygrad.uop.args import CustomKernelArg, ParamArg, PeerArg, PieceArg, TransferArg
from tinygrad.uop.device_value import Spmd
from tinygrad.uop.spec import checks as must
from tinygrad.uop.spec import device_checks
from tinygrad.uop.spec.checks import Check
from tinygrad.uop.spec.verify import Spec

_ELEMENTWISE: dict[Ops, tuple[Check, ...]] = {
    **dict.fromkeys(GroupOp.ALU, (must.elementwise_dtypes,)),
    Ops.CAST: (must.sources(1),),
    Ops.BITCAST: (must.sources(1), must.bitcast_sizes),
}

_VALUES: dict[Ops, tuple[Check, ...]] = {
    Ops.CONST: (must.sources(0), must.constant_fits),
    Ops.DEFINE_VAR: (must.sources(0), must.argument(tuple)),
}

_ARRAYS: dict[Ops, tuple[Check, ...]] = {
    **_VALUES,
    Ops.SINK: (must.is_void,),
    Ops.BIND: (must.sources(2), must.keeps_dtype),
    Ops.ARANGE: (must.sources(0),),
    Ops.BUFFER: (must.sources(0),),
    Ops.BUFFER_VIEW: (must.sources(1),),
    Ops.MSTACK: (must.keeps_dtype,),
    Ops.MSELECT: (must.sources(1), must.keeps_dtype, device_checks.select_index),
    Ops.ASSIGN: (must.keeps_dtype, must.assign_fits, device_checks.one_device),
    **{op: (must.sources(1), must.keeps_dtype) for op in GroupOp.Identity},
    **{
        op: (*checks, must.elementwise_shapes, device_checks.one_device)
        for op, checks in _ELEMENTWISE.items()
    },
    **{op: (must.sources(1), must.keeps_dtype, must.movement_argument) for op in GroupOp.Movement},
    Ops.REDUCE_AXIS: (must.sources(1), must.keeps_dtype, must.reduce_axes),
    **{
        op: (must.sources(2), must.keeps_dtype, must.integer_index, must.gather_batch)
        for op in (Ops.GATHER, *GroupOp.Scatter)
    },
    Ops.CUSTOM_KERNEL: (must.argument(CustomKernelArg), device_checks.custom_output),
}

TENSOR = Spec(
    "tensor graph",
    {
        **_ARRAYS,
        Ops.COPY: (*_ARRAYS[Ops.COPY], device_checks.copy_target),
        Ops.MSTACK: (*_ARRAYS[Ops.MSTACK], device_checks.stacked_shards),
        Ops.ALLREDUCE: (
            *_ARRAYS[Ops.ALLREDUCE],
            device_checks.copy_target,
            device_checks.allreduce_source,
        ),
    },
    (
        device_checks.named_or_sharded,
        device_checks.no_partial_source,
        device_checks.not_computed_in_file,
    ),
)

PER_DEVICE = Spec(
    "per-device graph",
    {
        **{op: checks for op, checks in _ARRAYS.items() if op is not Ops.ALLREDUCE},
        Ops.COPY: (*_ARRAYS[Ops.COPY], device_checks.placed_constant),
        Ops.MSTACK: (*_ARRAYS[Ops.MSTACK], must.argument(Spmd), device_checks.stacked_blocks),
        Ops.TRANSFER: (must.sources(1), must.keeps_dtype, must.argument(TransferArg)),
        Ops.PEER: (
            *(must.sources(1), must.keeps_dtype, must.argument(PeerArg)),
            device_checks.peer_devices,
        ),
        Ops.PIECE: (must.sources(2), must.keeps_dtype, must.argument(PieceArg)),
        Ops.STACK: (must.keeps_dtype, must.sources_are(Ops.CONTIGUOUS)),
        Ops.AFTER: (must.sources(2), must.keeps_dtype, must.sources_are(Ops.ASSIGN, 1)),
    },
    (device_checks.named_or_spmd,),
)

KERNEL_TENSOR = Spec(
    "tensor form of a kernel",
    {
        **_VALUES,
        **_ELEMENTWISE,
        **{
            op: checks
            for op, checks in _ARRAYS.items()
            if op in {Ops.ARANGE, Ops.REDUCE_AXIS, Ops.GATHER, *GroupOp.Movement, *GroupOp.Scatter}
        },
        Ops.SINK: (must.is_void, must.sources_are(Ops.STORE)),
        Ops.BIND: _ARRAYS[Ops.BIND],
        Ops.PARAM: (must.sources(0), must.argument(ParamArg)),
        Ops.STORE: (must.sources(2),),
    },
)

_WARP: dict[Ops, tuple[Check, ...]] = {
    Ops.MMA: (must.sources(3),),
    Ops.LOAD_MATRIX: (must.sources(1), must.argument(bool)),
    Ops.COPY_COMMIT: (must.is_void,),
    Ops.COPY_WAIT: (must.is_void, must.argument(int)),
    Ops.MMA_BEGIN: (must.is_void,),
    Ops.MMA_ASYNC: (must.is_void, must.sources_are(Ops.RANGE, 3)),
    Ops.MMA_COMMIT: (must.is_void,),
    Ops.MMA_WAIT: (must.is_void, must.argument(int)),
    Ops.ASYNC_FENCE: (must.is_void,),
    Ops.BOX: (must.is_void,),
    Ops.COPY_BULK: (must.is_void, must.argument(int), must.sources_are(Ops.RANGE, 3)),
    Ops.MBARRIER_INIT: (must.is_void, must.argument(int), must.sources_are(Ops.RANGE, 1)),
    Ops.MBARRIER_EXPECT: (must.is_void, must.sources(1), must.argument(int)),
    Ops.MBARRIER_ARRIVE: (must.is_void, must.argument(int), must.sources_are(Ops.RANGE, 2)),
    Ops.MBARRIER_WAIT: (must.is_void,),
}
"""Instructions of a warp, and the order of asynchronous copies and products."""

KERNEL = Spec(
    "kernel graph",
    {
        **_VALUES,
        **_ELEMENTWISE,
        Ops.SINK: (must.is_void, must.sources_are(Ops.STORE)),
        Ops.DEFINE_GLOBAL: (must.sources(0), must.pointer, must.argument(int)),
        Ops.DEFINE_LOCAL: (must.sources(0), must.pointer, must.argument(int)),
        Ops.DEFINE_REG: (must.sources(0), must.pointer, must.argument(int)),
        Ops.AFTER: (must.pointer, must.keeps_dtype),
        Ops.RANGE: (must.sources(1), must.keeps_dtype, must.is_plain_loop),
        Ops.INDEX: (must.index_sources,),
        Ops.LOAD: (must.load_sources,),
        Ops.STORE: (must.is_void, must.store_sources, must.sources_are(Ops.RANGE, 2)),
        Ops.REDUCE: (must.keeps_dtype, must.reduce_sources, must.sources_are(Ops.RANGE, 1)),
        Ops.VECTORIZE: (),
        Ops.GEP: (must.sources(1), must.argument(int, tuple)),
        Ops.BARRIER: (must.is_void,),
        Ops.SHUFFLE: (must.sources(2), must.keeps_dtype, must.integer_index),
        Ops.CUSTOM: (),
    },
)

SCHEDULED_KERNEL = Spec(
    "scheduled kernel graph",
    {
        **KERNEL.checks,
        Ops.RANGE: (must.sources(1, 2, 4), must.keeps_dtype),
        **_WARP,
    },
)

VECTOR_KERNEL = Spec(
    "vectorized kernel graph",
    {
        **SCHEDULED_KERNEL.checks,
        Ops.RANGE: (*SCHEDULED_KERNEL.checks[Ops.RANGE], must.is_not_over_lanes),
        Ops.REDUCE: (must.sources_are(Ops.RANGE, 1),),
        Ops.LOAD: (must.vector_load_sources,),
    },
)

IMPERATIVE_KERNEL = Spec(
    "imperative kernel graph",
    {
        **VECTOR_KERNEL.checks,
        Ops.AFTER: (),
        Ops.REDUCE: (must.sources(1),),
        Ops.COPY_ASYNC: (must.is_void, must.argument(int), must.sources_are(Ops.RANGE, 2)),
        Ops.NOOP: (must.is_void,),
    },
)

LINEAR = Spec(
    "linear program",
    {
        **_VALUES,
        **_ELEMENTWISE,
        Ops.SINK: (must.is_void,),
        Ops.NOOP: (),
        Ops.DEFINE_GLOBAL: (must.sources(0), must.pointer),
        Ops.DEFINE_LOCAL: (must.pointer,),
        Ops.DEFINE_REG: (must.pointer,),
        Ops.RANGE: (must.keeps_dtype,),
        Ops.END: (must.is_void,),
        Ops.REDUCE: (),
        Ops.STAGE: (),
        Ops.INDEX: (must.index_sources,),
        Ops.LOAD: (must.vector_load_sources,),
        Ops.STORE: (must.is_void, must.store_sources),
        Ops.AFTER: (),
        Ops.IF: (),
        Ops.ENDIF: (),
        Ops.BARRIER: (must.is_void,),
        Ops.SHUFFLE: KERNEL.checks[Ops.SHUFFLE],
        **_WARP,
        Ops.COPY_ASYNC: (must.is_void, must.argument(int)),
        Ops.SPECIAL: (),
        Ops.VECTORIZE: (),
        Ops.GEP: (must.sources(1), must.argument(int, tuple)),
        Ops.CUSTOM: (),
    },
    whole=must.threads_stay_together,
)
