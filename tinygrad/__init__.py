"""A lazy tensor library in which sharding is the device.

The names that programs import from here. `docs/design.md` says what each folder does.
"""

import tinygrad.interrupt  # noqa: F401 - before the others, which take time
from tinygrad import nn
from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.execution import CommTrace
from tinygrad.function import function
from tinygrad.helpers import Context, GlobalCounters, fetch, getenv
from tinygrad.jit import TinyJit
from tinygrad.ranks import join
from tinygrad.settings import RANKS
from tinygrad.sharding import Mesh, P, Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

Variable = UOp.variable

if RANKS.value:
    join(RANKS.value)

__all__ = [
    "CommTrace",
    "Context",
    "Device",
    "GlobalCounters",
    "Mesh",
    "P",
    "Sharding",
    "Tensor",
    "TinyJit",
    "UOp",
    "Variable",
    "dtypes",
    "fetch",
    "function",
    "getenv",
    "nn",
]
