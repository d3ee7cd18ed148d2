"""Optimizers: several steps against the published rules, layouts, errors, kernel counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE, device_names, nth
from tinygrad import GlobalCounters, Tensor, TinyJit, dtypes, nn
from tinygrad.device import Sharding
from tinygrad.nn.optim import LAMB, LARS, SGD, Adam, AdamW, Muon, Optimizer, OptimizerGroup

DEVICES = device_names(2)
STEPS = 4


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((4, 6), (6, 2), (2,))]


X = np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)


def loss_of(x: Any, params: Sequence[Any]) -> Any:
    """A small network."""
    w1, w2, b = params
    return (((x @ w1).relu() @ w2 + b) ** 2).mean()


def trained(make: Callable[[list[Tensor]], Any], layout: Any = None) -> list[np.ndarray]:
    """The parameters after STEPS steps of an optimizer."""
    params = [Tensor(value) for value in weights()]
    x = Tensor(X)
    if layout is not None:
        x.shard_(layout.devices, axis=0)
        for param in params:
            param.shard_(layout.devices)
    optimizer = make(params)
    with Tensor.train():
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(x, params).backward()
            optimizer.step()
    return [param.numpy() for param in params]


def assert_all_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def gradients(params: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The gradients of `loss_of` by each parameter, derived analytically."""
    w1, w2, b = params
    x = X.astype(np.float64)
    hidden = np.maximum(x @ w1, 0)
    out = hidden @ w2 + b
    by_out = 2 * out / out.size
    by_hidden = (by_out @ w2.T) * (hidden > 0)
    return [x.T @ by_hidden, hidden.T @ by_out, by_out.sum(0)]


Rule = Callable[[np.ndarray, np.ndarray, dict[str, Any], int], np.ndarray]


def trained_by_rule(rule: Rule) -> list[np.ndarray]:
    """The parameters after STEPS steps of a rule, which maps a parameter, its gradient, a mutable
    state and the step number to the new parameter.
    """
    params: list[np.ndarray] = [value.astype(np.float64) for value in weights()]
    states: list[dict[str, Any]] = [{} for _ in params]
    for step in range(1, STEPS + 1):
        pairs = zip(params, gradients(params), states, strict=True)
        params = [rule(param, grad, state, step) for param, grad, state in pairs]
    return params


def sgd_rule(
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    classic: bool = False,
) -> Rule:
    """Sutskever et al., 2013; with `classic`, momentum includes the learning rate."""

    def rule(param: Any, grad: Any, state: Any, step: int) -> Any:
        grad = grad + weight_decay * param
        grad = lr * grad if classic else grad
        if momentum:
            state["b"] = momentum * state.get("b", 0) + grad
            grad = grad + momentum * state["b"] if nesterov else state["b"]
        return param - (grad if classic else lr * grad)

    return rule


def adam_rule(
    lr: float,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Rule:
    """Kingma and Ba, 2014, with the weight decay of Loshchilov and Hutter, 2017."""

    def rule(param: Any, grad: Any, state: Any, step: int) -> Any:
        state["m"] = b1 * state.get("m", 0) + (1 - b1) * grad
        state["v"] = b2 * state.get("v", 0) + (1 - b2) * grad**2
        mean, square = state["m"] / (1 - b1**step), state["v"] / (1 - b2**step)
        return param * (1 - lr * weight_decay) - lr * mean / (np.sqrt(square) + eps)

    return rule


@pytest.mark.sample(2)
@pytest.mark.parametrize("fused", [0, 1])
@pytest.mark.parametrize(
    ("make", "rule", "options"),
    [
        (SGD, sgd_rule, {"lr": 0.1}),
        (SGD, sgd_rule, {"lr": 0.1, "weight_decay": 0.1}),
        (SGD, sgd_rule, {"lr": 0.1, "momentum": 0.9}),
        (SGD, sgd_rule, {"lr": 0.1, "momentum": 0.9, "classic": True, "weight_decay": 0.1}),
        (SGD, sgd_rule, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (SGD, sgd_rule, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "classic": True}),
        (Adam, adam_rule, {"lr": 0.1}),
        (Adam, adam_rule, {"lr": 0.1, "b1": 0.5, "b2": 0.9, "eps": 0.01}),
        (AdamW, adam_rule, {"lr": 0.1, "weight_decay": 0.1}),
    ],
)
def test_steps_follow_the_published_rule(make, rule, options, fused):
    found = trained(lambda params: make(params, fused=fused, **options))
    assert_all_close(found, trained_by_rule(rule(**options)))


@pytest.mark.parametrize("make", [SGD, Adam, AdamW, LAMB, LARS])
def test_fused_steps_equal_steps_of_each_parameter(make):
    found = trained(lambda params: make(params, lr=0.1, fused=1))
    assert_all_close(found, trained(lambda params: make(params, lr=0.1, fused=0)))


def test_a_number_set_as_the_rate_is_used_by_the_next_steps():
    for make in (SGD, Muon):
        params = [Tensor([[1.0]]), Tensor([1.0])]
        optimizer = make((x for x in params), lr=0.0)
        with Tensor.train():
            for rate in (0.0, 0.5):
                optimizer.lr = rate
                optimizer.zero_grad()
                sum(x.sum() for x in params).backward()
                optimizer.step()
                assert [x.item() == 1 for x in params] == [rate == 0] * 2
        assert nn.state.get_state_dict(optimizer)["lr"].tolist() == [0.5]


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", [SGD, Adam, AdamW, LAMB, LARS])
@pytest.mark.parametrize("fused", [0, 1])
def test_steps_on_replicated_parameters_equal_those_on_one_device(make, fused):
    found = trained(lambda params: make(params, lr=0.1, fused=fused), Sharding(DEVICES))
    assert_all_close(found, trained(lambda params: make(params, lr=0.1)))


def steps_in_numpy(params: list[np.ndarray], grads: list[np.ndarray], update: Any) -> Any:
    """Parameters after STEPS updates with constant gradients."""
    states: list[dict[str, Any]] = [{} for _ in params]
    params = [param.astype(np.float64) for param in params]
    for step in range(1, STEPS + 1):
        params = [
            update(param, grad.astype(np.float64), state, step)
            for param, grad, state in zip(params, grads, states, strict=True)
        ]
    return params


def steps_in_ours(params: list[np.ndarray], grads: list[np.ndarray], make: Any) -> Any:
    ours = [Tensor(param) for param in params]
    optimizer = make(ours)
    with Tensor.train():
        for _ in range(STEPS):
            for param, grad in zip(ours, grads, strict=True):
                param.grad = Tensor(grad)
            optimizer.step()
    return [param.numpy() for param in ours]


def matrices() -> tuple[list[np.ndarray], list[np.ndarray]]:
    values = weights()[:2]
    return values, [value * 0.5 + 0.1 for value in values]


def test_lamb_scales_by_the_trust_ratio():
    def update(param, grad, state, step):
        state["m"] = 0.9 * state.get("m", 0) + 0.1 * grad
        state["v"] = 0.999 * state.get("v", 0) + 0.001 * grad**2
        mean, square = state["m"] / (1 - 0.9**step), state["v"] / (1 - 0.999**step)
        direction = mean / (np.sqrt(square) + 1e-6) + 0.1 * param
        ratio = np.linalg.norm(param) / np.linalg.norm(direction)
        return param - 0.01 * ratio * direction

    values, grads = matrices()
    found = steps_in_ours(values, grads, lambda ps: LAMB(ps, lr=0.01, weight_decay=0.1))
    assert_all_close(found, steps_in_numpy(values, grads, update))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("classic", [False, True])
def test_lars_scales_by_the_trust_ratio(classic, nesterov):
    def update(param, grad, state, step):
        size, slope = np.linalg.norm(param), np.linalg.norm(grad)
        rate = 0.1 * 0.02 * size / (slope + 0.01 * size)
        grad = (grad + 0.01 * param) * (rate if classic else 1)
        state["b"] = 0.9 * state.get("b", 0) + grad
        direction = grad + 0.9 * state["b"] if nesterov else state["b"]
        return param - direction * (1 if classic else rate)

    def make(params):
        return LARS(
            params, lr=0.1, weight_decay=0.01, tcoef=0.02, classic=classic, nesterov=nesterov
        )

    values, grads = matrices()
    assert_all_close(steps_in_ours(values, grads, make), steps_in_numpy(values, grads, update))


@pytest.mark.parametrize("fused", [0, 1])
def test_state_beside_float64_parameters_is_float64(fused):
    values = [x.astype(np.float64) for x in weights()[:2]]
    grads = [x * 0.5 + 0.1 for x in values]
    for make, rule in (
        (lambda ps: SGD(ps, lr=0.1, momentum=0.9, fused=fused), sgd_rule(0.1, 0.9)),
        (lambda ps: Adam(ps, lr=0.1, fused=fused), adam_rule(0.1)),
    ):
        found = steps_in_ours(values, grads, make)
        for one, other in zip(found, steps_in_numpy(values, grads, rule), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-14)
    assert {x.dtype for x in SGD([Tensor.ones(2).half()], momentum=0.9).b} == {dtypes.float32}


def test_a_parameter_of_zeros_is_trained_at_the_unscaled_rate():
    (found,) = steps_in_ours(
        [np.zeros(3, np.float32)], [np.zeros(3, np.float32)], lambda ps: LARS(ps, lr=0.1)
    )
    assert found.tolist() == [0, 0, 0]


def orthogonal_by_newton_schulz(matrix: np.ndarray) -> np.ndarray:
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


def test_muon_takes_orthogonal_steps():
    def update(param, grad, state, step):
        state["b"] = 0.95 * state.get("b", 0) + grad
        direction = orthogonal_by_newton_schulz(grad + 0.95 * state["b"])
        return param * (1 - 0.1 * 0.02) - 0.02 * direction

    values, grads = matrices()
    found = steps_in_ours(values, grads, lambda params: Muon(params, lr=0.02))
    for one, other in zip(found, steps_in_numpy(values, grads, update), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_muon_trains_vectors_as_adamw_does():
    values = [np.eye(3, 2, dtype=np.float32), np.ones(2, np.float32), np.ones((), np.float32)]
    grads = [np.full_like(x, 0.5) for x in values]
    both = steps_in_ours(values, grads, lambda ps: Muon(ps, lr=0.02, weight_decay=0.3))
    alone = steps_in_ours(values[:1], grads[:1], lambda ps: Muon(ps, lr=0.02, weight_decay=0.3))
    flat = steps_in_ours(values[1:], grads[1:], lambda ps: AdamW(ps, lr=0.02, weight_decay=0.3))
    assert_all_close(both, [*alone, *flat])
    vector = Tensor.ones(2)
    optimizer = Muon([Tensor.ones(2, 2), vector], lr=0.02)
    for param in optimizer.params:
        param.shard_(device_names(2, 1))
        param.grad = param.ones_like()
    optimizer.lr.assign(optimizer.lr * 0)
    with Tensor.train():
        optimizer.step()
    assert vector.tolist() == [1, 1]
    assert optimizer.vectors.m[0].device == vector.device == optimizer.device


def test_a_group_steps_all_its_optimizers():
    values, grads = matrices()
    found = steps_in_ours(
        values, grads, lambda ps: OptimizerGroup(SGD(ps[:1], lr=0.1), Adam(ps[1:], lr=0.1))
    )
    alone = steps_in_ours(values, grads, lambda ps: OptimizerGroup(SGD(ps, lr=0.1)))
    other = steps_in_ours(values, grads, lambda ps: OptimizerGroup(Adam(ps, lr=0.1)))
    assert_all_close(found, [alone[0], other[1]])


# ---- layouts ----


@pytest.mark.parametrize("axis", [0, 1, None])
def test_state_has_the_layout_of_its_parameter(axis):
    param = Tensor(weights()[0]).shard(DEVICES, axis=axis)
    optimizer = Adam([param])
    assert optimizer.m[0].device == optimizer.v[0].device == Sharding(DEVICES, axis)
    assert optimizer.lr.device == optimizer.b1_t.device == Sharding(DEVICES)


def test_a_step_of_sharded_parameters_moves_nothing():
    value = weights()[0]
    param = Tensor(value).shard(DEVICES, axis=0)
    optimizer = Adam([param], lr=0.1)
    param.grad = Tensor(value).shard(DEVICES, axis=0).realize()
    GlobalCounters.reset()
    with Tensor.train():
        optimizer.step()
    assert GlobalCounters.bytes_moved == 0
    np.testing.assert_allclose(param.numpy(), value - 0.1 * np.sign(value), 1e-4, 1e-4)


def test_parameters_on_different_devices_are_trained_together():
    values, grads = matrices()
    ours = [Tensor(value, device=device) for value, device in zip(values, DEVICES, strict=True)]
    for param, grad in zip(ours, grads, strict=True):
        param.grad = Tensor(grad, device=param.device)
    with Tensor.train():
        Adam(ours, lr=0.1).step()
    for param, value, grad in zip(ours, values, grads, strict=True):
        np.testing.assert_allclose(param.numpy(), value - 0.1 * np.sign(grad), 1e-4, 1e-4)


# ---- state that follows ----

LAYOUTS = [Sharding(DEVICES), Sharding(DEVICES, 0), nth(1)]


def momentum(params: list[Tensor], fused: int = 0, device: Any = None) -> SGD:
    return SGD(params, lr=0.1, momentum=0.9, fused=fused, device=device)


def state_of(optimizer: Any) -> list[Tensor]:
    return optimizer.b if hasattr(optimizer, "b") else optimizer.m + optimizer.v


def trained_after(make: Any, fused: int, move: Callable[[list[Tensor], Any], None]) -> Any:
    """The optimizer and its parameters after two steps, `move(params, optimizer)`, two steps."""
    params = [Tensor(value) for value in weights()]
    optimizer = make(params, fused=fused)
    with Tensor.train():
        for number in range(STEPS):
            if number == 2:
                move(params, optimizer)
            x = Tensor(X, device=params[0].device)
            optimizer.zero_grad()
            loss_of(x, params).backward()
            optimizer.step()
    return optimizer, [param.numpy() for param in params]


@pytest.mark.sample(4)
@pytest.mark.parametrize("make", [momentum, Adam, LAMB])
@pytest.mark.parametrize("fused", [0, 1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_state_follows_parameters_that_were_moved(make, fused, layout):
    def move(params: list[Tensor], optimizer: Any) -> None:
        for param in params:
            param.to_(layout)

    optimizer, found = trained_after(make, fused, move)
    assert all(state.device == layout for state in state_of(optimizer))
    assert optimizer.lr.device == optimizer._beside(optimizer.lr, optimizer.params[0]).device
    assert_all_close(found, trained_after(make, fused, lambda params, optimizer: None)[1])


@pytest.mark.parametrize("make", [momentum, Adam])
def test_a_fused_group_is_split_where_some_parameters_were_moved(make):
    def move(params: list[Tensor], optimizer: Any) -> None:
        params[1].shard_(DEVICES, axis=0)
        for param in (params[0], params[2]):
            param.shard_(DEVICES)

    optimizer, found = trained_after(make, 1, move)
    assert optimizer.groups == [[0, 2], [1]]
    assert state_of(optimizer)[1].device == Sharding(DEVICES, 0)
    assert_all_close(found, trained_after(make, 0, lambda params, optimizer: None)[1])


def test_a_step_after_parameters_were_moved_moves_only_state():
    param = Tensor(weights()[0])
    optimizer = Adam([param], lr=0.1)
    param.shard_(DEVICES, axis=0)
    bytes_moved = []
    with Tensor.train():
        for _ in range(3):
            param.grad = Tensor(weights()[0]).shard(DEVICES, axis=0).realize()
            GlobalCounters.reset()
            optimizer.step()
            bytes_moved.append(GlobalCounters.bytes_moved)
    # half of the parameter and of each running mean, and the rate and the two powers
    assert bytes_moved == [3 * param.nbytes() // 2 + 3 * 4, 0, 0]


@pytest.mark.sample(8)
@pytest.mark.parametrize("make", [momentum, LARS, Adam, LAMB])
@pytest.mark.parametrize("layout", [DEVICE, *LAYOUTS[:2]])
@pytest.mark.parametrize("place", [nth(2), Sharding(DEVICES, 0)], ids=["offloaded", "sharded"])
def test_state_that_was_placed_elsewhere_stays_there(make, layout, place):
    if layout == DEVICE and place != nth(2):
        place = Sharding((nth(2), nth(3)), 0)

    def move(params: list[Tensor], optimizer: Any) -> None:
        for state in state_of(optimizer):
            state.to_(place)
        for param in params:
            param.to_(layout)

    optimizer, found = trained_after(make, 0, move)
    assert all(state.device == place for state in state_of(optimizer))
    assert all(param.device == layout for param in optimizer.params)
    assert_all_close(found, trained_after(make, 0, lambda params, optimizer: None)[1])


@pytest.mark.parametrize("make", [momentum, LARS, Adam, LAMB, Muon])
@pytest.mark.parametrize("place", [nth(1), Sharding(DEVICES, 0)], ids=["offloaded", "sharded"])
def test_state_is_made_on_a_given_device_and_stays_there(make, place):
    layout = DEVICE if place == nth(1) else Sharding(DEVICES)
    params = [Tensor(value, device=layout) for value in weights()]
    optimizer = make(params, fused=0, device=place)
    with Tensor.train():
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss_of(Tensor(X, device=layout), params).backward()
            optimizer.step()
    assert optimizer.device == place
    assert all(state.device == place for state in state_of(optimizer))
    assert all(param.device == layout for param in params)
    expected = trained_after(make, 0, lambda params, optimizer: None)[1]
    assert_all_close([param.numpy() for param in params], expected)


WRONG_NUMBERS = [
    (SGD, {"lr": -0.1}, "SGD: lr=-0.1 must be nonnegative"),
    (Adam, {"lr": float("nan")}, "Adam: lr=nan must be nonnegative"),
    (SGD, {"momentum": -0.5}, "momentum=-0.5 must be nonnegative"),
    (Muon, {"weight_decay": -1}, "Muon: weight_decay=-1 must be nonnegative"),
    (AdamW, {"weight_decay": -1}, "weight_decay=-1 must be nonnegative"),
    (Adam, {"b2": 1.0}, r"b2=1.0 must be in \[0, 1\)"),
    (LAMB, {"b1": -0.1}, r"b1=-0.1 and b2=0.999 must be in \[0, 1\)"),
]


@pytest.mark.parametrize(("make", "arguments", "message"), WRONG_NUMBERS)
def test_numbers_out_of_range_are_an_error(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make([Tensor([1.0])], **arguments)


def test_a_rate_that_is_set_is_checked_and_may_be_zero():
    optimizer = SGD([Tensor([1.0])], lr=0.0)
    assert optimizer.lr.item() == 0
    with pytest.raises(ValueError, match="lr=-1 must be nonnegative"):
        optimizer.lr = -1


def test_state_follows_parameters_that_were_moved_between_calls_of_a_captured_step():
    def train(move: bool) -> list[np.ndarray]:
        params, x = [Tensor(value) for value in weights()], Tensor(X)
        optimizer = Adam(params, lr=0.1)

        @TinyJit
        @Tensor.train()
        def step() -> Tensor:
            optimizer.zero_grad()
            return loss_of(x, params).backward().realize(*optimizer.schedule_step())

        for number in range(8):
            if move and number == 4:
                for moved in (x, *params):
                    moved.shard_(DEVICES, axis=0)
            step()
        return [param.numpy() for param in params]

    assert_all_close(train(move=True), train(move=False))


# ---- use ----


def test_the_rate_can_be_changed_between_steps():
    param = Tensor([1.0])
    optimizer = SGD([param], lr=0.5)
    with Tensor.train():
        for rate in (0.5, 0.25):
            optimizer.lr.assign(Tensor([rate]))
            param.grad = Tensor([1.0])
            optimizer.step()
    assert param.tolist() == [0.25]


def test_tensors_that_need_no_gradient_are_not_trained():
    trained_one, counted = Tensor([1.0]), Tensor([5.0], requires_grad=False)
    optimizer = SGD([trained_one, counted])
    assert trained_one.requires_grad
    assert len(optimizer.params) == len(optimizer.buffers) == 1
    assert optimizer.buffers[0] is counted


@pytest.mark.parametrize("make", [SGD, momentum, Adam, LAMB, LARS])
@pytest.mark.parametrize("fused", [0, 1])
def test_a_parameter_without_axes_is_trained_as_a_vector_of_one(make, fused):
    scalar, vector = Tensor(2.0), Tensor([2.0])
    with Tensor.train():
        for param in (scalar, vector):
            optimizer = make([param, Tensor.ones(3)][: 1 + fused], fused=fused)
            for _ in range(2):
                optimizer.zero_grad()
                sum(p.square().sum() for p in optimizer.params).backward()
                optimizer.step()
    assert scalar.shape == ()
    assert scalar.item() == vector.item() != 2.0


def test_views_taken_before_an_optimizer_was_made_see_its_steps() -> None:
    for weight in (Tensor([1.0, 2.0]), Tensor([1.0, 2.0]).realize(), Tensor([0.0, 1.0]) + 1):
        view = weight[1:]
        optimizer = nn.optim.SGD([weight], lr=1.0)
        with Tensor.train():
            (weight * 2).sum().backward()
            optimizer.step()
        assert (weight.tolist(), view.tolist()) == ([-1, 0], [0])


def test_a_parameter_given_twice_is_trained_once():
    param = Tensor([1.0])
    optimizer = SGD([param, param], lr=0.5)
    param.grad = Tensor([1.0])
    with Tensor.train():
        optimizer.step()
    assert param.tolist() == [0.5]


def test_zero_grad_clears_gradients():
    param = Tensor([1.0])
    optimizer = SGD([param])
    param.grad = Tensor([1.0])
    optimizer.zero_grad()
    assert param.grad is None


def test_the_state_can_be_named_and_saved():
    optimizer = Adam([Tensor([1.0]), Tensor([2.0])])
    names = nn.state.get_state_dict(optimizer).keys()
    assert {"lr", "b1_t", "b2_t", "m.0", "m.1", "v.0", "v.1", "params.0", "params.1"} <= names


def test_a_subclass_needs_only_its_step():
    class Halver(Optimizer):
        def _step(self, params, grads):
            return [param * 0.5 for param in params], []

    param = Tensor([4.0])
    optimizer = Halver([param], lr=1.0)
    param.grad = Tensor([1.0])
    with Tensor.train():
        optimizer.step()
    assert param.tolist() == [2.0]


# ---- errors ----


def test_nothing_to_train_is_an_error():
    with pytest.raises(ValueError, match="no parameter to train"):
        SGD([Tensor([1.0], requires_grad=False)])


def test_a_step_outside_training_names_the_fix():
    optimizer = SGD([Tensor([1.0])])
    with pytest.raises(RuntimeError, match=r"with Tensor\.train\(\)"):
        optimizer.step()


def test_errors_name_parameters_without_a_gradient():
    used, unused = Tensor([1.0]), Tensor.ones(2, 3)
    optimizer = SGD([used, unused])
    used.grad = Tensor([1.0])
    with Tensor.train(), pytest.raises(RuntimeError, match=r"1 of 2.*number 1, .*\(2, 3\)"):
        optimizer.step()


@pytest.mark.parametrize("make", [SGD, Adam, AdamW, LAMB, LARS, Muon])
def test_errors_name_the_class_that_was_called(make):
    with pytest.raises(RuntimeError, match=rf"^{make.__name__}\.step\(\) needs"):
        make([Tensor.ones(2, 2)]).step()


# ---- kernels ----


def test_the_first_step_has_the_kernels_of_the_second():
    param = Tensor.ones(8, 8)
    optimizer = Adam([param])
    counts = []
    with Tensor.train():
        for _ in range(2):
            param.grad = Tensor.ones(8, 8).contiguous().realize()
            GlobalCounters.reset()
            optimizer.step()
            counts.append(GlobalCounters.kernel_count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    "make", [Adam, AdamW, lambda ps: SGD(ps, momentum=0.9, weight_decay=0.1, nesterov=True)]
)
def test_a_step_takes_one_kernel_per_parameter(make):
    params = [Tensor(value) for value in weights()]
    optimizer = make(params)
    with Tensor.train():
        for param, value in zip(params, weights(), strict=True):
            param.grad = Tensor(value).realize()
        GlobalCounters.reset()
        optimizer.step()
    # and one for each of the two powers of the decay rates
    assert GlobalCounters.kernel_count <= len(params) + 2


def test_steps_under_the_jit_equal_those_without():
    def train(wrap: Any) -> list[np.ndarray]:
        params, x = [Tensor(value) for value in weights()], Tensor(X)
        optimizer = Adam(params, lr=0.1)

        @wrap
        @Tensor.train()
        def step() -> Tensor:
            optimizer.zero_grad()
            return loss_of(x, params).backward().realize(*optimizer.schedule_step())

        losses = [step().item() for _ in range(5)]
        assert losses == sorted(losses, reverse=True)
        return [param.numpy() for param in params]

    assert_all_close(train(TinyJit), train(lambda function: function))


@pytest.mark.parametrize("wrap", [lambda function: function, TinyJit])
def test_a_step_of_an_embedding_touches_the_rows_of_the_batch_alone(wrap: Any) -> None:
    random = np.random.default_rng(0)
    table = random.standard_normal((5000, 8)).astype(np.float32)
    w = Tensor(table)
    optimizer = SGD([w], lr=0.1)
    scales = Tensor(random.standard_normal((4, 1)).astype(np.float32)).realize()

    @wrap
    @Tensor.train()
    def step(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (w[index] * scales).square().sum().backward()
        return loss.realize(*optimizer.schedule_step())

    expected = table.astype(np.float64)
    for count in range(4):
        numbers = np.array([count, 7, 7, 4999])
        GlobalCounters.reset()
        step(Tensor(numbers).realize())
        assert GlobalCounters.global_mem < table.nbytes / 10
        gradient = np.zeros_like(expected)
        factors = 2 * scales.numpy().astype(np.float64) ** 2
        np.add.at(gradient, numbers, expected[numbers] * factors)
        expected -= 0.1 * gradient
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-5, atol=1e-6)
    # the gradient stays lazy until somebody reads it
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), gradient, rtol=1e-5, atol=1e-6)
