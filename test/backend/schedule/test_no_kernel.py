"""Values that need no kernel: neutral numbers, operations on constants, and repeated elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tinygrad import GlobalCounters, Tensor, TinyJit, dtypes
from tinygrad.uop.interning import table

FLOATS, INTS = [1.5, -2.0, 3.0], [1, -2, 3]
NO_KERNEL: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], object]] = {
    "a + 0": (lambda a, i: a + 0, FLOATS),
    "0 + a": (lambda a, i: 0 + a, FLOATS),
    "a - 0": (lambda a, i: a - 0.0, FLOATS),
    "a * 1": (lambda a, i: a * 1.0, FLOATS),
    "a / 1": (lambda a, i: a / 1, FLOATS),
    "a ** 1": (lambda a, i: a**1, FLOATS),
    "i + 0": (lambda a, i: i + 0, INTS),
    "i * 0": (lambda a, i: i * 0, [0, 0, 0]),
    "sum": (lambda a, i: Tensor.ones(4, 5).sum(), 20.0),
    "sum of one axis": (lambda a, i: Tensor.full((2, 3), 2).sum(1), [6, 6]),
    "sum of uint8": (lambda a, i: Tensor.full((300,), 1, dtype=dtypes.uint8).sum(), 300),
    "max": (lambda a, i: Tensor.full((2, 3), -2).max(), -2),
    "mean": (lambda a, i: Tensor.full((4,), 0.5).mean(), 0.5),
    "-ones": (lambda a, i: -Tensor.ones(2), [-1.0, -1.0]),
    "c / c": (lambda a, i: Tensor.full((2,), 3.0) / Tensor.full((2,), 3.0), [1.0, 1.0]),
    "cast": (lambda a, i: Tensor.full((2,), 2.7).int(), [2, 2]),
    "where": (lambda a, i: (Tensor.ones(2) > 0).where(1, 2), [1, 1]),
    "matmul": (lambda a, i: Tensor.ones(1, 3) @ Tensor.ones(3, 2), [[3.0, 3.0]]),
    "bfloat16": (lambda a, i: Tensor.full((2,), 1.5, dtype=dtypes.bfloat16) + 1, [2.5, 2.5]),
    "a view": (lambda a, i: (Tensor.ones(4, 5).sum(1) * 2)[1:3].reshape(2, 1), [[10.0], [10.0]]),
}


@pytest.mark.parametrize("name", NO_KERNEL)
def test_it_has_no_kernel(name: str):
    function, expected = NO_KERNEL[name]
    a, i = Tensor(FLOATS).realize(), Tensor(INTS).realize()
    assert function(a, i).schedule() == []
    GlobalCounters.reset()
    result = function(a, i).realize()
    assert result.tolist() == expected
    assert GlobalCounters.kernel_count == 0
    # and it is the same number in a kernel
    fused = (function(a, i) + Tensor.zeros(result.shape, dtype=result.dtype).contiguous()).tolist()
    assert fused == expected


def test_what_needs_a_kernel_has_one():
    a = Tensor([1.0, math.nan, math.inf, -1.0]).realize()
    assert len((a * 0).schedule()) == 1
    np.testing.assert_array_equal((a * 0).numpy(), [0.0, math.nan, math.nan, 0.0])
    ones = Tensor.ones(4).contiguous()
    assert len(ones.schedule()) == 1
    # at the border, fewer windows have the element
    image, filters = Tensor.zeros(1, 1, 1, 4).contiguous(), Tensor.ones(1, 1, 1, 2)
    (gradient,) = image.conv2d(filters).sum().gradient(image)
    assert gradient.tolist() == [[[[1.0, 2.0, 2.0, 1.0]]]]
    own = (Tensor.ones(4) + 1).contiguous().realize()
    view = own[:2]
    view += 1
    assert own.tolist() == [3.0, 3.0, 2.0, 2.0] and (Tensor.ones(4) + 1).tolist() == [2.0] * 4
    # dtypes change, and files are read on a device
    assert (Tensor([True]) + 0).dtype is dtypes.int and (Tensor([1]) * 1.0).dtype is dtypes.float


@pytest.mark.parametrize("same", [lambda x: x + 0, lambda x: x * 1, lambda x: x - 0])
def test_an_equal_value_is_no_view(same: Callable[[Tensor], Tensor]):
    for is_stored in (False, True):
        base = Tensor([1.0, 2.0, 3.0])
        if is_stored:
            base.realize()
        equal, view = same(base), base[1:]
        base += 10
        assert equal.tolist() == [1.0, 2.0, 3.0]
        equal *= 2
        view -= 1
        assert base.tolist() == [11.0, 11.0, 12.0] and equal.tolist() == [2.0, 4.0, 6.0]
    weight = Tensor([1.0, 2.0], requires_grad=True)
    equal = same(weight)
    (equal * weight).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [2.0, 4.0]
    weight.assign(weight.detach() - 1)
    assert weight.tolist() == [0.0, 1.0] and equal.tolist() == [1.0, 2.0]
    step = TinyJit(same)
    x = Tensor([5.0]).realize()
    results = []
    for _ in range(4):
        result = step(x)
        x += 1
        results.append((result.realize().tolist(), x.realize().tolist()))
    assert results == [([5.0 + i], [6.0 + i]) for i in range(4)]


def test_constants_keep_their_gradients_and_their_graphs_stay_small():
    x = Tensor.ones(4)
    y = (x * 2).realize()
    assert y.sum().gradient(x)[0].tolist() == [2.0] * 4
    i = Tensor([1.0, 2.0], requires_grad=True)
    (i * 0).realize().sum().backward()
    assert i.grad is not None and i.grad.tolist() == [0.0, 0.0]
    count = Tensor.zeros(2)
    before = len(table)
    for _ in range(200):
        count = (count + 1).realize()
    assert len(table) - before < 150
    assert count.tolist() == [200.0, 200.0]
    # memory that an update wrote is not a constant, whatever it was before
    total = Tensor.zeros(3)
    total += 2
    total[1] = 5
    assert total.tolist() == [2.0, 5.0, 2.0]


def test_repeated_elements_are_stored_once():
    used, key = GlobalCounters.mem_used, Tensor.rand(1, 4).realize()
    assert GlobalCounters.mem_used - used <= 16 + 8
    used = GlobalCounters.mem_used
    x = Tensor.rand(1, 4).expand(4, 4).realize()
    assert GlobalCounters.mem_used - used <= 16 + 8
    assert (x.numpy() == x.numpy()[0]).all() and not (x.numpy() == key.numpy()).all()
    base = Tensor([1.0, 2.0])
    wide = (base + 1).reshape(1, 2).expand(3, 2).realize()
    more = (base * 3).repeat(2, 1)
    used = GlobalCounters.mem_used
    more.realize()
    assert GlobalCounters.mem_used - used == 8
    base += 10
    more[0] = 7
    assert wide.tolist() == [[2.0, 3.0]] * 3 and more.tolist() == [[7.0, 7.0], [3.0, 6.0]]
    with pytest.raises(RuntimeError, match="expand"):
        wide.assign(Tensor.zeros(3, 2))
    assert wide.contiguous().realize().sum().item() == 15.0
