"""OpenCL devices compute what the CPU computes, with threads, barriers and wide accesses.

They run where there is an OpenCL driver: `pip install pyopencl pocl-binary-distribution` has one
for the CPU. Three logical devices share one card.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.codegen import get_program
from tinygrad.device import Buffer, CompileError, Device, DeviceError, OutOfMemoryError
from tinygrad.dtype import AddrSpace
from tinygrad.renderer import LaunchShape, find_renderer
from tinygrad.settings import Context
from tinygrad.sharding import Sharding
from tinygrad.uop import Ops
from tinygrad.uop.ops import AxisType, KernelInfo, UOp

try:
    Device["CL"]
except DeviceError as error:
    pytest.skip(f"no OpenCL device: {error}", allow_module_level=True)

import pyopencl

from tinygrad.runtime.cl import _add_cards, find_cards, open_device

DEVICES = ("CL", "CL:1", "CL:2")


@pytest.fixture(scope="module", autouse=True)
def three_devices() -> Iterator[None]:
    with Context(DEVICES_PER_GPU=3):
        for name in DEVICES:
            assert Device[name].device == name
        yield


def whole_numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Floats whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def reals(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


Program = Callable[[Tensor], Tensor]
EXACT: dict[str, Program] = {
    "elementwise": lambda x: (x * 2 + 1).relu() - x.abs(),
    "transpose": lambda x: x.T.contiguous() + 1,
    "sums of rows": lambda x: x.sum(axis=1),
    "sums of columns": lambda x: x.sum(axis=0),
    "maximum": lambda x: x.max(),
    "argmax": lambda x: x.argmax(axis=1),
    "product": lambda x: x @ x.T,
    "padded": lambda x: x.pad(((1, 2), (3, 0))).flip(0),
    "gather": lambda x: x[Tensor([3, 1, 1, 0], device=x.device)],
    "bools": lambda x: ((x > 1) | (x < -2)).where(x, 7),
    "integers": lambda x: (x.cast(dtypes.int32) * 7) // 3 + (x.cast(dtypes.int8) % 3),
    "int64": lambda x: (x.cast(dtypes.int64) << 40) // 12345,
    "float16": lambda x: (x.half() * 0.1).float(),
    "bfloat16": lambda x: (x.cast(dtypes.bfloat16) * 0.1).float(),
    "fp8": lambda x: (x * 0.1).cast(dtypes.fp8e4m3).float(),
    "convolution": lambda x: x.reshape(1, 4, 8, 50)[..., :8].conv2d(
        x.reshape(-1)[: 2 * 4 * 9].reshape(2, 4, 3, 3), padding=1
    ),
    "sort": lambda x: x.reshape(-1)[:64].sort()[0],
    "cumulative sum": lambda x: x.cumsum(axis=1),
}


def slow_but(*names: str) -> list[object]:
    """All exact programs; those without a name here are slow, as each kernel is compiled."""
    slow = pytest.mark.slow
    return [name if name in names else pytest.param(name, marks=slow) for name in EXACT]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", slow_but("elementwise", "sums of columns", "product"))
def test_exact_programs_give_the_values_of_the_cpu(name: str) -> None:
    x, program = whole_numbers(32, 50), EXACT[name]
    got = program(Tensor(x, device="CL")).numpy()
    np.testing.assert_array_equal(got, program(Tensor(x, device="CPU")).numpy())


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.softmax(), marks=pytest.mark.slow),
        pytest.param(lambda x: x.layernorm(), marks=pytest.mark.slow),
        pytest.param(lambda x: (x.exp() + 1).log().sin().tanh(), marks=pytest.mark.slow),
        pytest.param(lambda x: x.cast(dtypes.float64).exp().sqrt(), marks=pytest.mark.slow),
    ],
)
def test_functions_are_as_accurate_as_on_the_cpu(function: Program) -> None:
    x = reals(8, 300)
    got = function(Tensor(x, device="CL")).numpy()
    expected = function(Tensor(x, device="CPU")).numpy()
    np.testing.assert_allclose(got, expected, rtol=16 * np.finfo(got.dtype).eps, atol=1e-6)


def test_a_kernel_of_one_work_item_runs_once() -> None:
    """Else each thread of a work group would read what others wrote."""
    x = Tensor([1.0, 5.0], device="CL").realize()[:1]
    x.assign(x * 2 + 1).realize()
    assert x.tolist() == [3]


@pytest.mark.slow
def test_random_numbers_are_those_of_the_cpu() -> None:
    Tensor.manual_seed(3)
    got = Tensor.rand(33, device="CL").numpy()
    Tensor.manual_seed(3)
    np.testing.assert_array_equal(got, Tensor.rand(33, device="CPU").numpy())


@pytest.mark.parametrize("axis", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_products_of_sharded_tensors_give_the_values_of_the_cpu(axis: int) -> None:
    a, b = whole_numbers(12, 30), whole_numbers(30, 18, seed=1)
    left, right = (Tensor(x).shard(DEVICES, axis=axis) for x in (a, b))
    product = (left @ right).relu()
    assert isinstance(product.device, Sharding | tuple)
    np.testing.assert_array_equal(product.numpy(), np.maximum(a @ b, 0))
    total = product.sum(axis=0).to("CL:1")
    np.testing.assert_array_equal(total.numpy(), np.maximum(a @ b, 0).sum(axis=0))


@pytest.mark.slow
def test_a_captured_training_step_on_three_devices() -> None:
    x, w = whole_numbers(12, 6), whole_numbers(6, 3, seed=1)

    def train(device: str | tuple[str, ...]) -> np.ndarray:
        weight = Tensor(w.copy(), requires_grad=True)
        weight = weight.to(device) if isinstance(device, str) else weight.shard(device)
        weight.requires_grad = True
        inputs = Tensor(x).to(device) if isinstance(device, str) else Tensor(x).shard(device, 0)

        @TinyJit
        def step(inputs: Tensor) -> None:
            (gradient,) = (inputs @ weight).square().sum().gradient(weight)
            weight.assign(weight - gradient / 1024).realize()

        for _ in range(4):
            step(inputs)
        return weight.numpy()

    np.testing.assert_allclose(train(DEVICES), train("CPU"), rtol=1e-5)


def test_threads_of_a_block_exchange_values_through_shared_memory() -> None:
    """Each block of 64 threads reverses 64 vectors of 4; without the barrier, it reads garbage."""
    threads, blocks, width = 64, 3, 4
    vector = dtypes.float32.vec(width)
    size = threads * blocks * width
    scratch = UOp(Ops.DEFINE_LOCAL, vector.ptr(threads, AddrSpace.LOCAL), (), 0)
    out, source = (UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(size), (), n) for n in (0, 1))
    count, steps = (UOp.const(dtypes.index, n) for n in (blocks, threads))
    block = UOp.range(blocks, 0, AxisType.GLOBAL)
    thread = UOp.range(threads, 1, AxisType.LOCAL)
    first = UOp.const(dtypes.index, threads * width)
    lanes = UOp.const(dtypes.index, width)
    base, own = block * first, thread * lanes
    at = base + own
    loaded = UOp(Ops.LOAD, vector, (UOp(Ops.INDEX, source.dtype, (source, at)),))
    doubled = loaded.alu(Ops.ADD, loaded)
    cell = UOp(Ops.INDEX, scratch.dtype, (scratch, thread))
    put = UOp(Ops.STORE, dtypes.void, (cell, doubled))
    barrier = UOp(Ops.BARRIER, dtypes.void, (put,))
    last = UOp.const(dtypes.index, threads - 1)
    negated = thread * UOp.const(dtypes.index, -1)
    other = last + negated
    far = UOp(Ops.INDEX, scratch.dtype, (scratch, other))
    taken = UOp(Ops.LOAD, vector, (far,))
    target = UOp(Ops.INDEX, out.dtype, (out, at))
    stored = UOp(Ops.STORE, dtypes.void, (target, taken))
    ends = [UOp(Ops.END, dtypes.void, (r,)) for r in (thread, block)]
    order = [count, steps, first, lanes, last, *negated.src[1:], scratch, out, source, block]
    order += [base, thread, own, at, loaded.src[0], loaded, doubled, cell, put, barrier, negated]
    order += [other, far, taken, target, stored, *ends]
    device = Device["CL"]
    text = find_renderer(device.target).render("reverse", order)
    assert text.count("block_barrier();") == 1
    program = device.runtime("reverse", device.compile(text))
    x = whole_numbers(blocks, threads, width)
    buffers = [Buffer("CL", size, dtypes.float32).allocate() for _ in range(2)]
    buffers[1].copyin(x.reshape(-1).view(np.uint8).data)
    program(*buffers, launch=LaunchShape(blocks, threads))
    np.testing.assert_array_equal(buffers[0].numpy().reshape(x.shape), 2 * x[:, ::-1])


def test_views_at_any_element_are_read_and_written() -> None:
    x = whole_numbers(100)
    t = Tensor(x, device="CL").realize()
    np.testing.assert_array_equal((t[3:90] + 1).numpy(), x[3:90] + 1)
    t[5:8] = 9.0
    np.testing.assert_array_equal(t.numpy()[4:9], [x[4], 9, 9, 9, x[8]])


def test_kernels_take_runtime_integers() -> None:
    size = UOp.variable("double", 1, 9)
    x = whole_numbers(9)
    t = Tensor(x, device="CL").realize()
    got = [t[: size.bind(n)].sum().item() for n in (2, 7)]
    assert got == [x[:2].sum(), x[:7].sum()]


def test_a_launch_that_waits_is_timed_by_the_device() -> None:
    n = UOp.range(4, 0)
    out = UOp(Ops.DEFINE_GLOBAL, dtypes.float32.ptr(4), (), 0)
    kernel = UOp.sink(out.index(n).store(UOp.const(dtypes.float32, 1.0), n), arg=KernelInfo("fill"))
    device = Device["CL"]
    spec = get_program(kernel, find_renderer(device.target))
    program = device.runtime(spec.function, device.compile(spec.source))
    buffer = Buffer("CL", 4, dtypes.float32).allocate()
    elapsed = program(buffer, launch=spec.launch.resolve({}), wait=True)
    assert elapsed is not None and 0 < elapsed < 60
    assert buffer.numpy().tolist() == [1, 1, 1, 1]
    assert program(buffer, launch=LaunchShape(0), wait=True) == 0.0


def test_source_that_the_driver_rejects_is_an_error_with_its_log() -> None:
    with pytest.raises(CompileError, match="undeclared_name"):
        Device["CL"].compile("__kernel void bad(__global int *x) { x[0] = undeclared_name; }")


def test_a_late_error_names_the_last_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device["CL:1"]
    (Tensor([1.0, 2.0], device="CL:1") * 3).realize()

    class Broken:
        def finish(self) -> None:
            raise pyopencl.RuntimeError("out of resources")

    monkeypatch.setattr(device, "queue", Broken())
    with pytest.raises(DeviceError, match=r"CL:1: .*out of resources\n.* the last ones .*e_2"):
        device.synchronize()


def test_too_large_a_buffer_is_out_of_memory() -> None:
    with pytest.raises(OutOfMemoryError, match="CL cannot allocate"):
        Buffer("CL", 1 << 45, dtypes.uint8).allocate()


def test_a_device_that_is_not_there_says_what_would_make_it() -> None:
    with pytest.raises(DeviceError, match="there is no CL:99999.*DEVICES_PER_GPU"):
        Device["CL:99999"]


def test_a_driver_whose_compiler_rejects_the_cpu_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rejecting(_context: object, _source: str) -> pyopencl.Program:
        raise pyopencl.RuntimeError("build failed\n\nerror: unknown target CPU 'generic'\n")

    if not Device["CL"].card.type & pyopencl.device_type.CPU:
        pytest.skip("only compilers for a CPU are asked")
    monkeypatch.setattr(pyopencl, "Program", rejecting)
    find_cards.cache_clear()
    try:
        with pytest.raises(DeviceError, match=r"knows this CPU.*unknown target CPU 'generic'$"):
            open_device("CL")
    finally:
        find_cards.cache_clear()


def test_what_a_card_cannot_do_is_asked_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = pyopencl.device_svm_capabilities.COARSE_GRAIN_BUFFER
    facts = {"name": "card", "type": pyopencl.device_type.GPU, "svm_capabilities": coarse}
    sizes = {"max_work_group_size": 1024, "max_work_item_sizes": [1024, 1024, 64]}
    usable = {"available": True, "compiler_available": True}

    def cards(**changes: object) -> tuple[int, str]:
        card = SimpleNamespace(**{**facts, **sizes, **usable, **changes})
        platform = SimpleNamespace(version="OpenCL 3.0", get_devices=lambda: [card])
        found, unusable = [], []
        _add_cards(platform, found, unusable)
        return len(found), "".join(unusable)

    monkeypatch.setattr(pyopencl, "Context", lambda cards: None)
    assert cards() == (1, "")
    assert cards(svm_capabilities=0) == cards(available=False) == (0, "")
    assert cards(compiler_available=False) == (0, "")
    small = "OpenCL 3.0 cannot compile for card: its work groups have fewer than 256 work items"
    assert cards(max_work_group_size=128) == cards(max_work_item_sizes=[64, 64, 64]) == (0, small)


@pytest.mark.slow
def test_a_sum_without_its_barrier_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    device, removed = Device["CL"], 0
    compiler = device._compiler

    def without_barrier(source: str, is_vectorized: bool) -> bytes:
        nonlocal removed
        start = source.index("__kernel")
        text, count = re.subn(r"\n *block_barrier\(\);", "\n", source[start:])
        removed += count
        return compiler(source[:start] + text, is_vectorized)

    # no other test has a kernel of this shape
    x = whole_numbers(701, 53)
    monkeypatch.setattr(device, "_compiler", without_barrier)
    wrong = Tensor(x, device="CL").sum(axis=0).numpy()
    assert removed == 1
    assert not np.array_equal(wrong, x.sum(axis=0))


def test_a_forked_process_is_told_to_be_spawned() -> None:
    x = Tensor.ones(4, device="CL").contiguous().realize()
    child = os.fork()
    if not child:
        try:
            x.tolist()
        except DeviceError as error:
            os._exit(0 if "opened before this process was forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
