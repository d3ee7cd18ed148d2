"""Helpers of sharding tests: layouts, arrays, and comparison of programs with one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from test.devices import device_names
from test.together import CommTrace, GlobalCounters
from tinygrad import Tensor, ranks
from tinygrad.device import Sharding

Array: TypeAlias = np.ndarray[Any, Any]
Program: TypeAlias = Callable[..., Tensor]

DEVICES = device_names(4)
TWO = DEVICES[:2]
GRID = (2, 2)
KIB = 1024


def on(axis: Any, mesh: tuple[int, ...] = (), devices: Sequence[str] = DEVICES) -> Sharding:
    """A layout over four devices."""
    return Sharding(devices, axis, mesh)


REPLICATED = on(None)


def array(*shape: int, seed: int = 0) -> Array:
    """Standard normal float32 numbers; equal seeds give equal arrays."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, seed: int = 0) -> Array:
    """Small integers in float32; their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def placed(value: Array, layout: Any) -> Tensor:
    """A realized tensor in `layout`, where the shape allows it; None is one device."""
    x = Tensor(value, requires_grad=value.dtype == np.float32)
    return (x if layout is None else x.to(layout)).realize()


def value_and_gradients(program: Program, arguments: Sequence[Tensor]) -> list[Array]:
    """The program's value, and the gradient of a weighted sum of it in each float argument."""
    out = program(*arguments)
    results = [out]
    wanted = [x for x in arguments if x.is_floating_point()]
    if out.is_floating_point() and wanted:
        ramp = Tensor.arange(out.numel()).reshape(out.shape) * 0.25 + 1
        results += (out * ramp).sum().gradient(*wanted, materialize_grads=True)
    Tensor.realize(*results)
    return [x.numpy() for x in results]


def assert_same_as_on_one_device(
    program: Program,
    arrays: Sequence[Array],
    layouts: Sequence[Any],
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> None:
    """Value and gradients of `program` do not depend on the layouts of its arguments."""
    expected = value_and_gradients(program, [placed(a, None) for a in arrays])
    pairs = zip(arrays, layouts, strict=True)
    found = value_and_gradients(program, [placed(a, layout) for a, layout in pairs])
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def moved(*results: Tensor) -> dict[str, int]:
    """Bytes of each kind of communication when `results` are realized."""
    before = GlobalCounters.bytes_moved
    with CommTrace() as trace:
        Tensor.realize(*results)
    assert trace.nbytes == GlobalCounters.bytes_moved - before
    return trace.kinds()


def resharded(x: Tensor, layout: Sharding) -> Tensor:
    """`x` resharded to `layout`; unchanged if it is on one device."""
    return x.to(layout) if isinstance(x.device, Sharding) else x


def sent(kinds: dict[str, int]) -> dict[str, float]:
    """The bytes from `moved` as KiB sent by each of four devices."""
    return {kind: nbytes / len(DEVICES) / KIB for kind, nbytes in kinds.items()}


Sent: TypeAlias = dict[str, float]


def traffic(
    program: Program, arrays: Sequence[Array], layouts: Sequence[Any]
) -> tuple[Sent, Sent, Tensor]:
    """KiB sent by each device, by kind: for `program` alone, and for `program` with its gradients.

    Checks that value and gradients equal those on one device, and that each gradient has the
    layout of its argument. The third result is the value.
    """
    forward = sent(moved(program(*(placed(a, b) for a, b in zip(arrays, layouts, strict=True)))))
    found = _with_gradients(program, arrays, layouts)
    training = sent(moved(*found))
    expected = _with_gradients(program, arrays, [None] * len(arrays))
    for one, other in zip(found, (x.numpy() for x in expected), strict=True):
        scale = max(1.0, float(np.abs(other).max()))
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-5 * scale)
    return forward, training, found[0]


def _with_gradients(
    program: Program, arrays: Sequence[Array], layouts: Sequence[Any]
) -> list[Tensor]:
    """The lazy value, and the gradients of a weighted sum of it."""
    arguments = [placed(a, layout) for a, layout in zip(arrays, layouts, strict=True)]
    out = program(*arguments)
    weight = placed(array(*out.shape, seed=99), layouts[0] and layouts[0].replicated())
    wanted = [x for x in arguments if x.is_floating_point()]
    gradients = (out * weight).sum().gradient(*wanted)
    assert [x.device for x in gradients] == [x.device for x in wanted]
    return [out, *gradients]


def parts(x: Tensor) -> list[Array]:
    """The shard of a realized tensor on each device, in its local shape."""
    layout = x.device
    assert isinstance(layout, Sharding)
    local = layout.local_shape(x.shape)
    shards = {buffer.device: buffer.numpy().reshape(local) for buffer in x.uop.buffer.bufs}
    for others in ranks.gather(shards):
        shards |= others
    return [shards[device] for device in layout.devices]
