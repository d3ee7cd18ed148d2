"""Replay of recorded kernels and copies as one CUDA graph.

It has the interface of `support/replay.py`: arguments are slots with byte offsets, integers are
variables, and setting one changes the nodes that use it before the next run. A node waits for the
nodes whose bytes it uses, on any GPU, and for nothing else. Where the driver makes no graph, the
launches run one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from cuda.bindings import driver

from tinygrad.device import Buffer, Device
from tinygrad.renderer.target import LaunchShape
from tinygrad.runtime.support.cuda import nccl
from tinygrad.runtime.support.cuda.driver import LOCK, CudaError, Gpu
from tinygrad.runtime.support.cuda.memory import (
    CudaAllocator,
    copy_between,
    enable_peers,
    read_peers,
)
from tinygrad.runtime.support.cuda.program import Arguments, CudaProgram
from tinygrad.runtime.support.hazards import Hazards
from tinygrad.settings import DEBUG
from tinygrad.uop.args import Reduction

UNIFIED = driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED


class Values:
    """The addresses of slots, and the runtime integers, of a replay."""

    def __init__(self) -> None:
        self.slots: list[int] = []
        self.variables: list[int] = []


class KernelCall:
    """A kernel with its slots, variables, and the variable of its grid."""

    def __init__(
        self,
        program: CudaProgram,
        buffers: Sequence[tuple[int, int]],
        variables: Sequence[int],
        grid: int,
        shape: LaunchShape,
        peers: Sequence[Gpu] = (),
    ) -> None:
        self.program = program
        self.gpu = program.gpu
        # the other GPUs whose memory it reads
        self.peers = peers
        self.slots = [slot for slot, _ in buffers]
        self.variables = [*variables, grid]
        self._offsets = [offset for _, offset in buffers]
        self._numbers = list(variables)
        self._grid = grid
        self._shape = shape
        # of its own: a graph may be changed while the program is launched
        self._arguments = Arguments(len(buffers) + len(variables), shape.maps)
        self._node: Any = None

    def is_empty(self, values: Values) -> bool:
        """Whether there are no work items."""
        return values.variables[self._grid] == 0

    def run(self, values: Values) -> None:
        """Launches the kernel."""
        with read_peers(self.gpu, self.peers):
            self.gpu.begin_kernels()
            if not self.is_empty(values):
                self.program.launch(self._list(values), self._launch_shape(values))

    def add(self, graph: Any, after: list[Any], values: Values) -> Any:
        """Adds a node to a graph, after other nodes."""
        for peer in self.peers:
            enable_peers(self.gpu, peer)
        parameters = self._parameters(values)
        self._node = self.gpu.check(
            driver.cuGraphAddKernelNode(graph, after, len(after), parameters)
        )
        return self._node

    def update(self, executable: Any, values: Values) -> None:
        """Gives the node the values of now."""
        parameters = self._parameters(values)
        self.gpu.check(driver.cuGraphExecKernelNodeSetParams(executable, self._node, parameters))

    def _list(self, values: Values) -> list[int]:
        pairs = zip(self.slots, self._offsets, strict=True)
        addresses = [values.slots[slot] + offset for slot, offset in pairs]
        return addresses + [values.variables[number] for number in self._numbers]

    def _launch_shape(self, values: Values) -> LaunchShape:
        shape = self._shape
        return LaunchShape(values.variables[self._grid], shape.block, shape.shared, shape.maps)

    def _parameters(self, values: Values) -> Any:
        self._arguments.set(self._list(values))
        self.program.allow_shared(self._shape.shared)
        found = driver.CUDA_KERNEL_NODE_PARAMS()
        found.func = self.program.function
        found.gridDimX, found.blockDimX = self._launch_shape(values).blocks()
        found.gridDimY = found.gridDimZ = found.blockDimY = found.blockDimZ = 1
        found.sharedMemBytes = self._shape.shared
        found.kernelParams = self._arguments.address
        return found


class CopyCall:
    """A copy of bytes from one slot to another, on the GPU that receives them."""

    def __init__(
        self, gpu: Gpu, origin: Gpu, to: tuple[int, int], source: tuple[int, int], nbytes: int
    ) -> None:
        self.gpu = gpu
        self.peers = (origin,)
        self._origin = origin
        self._to, self._source = to, source
        self._nbytes = nbytes
        self.slots = [to[0], source[0]]
        self.variables: list[int] = []
        self._node: Any = None

    def is_empty(self, values: Values) -> bool:
        """Whether there is nothing to copy."""
        return self._nbytes == 0

    def run(self, values: Values) -> None:
        """Issues the copy."""
        destination, source = self._addresses(values)
        if self._nbytes and not copy_between(
            self.gpu, destination, self._origin, source, self._nbytes
        ):
            raise CudaError(f"{self.gpu.name} cannot copy from {self._origin.name}", 0)

    def add(self, graph: Any, after: list[Any], values: Values) -> Any:
        """Adds a node to a graph, after other nodes."""
        if self._origin.context != self.gpu.context:
            enable_peers(self.gpu, self._origin)
        parameters, context = self._parameters(values), self.gpu.context
        self._node = self.gpu.check(
            driver.cuGraphAddMemcpyNode(graph, after, len(after), parameters, context)
        )
        return self._node

    def update(self, executable: Any, values: Values) -> None:
        """Gives the node the addresses of now."""
        arguments = (executable, self._node, self._parameters(values), self.gpu.context)
        self.gpu.check(driver.cuGraphExecMemcpyNodeSetParams(*arguments))

    def _addresses(self, values: Values) -> tuple[int, int]:
        (to, to_offset), (source, source_offset) = self._to, self._source
        return values.slots[to] + to_offset, values.slots[source] + source_offset

    def _parameters(self, values: Values) -> Any:
        found = driver.CUDA_MEMCPY3D()
        found.dstDevice, found.srcDevice = self._addresses(values)
        found.dstMemoryType = found.srcMemoryType = UNIFIED
        found.WidthInBytes, found.Height, found.Depth = self._nbytes, 1, 1
        return found


class AllReduceCall:
    """An all-reduce by NCCL."""

    variables: Sequence[int] = ()
    peers: Sequence[Gpu] = ()

    def __init__(
        self,
        pairs: Sequence[tuple[Buffer, Buffer]],
        places: list[tuple[tuple[int, int], tuple[int, int]]],
        reduction: Reduction,
    ) -> None:
        self.gpu = _gpu(pairs[0][0])
        self.slots = [slot for pair in places for slot, _ in pair]
        self._pairs, self._places, self._reduction = pairs, places, reduction

    def is_empty(self, values: Values) -> bool:
        """Whether there is nothing to reduce."""
        return False

    def run(self, values: Values) -> None:
        """Issues the all-reduce."""
        addresses = [
            (values.slots[to] + to_offset, values.slots[source] + offset)
            for (to, to_offset), (source, offset) in self._places
        ]
        all_reduce(self._pairs, addresses, self._reduction)

    def add(self, graph: Any, after: list[Any], values: Values) -> Any:
        """Refuses: a graph would have to capture streams."""
        raise CudaError("all-reduces of NCCL are in no graph", 0)

    def update(self, executable: Any, values: Values) -> None:
        """Is in no graph."""


def all_reduce(
    pairs: Sequence[tuple[Buffer, Buffer]],
    addresses: Sequence[tuple[int, int]],
    reduction: Reduction,
) -> None:
    """Lets NCCL reduce the sources of pairs, on the GPUs of `pairs`, at other addresses."""
    parts = [
        nccl.Part(_gpu(pair[0]), source, destination)
        for pair, (destination, source) in zip(pairs, addresses, strict=True)
    ]
    groups = [[parts[number] for number in group] for group in reduction.groups]
    source = pairs[0][1]
    with LOCK:
        nccl.all_reduce(groups, reduction.op, source.dtype, source.size)


Call: TypeAlias = KernelCall | CopyCall | AllReduceCall


class CudaReplay:
    """Records of launches. `add` takes what `make_launch` and `make_copy` return; `run` runs all.

    It keeps its programs and buffers alive.
    """

    def __init__(self) -> None:
        self._values = Values()
        self._calls: list[Call] = []
        self._slot_of: dict[Buffer, int] = {}
        self._hazards = Hazards()
        self._after: list[list[int]] = []
        # the bytes that each call reads and writes, until it is added
        self._uses: dict[Call, tuple[list[Buffer], list[Buffer]]] = {}
        self._users_of_slot: dict[int, list[Call]] = {}
        self._users_of_variable: dict[int, list[Call]] = {}
        self._changed: dict[Call, None] = {}
        self._graph: Any = None
        self._executable: Any = None
        self._reason = ""

    def __len__(self) -> int:
        return len(self._calls)

    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not exiting():
            self._discard()

    def get_slot(self, buffer: Buffer) -> int:
        """The slot of the buffer's base, created on first use. Allocates the buffer."""
        root = buffer.base or buffer
        if root not in self._slot_of:
            self._slot_of[root] = len(self._values.slots)
            self._values.slots.append(root.address)
        return self._slot_of[root]

    def add_variable(self, value: int = 0) -> int:
        """Creates a runtime integer, for `make_launch` and `set_value`."""
        self._values.variables.append(value)
        return len(self._values.variables) - 1

    def make_launch(
        self,
        program: CudaProgram,
        buffers: Sequence[Buffer],
        variables: Sequence[int] = (),
        *,
        grid: int,
        shape: LaunchShape,
        written: Iterable[Buffer],
        **_: int | None,
    ) -> KernelCall:
        """A launch of a kernel, where `grid` and `variables` number variables."""
        places = [(self.get_slot(buffer), buffer.offset) for buffer in buffers]
        peers = dict.fromkeys(gpu for x in buffers if (gpu := _gpu(x)) is not program.gpu)
        call = KernelCall(program, places, variables, grid, shape, list(peers))
        self._uses[call] = list(buffers), list(written)
        return call

    def make_copy(self, destination: Buffer, source: Buffer) -> CopyCall:
        """A copy of all bytes of a buffer."""
        assert destination.nbytes == source.nbytes, f"{source!r} and {destination!r} differ in size"
        to = self.get_slot(destination), destination.offset
        origin = self.get_slot(source), source.offset
        call = CopyCall(_gpu(destination), _gpu(source), to, origin, source.nbytes)
        self._uses[call] = [source], [destination]
        return call

    def make_all_reduce(
        self, pairs: Sequence[tuple[Buffer, Buffer]], reduction: Reduction
    ) -> AllReduceCall:
        """An all-reduce of the sources of pairs to their destinations."""
        places = [((self.get_slot(x), x.offset), (self.get_slot(y), y.offset)) for x, y in pairs]
        call = AllReduceCall(pairs, places, reduction)
        self._uses[call] = [y for _, y in pairs], [x for x, _ in pairs]
        return call

    def add(self, *calls: Call, parallel: bool = True) -> None:
        """Appends calls, which may run at the same time."""
        self._discard()
        for call in calls:
            self._after.append(self._hazards.add(*self._uses.pop(call)))
            self._calls.append(call)
            for slot in call.slots:
                self._users_of_slot.setdefault(slot, []).append(call)
            for variable in call.variables:
                self._users_of_variable.setdefault(variable, []).append(call)

    def set_buffer(self, slot: int, address: int) -> None:
        """Points all arguments of a slot to other memory, which the caller keeps alive."""
        if self._values.slots[slot] != address:
            self._values.slots[slot] = address
            self._changed.update(dict.fromkeys(self._users_of_slot.get(slot, ())))

    def set_value(self, variable: int, value: int) -> None:
        """Sets a runtime integer for later runs."""
        if self._values.variables[variable] != value:
            self._values.variables[variable] = value
            self._changed.update(dict.fromkeys(self._users_of_variable.get(variable, ())))

    def run(self) -> None:
        """Issues all calls; nothing waits for them but the reader of a result."""
        with LOCK:
            if self._executable is None and not self._reason:
                self._build()
            is_complete = not any(call.is_empty(self._values) for call in self._changed)
            if self._executable is None or not is_complete:
                for call in self._calls:
                    call.run(self._values)
                return
            for call in self._changed:
                # the last run may have been another thread's, and the last call another GPU's
                call.gpu.activate()
                call.update(self._executable, self._values)
            self._changed.clear()
            self._launch()

    def _build(self) -> None:
        """Makes the graph, or notes the reason why there is none."""
        self._changed.clear()
        empty = [call for call in self._calls if call.is_empty(self._values)]
        if empty:
            # a node has work items: without any, this run is not that of a graph
            self._changed.update(dict.fromkeys(empty))
            return
        gpu = self._calls[0].gpu
        gpu.activate()
        try:
            self._graph = gpu.check(driver.cuGraphCreate(0))
            nodes: list[Any] = []
            for call, after in zip(self._calls, self._after, strict=True):
                call.gpu.activate()
                nodes.append(call.add(self._graph, [nodes[i] for i in after], self._values))
            self._executable = gpu.check(driver.cuGraphInstantiate(self._graph, 0))
        except (RuntimeError, MemoryError) as error:
            # of the driver, or of the bindings where an old driver lacks a function
            self._discard()
            self._reason = str(error)
            if DEBUG >= 1:
                print(f"no CUDA graph of {len(self)} launches, which run one by one: {error}")

    def _launch(self) -> None:
        """Launches the graph on the first GPU, between the work of all whose memory it uses."""
        first, *others = dict.fromkeys(gpu for x in self._calls for gpu in (x.gpu, *x.peers))
        for other in others:
            first.wait_for(other, first.kernels)
        first.begin_kernels()
        first.check(driver.cuGraphLaunch(self._executable, first.kernels))
        for name in self._kernel_names():
            first.end_kernels(name)
        for other in others:
            other.block_until(first.kernels_done())

    def _kernel_names(self) -> list[str]:
        names = (call.program.name for call in self._calls if isinstance(call, KernelCall))
        return list(dict.fromkeys(names)) or ["a graph of copies"]

    def _discard(self) -> None:
        """Drops the graph; the next run makes another one."""
        graph, executable = self._graph, self._executable
        self._graph = self._executable = None
        if graph is None:
            return
        gpu = self._calls[0].gpu
        with gpu.finalizing() as can_destroy:
            if can_destroy:
                if executable is not None:
                    driver.cuStreamSynchronize(gpu.kernels)
                    driver.cuGraphExecDestroy(executable)
                driver.cuGraphDestroy(graph)


def _gpu(buffer: Buffer) -> Gpu:
    allocator = Device[buffer.device].allocator
    assert isinstance(allocator, CudaAllocator)
    return allocator.gpu
