"""The graph: its ops, nodes, rules and methods. This file lists the ops, and sets of ops.

From the bottom up:

    node.py              `Node`: an op, a dtype, sources and an argument; equal nodes are one object
    interning.py             the table of nodes
    user_line.py             the line of the program that runs, and what it calls
    args.py, sint.py     typed arguments, sizes that may be symbolic
    device_value.py          where a value lives: a name, a `Sharding` or an `Spmd`
    math.py                  Python operators, shared with patterns
    reduction.py             identity elements
    render.py                graphs as text

    shards.py            MSTACK and MSELECT, a sharded value and its shards
    propagation/         the shape, device and bounds of a node, from those of its sources

    spec/                the forms of the graph: the ops that each may contain, and their checks
    passes.py            runs passes between forms
    known_orders.py          what several passes share while they walk a graph

    upat.py, rewrite.py  patterns, and rewriting by them
    simplify/            rules of simplification
    symbolic.py              the sets of these rules

    reshard/             layout decisions: where communication is inserted
    gather_scatter.py        those of indexing

    methods/             the methods of `UOp`, in families
    ops.py               `UOp`, composed of the families
    broadcast.py         constants, and shapes that combine as in numpy
    slice_assign.py      writes to a slice as a value of the whole
    float_variables.py   float Variables as arguments of kernels
    node_table.py        facts about nodes, beside the graph
"""

from tinygrad.fast_enum import Enum, auto


class Ops(Enum):
    """An operation. Each of the four graph forms uses some of them, see `uop/spec/`."""

    # roots and structure
    SINK = auto()
    NOOP = auto()

    # values without sources
    CONST = auto()
    DEFINE_VAR = auto()
    BIND = auto()
    ARANGE = auto()

    # storage of the tensor graph, and of a kernel's tensor form (PARAM)
    BUFFER = auto()
    BUFFER_VIEW = auto()
    PARAM = auto()

    # where a value lives
    COPY = auto()
    ALLREDUCE = auto()
    TRANSFER = auto()
    MSTACK = auto()
    MSELECT = auto()
    PEER = auto()
    PIECE = auto()
    STACK = auto()

    # order and identity
    ASSIGN = auto()
    CONTIGUOUS = auto()
    CONTIGUOUS_BACKWARD = auto()
    DETACH = auto()

    # movement
    RESHAPE = auto()
    PERMUTE = auto()
    EXPAND = auto()
    PAD = auto()
    SHRINK = auto()
    FLIP = auto()
    WINDOW = auto()
    UNWINDOW = auto()

    # reduction and indexing by a tensor
    REDUCE_AXIS = auto()
    GATHER = auto()
    SCATTER_ADD = auto()
    SCATTER_MUL = auto()
    SCATTER_MAX = auto()

    # casts
    CAST = auto()
    BITCAST = auto()

    # unary
    EXP2 = auto()
    EXP = auto()
    EXPM1 = auto()
    LOG2 = auto()
    LOG = auto()
    LOG1P = auto()
    SIN = auto()
    COS = auto()
    TAN = auto()
    ASIN = auto()
    ACOS = auto()
    ATAN = auto()
    SINH = auto()
    COSH = auto()
    TANH = auto()
    ASINH = auto()
    ACOSH = auto()
    ATANH = auto()
    ERF = auto()
    LOGISTIC = auto()
    SOFTPLUS = auto()
    SQRT = auto()
    RECIPROCAL = auto()
    NEG = auto()
    TRUNC = auto()

    # binary
    ADD = auto()
    MUL = auto()
    SUB = auto()
    FDIV = auto()
    IDIV = auto()
    MOD = auto()
    MAX = auto()
    POW = auto()
    CMPLT = auto()
    CMPNE = auto()
    CMPEQ = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()
    SHR = auto()
    THREEFRY = auto()

    # ternary
    WHERE = auto()
    MULACC = auto()

    # kernels
    DEFINE_GLOBAL = auto()
    DEFINE_LOCAL = auto()
    DEFINE_REG = auto()
    RANGE = auto()
    END = auto()
    REDUCE = auto()
    STAGE = auto()
    INDEX = auto()
    LOAD = auto()
    STORE = auto()
    AFTER = auto()
    IF = auto()
    ENDIF = auto()
    BARRIER = auto()
    MMA = auto()
    LOAD_MATRIX = auto()
    MMA_BEGIN = auto()
    MMA_ASYNC = auto()
    MMA_COMMIT = auto()
    MMA_WAIT = auto()
    COPY_ASYNC = auto()
    COPY_COMMIT = auto()
    COPY_WAIT = auto()
    ASYNC_FENCE = auto()
    BOX = auto()
    COPY_BULK = auto()
    MBARRIER_INIT = auto()
    MBARRIER_EXPECT = auto()
    MBARRIER_ARRIVE = auto()
    MBARRIER_WAIT = auto()
    SPECIAL = auto()
    VECTORIZE = auto()
    GEP = auto()
    SHUFFLE = auto()
    CUSTOM = auto()
    CUSTOM_KERNEL = auto()

    def __lt__(self, other: "Ops") -> bool:
        """Order of declaration, which makes sorting nodes deterministic."""
        return int(self.value) < int(other.value)


class GroupOp:
    """Sets of operations that share a rule."""

    # elementary functions of floats, which targets may lack
    Elementary = frozenset(
        {
            *(Ops.EXP2, Ops.EXP, Ops.EXPM1, Ops.LOG2, Ops.LOG, Ops.LOG1P),
            *(Ops.SIN, Ops.COS, Ops.TAN, Ops.ASIN, Ops.ACOS, Ops.ATAN),
            *(Ops.SINH, Ops.COSH, Ops.TANH, Ops.ASINH, Ops.ACOSH, Ops.ATANH),
            *(Ops.ERF, Ops.LOGISTIC, Ops.SOFTPLUS),
        }
    )
    Exponential = frozenset({Ops.EXP2, Ops.EXP})
    Unary = Elementary | {Ops.SQRT, Ops.RECIPROCAL, Ops.NEG, Ops.TRUNC}
    Binary = frozenset(
        {
            *(Ops.ADD, Ops.MUL, Ops.SUB, Ops.FDIV, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.POW),
            *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
            Ops.THREEFRY,
        }
    )
    Ternary = frozenset({Ops.WHERE, Ops.MULACC})
    ALU = Unary | Binary | Ternary
    Elementwise = ALU | {Ops.CAST, Ops.BITCAST}
    Movement = frozenset(
        {
            *(Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FLIP),
            *(Ops.WINDOW, Ops.UNWINDOW),
        }
    )
    Comparison = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
    Commutative = frozenset(
        {Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR}
    )
    Associative = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR})
    Reduce = frozenset({Ops.ADD, Ops.MUL, Ops.MAX})
    Scatter = frozenset({Ops.SCATTER_ADD, Ops.SCATTER_MUL, Ops.SCATTER_MAX})
    # a change of layout in the tensor graph
    Communication = frozenset({Ops.COPY, Ops.ALLREDUCE})
    # the value is the source's, whatever the layout or the storage
    Identity = Communication | {Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH}
