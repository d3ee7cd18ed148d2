"""Errors in custom kernels: each names the mistake and the fix, where the kernel is built."""

from __future__ import annotations

import pytest

from test.backend.codegen.custom_kernels import add, increment, loop
from test.devices import DEVICE, device_names, nth
from tinygrad import Tensor, UOp, dtypes
from tinygrad.schedule.kernel.custom_kernel import CustomKernelError
from tinygrad.sharding import ShardingError
from tinygrad.uop.ops import KernelInfo, Ops


def i_of(c: UOp) -> UOp:
    return loop(c.shape[0], 0)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (lambda c, a: c[i_of(c)].store(1.0).end(i_of(c)), "returned END; end it with .sink"),
        (lambda c, a: None, "returned None; end it with .sink"),
        (lambda c: c[0].store(1.0).sink(), "called with 2 tensors"),
        (lambda c, a: c[i_of(c)].store(1.0).sink(), "the loop 0 around a store is not closed"),
        (lambda c, a: c[i_of(c)].store(1.0).end(i_of(c), i_of(c)).sink(), "closed twice"),
        (lambda c, a: c[i_of(c) + 1].store(1.0).end(i_of(c)).sink(), "goes from 1 to 8, but"),
        (lambda c, a: c[0].store(a[8]).sink(), "index 8 of axis 0 .* has 8 elements"),
        (lambda c, a: c[0].store(a[2:4][2]).sink(), "has 2 elements"),
        (lambda c, a: c[0].store(a[0].cast(dtypes.int)).sink(), "dtypes.int is stored to"),
        (lambda c, a: c[0].store(a[0] + i_of(c)).end(i_of(c)).sink(), "ADD .*use cast"),
        (lambda c, a: c[a[0]].store(1.0).sink(), "an index must be an integer"),
        (lambda c, a: c[0].store(a * 2).sink(), "with an array of shape .* index it"),
        (lambda c, a: c[0].store(a).sink(), "an array of shape .* is used as a number"),
        (lambda c, a: c.store(1.0).sink(), "store.. writes one element"),
        (lambda c, a: a[0].sink(), "INDEX has no effect"),
        (lambda c, a: UOp.sink(), "it stores to no placeholder"),
        (lambda c, a: c[0].store(a[0].reduce(i_of(c), arg=Ops.SUB)).sink(), "reduce.. takes"),
        (lambda c, a: UOp.placeholder((8,), c.dtype, 7)[0].store(1.0).sink(), "placeholder 7"),
        (lambda c, a: c[0].store(a[0].contiguous()).sink(), "CONTIGUOUS is not part of a kernel"),
    ],
)
def test_errors_in_a_kernel_name_the_mistake(kernel, message):
    with pytest.raises(CustomKernelError, match=message):
        Tensor.custom_kernel(Tensor.empty(8), Tensor.ones(8), fxn=kernel)


def test_loops_without_an_order_are_errors():
    def one_loop_for_two_phases(y: UOp, x: UOp) -> UOp:
        i = i_of(x)
        once = y.after(y[i].store(x[i]).end(i))
        return y[i].store(once[7 - i]).end(i).sink()

    with pytest.raises(CustomKernelError, match=r"its loops cannot be ordered: .* of its own"):
        Tensor.custom_kernel(Tensor.empty(8), Tensor.ones(8), fxn=one_loop_for_two_phases)


@pytest.mark.parametrize("arg", ["name", KernelInfo("name", opts_to_apply=("unroll",))])
def test_invalid_sources_of_a_sink_are_errors(arg):
    with pytest.raises(CustomKernelError, match=r"it takes KernelInfo\(name\), with opts_to_apply"):
        Tensor.custom_kernel(Tensor.empty(8), fxn=lambda c: c[0].store(1.0).sink(arg=arg))


def test_errors_in_an_index_name_the_mistake():
    a = UOp.placeholder((4, 4), dtypes.float, 0)
    with pytest.raises(IndexError, match="3 indices for an array of shape"):
        a[0, 1, 2]
    with pytest.raises(TypeError, match="a slice of a kernel's array has no steps"):
        a[::2]
    with pytest.raises(TypeError, match="is an int or an expression, not 'x'"):
        a["x", 0]
    with pytest.raises(TypeError, match="not iterable"):
        iter(a)


def test_tensors_of_a_kernel_must_share_a_device():
    x = Tensor.ones(4).contiguous()
    with pytest.raises(ShardingError, match=f"live on {DEVICE} and {nth(1)}; bring"):
        Tensor.custom_kernel(Tensor.empty(4), x, x.to(nth(1)), fxn=add)
    with pytest.raises(TypeError, match="input 1 is 3, not a tensor"):
        Tensor.custom_kernel(Tensor.empty(4), 3, fxn=increment)
    with pytest.raises(ShardingError, match="are sharded"):
        Tensor.custom_kernel(x.shard(device_names(2), axis=0), fxn=increment)
