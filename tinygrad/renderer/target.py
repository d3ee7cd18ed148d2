"""The machine that kernels are generated for, and the shape of a launch.

A `Target` comes from an opened device, `Device[name].target`. Code generation asks it, never the
name of a device. Equal targets have equal kernels, so a target is part of the key of every cache
of kernels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace

from tinygrad.dtype import DType, dtypes
from tinygrad.helpers import ceildiv
from tinygrad.renderer.matrix_instruction import MatrixInstruction
from tinygrad.renderer.tensor_map import TensorMap
from tinygrad.settings import TC
from tinygrad.uop.ops import UOp, sint, sym_infer

PACKED_ITEMS = 256
"""Work items that share a block of a GPU's launch, where each has a single thread."""


@dataclass(frozen=True)
class Target:
    """Properties of a machine that its kernels depend on. The defaults are those of a small CPU."""

    dialect: str
    """The name of the renderer."""
    architecture: str = ""
    """The instruction set as its compiler names it: "sm_90a", "gfx942"."""
    dtypes: frozenset[DType] = frozenset(dtypes.all)
    """The dtypes that the machine computes with or converts."""
    has_subnormals: bool = True
    """Whether float32 has subnormal numbers, rather than zeros in their place."""
    threads: int = 1
    """CPU threads that share a grid, which has a few work items for each; 1 on GPUs."""
    vector_bytes: int = 16
    """Bytes of the widest load worth using; 1 means no vectors."""
    vector_registers: int = 16
    """Vector registers, an upper bound for the accumulators and operands of a register tile."""
    has_broadcast: bool = False
    """Whether vector arithmetic broadcasts an operand that is a scalar in memory."""
    min_masked_itemsize: int = 1
    """The smallest itemsize of lanes that an instruction loads or stores under a mask."""
    has_scatter: bool = False
    """Whether an instruction stores the lanes of a vector to different addresses."""
    warp: int = 1
    """Lanes that run in lockstep and may exchange values by shuffles; 1 for none."""
    block_threads: int = 1
    """Upper bound of the threads of a work item."""
    grid_items: int = 1 << 62
    """Upper bound of the work items of a launch."""
    max_arguments: int = 1 << 30
    """Buffers and integers that a kernel takes."""
    shared_bytes: int = 0
    """Upper bound of the DEFINE_LOCAL memory of a work item."""
    registers: int = 0
    """32-bit registers of a thread before it spills; 0 where vector registers count."""
    units: int = 1
    """Multiprocessors of a GPU."""
    unit_threads: int = 0
    """Threads that a multiprocessor holds at a time."""
    unit_blocks: int = 0
    """Blocks that it holds at a time."""
    unit_registers: int = 0
    """Registers that their threads share."""
    unit_shared_bytes: int = 0
    """Shared memory that their blocks share."""
    block_reserved_bytes: int = 0
    """Bytes of it that the system takes for each block."""
    enough_items: int = 64
    """Work items beyond which more do not balance the load better."""
    parallel_work: int = 1 << 15
    """Elementary steps below which a kernel runs as one work item: a launch would cost more."""
    has_async_copy: bool = False
    """Whether threads may copy to shared memory and continue meanwhile."""
    has_bulk_copy: bool = False
    """Whether one thread may begin copies of boxes of a tensor to shared memory."""
    matrix: tuple[MatrixInstruction, ...] = ()
    """The matrix instructions of a warp, the preferred ones first."""

    @functools.cached_property
    def key(self) -> str:
        """Text that differs where the target does, and is the same in every process."""
        known = sorted(map(repr, self.dtypes))
        return repr([known if f.name == "dtypes" else getattr(self, f.name) for f in fields(self)])

    @property
    def has_threads(self) -> bool:
        """Whether a work item is a block of threads, as on GPUs."""
        return self.block_threads > 1

    def has_matrix_units(self, operand: DType) -> bool:
        """Whether matrix instructions multiply numbers of a dtype; not with TC=0."""
        return bool(TC) and any(x.operand is operand for x in self.matrix)

    # computed once: targets are in the keys that each launch looks up
    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.dialect, self.architecture, self.threads, self.vector_bytes))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class LaunchShape:
    """How many threads a kernel runs on: `grid` work items of `block` threads each.

    `shared` are the bytes of shared memory that a work item is given at the launch. `maps` are the
    tensor maps that follow the arguments, each with the number of the buffer that it describes.
    """

    grid: sint
    block: int = 1
    shared: int = 0
    maps: tuple[tuple[int, TensorMap], ...] = ()

    def resolve(self, values: dict[str, int]) -> LaunchShape:
        """The shape for the values of its Variables, by name."""
        if not isinstance(self.grid, UOp):
            return self
        return replace(self, grid=sym_infer(self.grid, values))

    @property
    def items(self) -> int:
        """The number of work items of a resolved shape."""
        assert isinstance(self.grid, int), "the grid is symbolic: resolve() it"
        return self.grid

    def blocks(self) -> tuple[int, int]:
        """The thread blocks of a GPU's launch, and the threads of each.

        Work items of a single thread share blocks: the kernel computes its number from both.
        """
        if self.block > 1:
            return self.items, self.block
        threads = max(min(self.items, PACKED_ITEMS), 1)
        return ceildiv(self.items, threads), threads
