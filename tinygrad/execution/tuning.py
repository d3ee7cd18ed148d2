"""Choose how a kernel is mapped to threads by timing it, at the first compilation on a GPU.

In: a kernel graph and the device that it is to run on. Out: the same kernel with the fastest of
`BEAM` options besides that of the heuristics. What was found is kept in the disk cache, by the text
of the kernel as the heuristics map it. Timed kernels run on memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad import diskcache
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.search import TILES, mappings, prune, with_mapping
from tinygrad.device import Buffer, CompileError, OutOfMemoryError
from tinygrad.dtype import PtrDType, dtypes
from tinygrad.execution.runner import CompiledRunner
from tinygrad.renderer import Renderer
from tinygrad.settings import BEAM, CACHELEVEL, DEBUG
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

TABLE = "mappings"
RUNS = 3
# a candidate whose first run takes this multiple of the best time is not run again
MAX_SLOWER = 3.0


def tuned(kernel: UOp, renderer: Renderer, device: str) -> UOp:
    """The kernel with the fastest mapping; as it is where `BEAM` is 0, or there is no choice."""
    if not BEAM or not renderer.target.has_threads:
        return kernel
    options = mappings(kernel, renderer)
    if len(options) < 2:
        return kernel
    source = get_program(kernel, renderer).source
    key = "\0".join([source, renderer.target.key, str(BEAM.value)])
    found = diskcache.get(TABLE, key) if CACHELEVEL else None
    names = {repr(option): option for option in options}
    name = None if found is None else found.decode()
    if name not in names:
        chosen = _fastest(kernel, renderer, device, options)
        name = repr(chosen)
        if CACHELEVEL:
            diskcache.put(TABLE, key, name.encode())
    return with_mapping(kernel, names[name])


def _fastest(kernel: UOp, renderer: Renderer, device: str, options: Sequence[Any]) -> Any:
    """The fastest option, or the first if nothing can be timed."""
    best, best_s = options[0], float("inf")
    try:
        buffers = _scratch(kernel, device)
    except OutOfMemoryError:
        return best
    for option in _candidates(kernel, renderer, options):
        try:
            elapsed_s = time_mapping(kernel, renderer, device, option, buffers, best_s)
        except CompileError as error:
            # a program that a compiler rejects for its resources is no choice
            elapsed_s = float("inf")
            if DEBUG >= 2:
                print(f"BEAM: {option}: {error}")
        if DEBUG >= 2:
            print(f"BEAM: {1e6 * elapsed_s:10.1f} us {option}")
        if elapsed_s < best_s:
            best, best_s = option, elapsed_s
    return best


def _candidates(kernel: UOp, renderer: Renderer, options: Sequence[Any]) -> list[Any]:
    """The option of the heuristics, and the `BEAM` best others by what is known without a run."""
    first, *others = options
    # tiles are sorted by predicted time; of the others, every few of all that fit
    tiles = [x for x in others if isinstance(x, TILES)][: BEAM.value]
    kept = [m.option for m in prune(kernel, renderer, tiles or others)]
    step = max(1, len(kept) // BEAM.value)
    return [first, *kept[:: 1 if tiles else step][: BEAM.value]]


def time_mapping(
    kernel: UOp,
    renderer: Renderer,
    device: str,
    option: Any,
    buffers: Sequence[Buffer],
    best_s: float,
) -> float:
    """The seconds that the kernel takes when mapped by an option, the least of a few runs."""
    runner = CompiledRunner(get_program(with_mapping(kernel, option), renderer), device)
    values = {v.arg[0]: int(v.vmax) for v in runner.spec.variables}
    min_s = float("inf")
    # the first run loads the program
    runner(device, buffers, values, wait=True)
    for _ in range(RUNS):
        elapsed_s = runner(device, buffers, values, wait=True)
        assert elapsed_s is not None, "a run that is waited for has a time"
        min_s = min(min_s, elapsed_s)
        if min_s > MAX_SLOWER * best_s:
            break
    return min_s


def _scratch(kernel: UOp, device: str) -> list[Buffer]:
    """Memory for the arguments of a kernel. Integers are 0: they may be indices."""
    pointers = {u.arg: u.dtype for u in kernel.toposort() if u.op is Ops.DEFINE_GLOBAL}
    buffers: list[Buffer] = []
    for slot in range(max(pointers) + 1):
        dtype = pointers.get(slot)
        if not isinstance(dtype, PtrDType):
            buffers.append(Buffer(device, 0, next(iter(pointers.values())).base))
            continue
        buffer = Buffer(device, dtype.size, dtype.base).allocate()
        if not dtypes.is_float(dtype.base):
            buffer.copyin(memoryview(bytes(buffer.nbytes)))
        buffers.append(buffer)
    return buffers
