"""Error messages for users' mistakes: they name the operation, the values and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygrad import Tensor, TinyJit, Variable, dtypes, nn
from tinygrad.device import Device, DeviceError, Sharding
from tinygrad.errors import ArgumentError
from tinygrad.settings import Context, SettingError
from tinygrad.sharding import Mesh, P, ShardingError

DEVICES = ("CPU", "CPU:1")


def zeros(*shape: int) -> Tensor:
    return Tensor.zeros(*shape).contiguous().realize()


# ---- devices ----


def test_operands_on_two_devices() -> None:
    with pytest.raises(ShardingError, match=r"^add: .*CPU and CPU:1.*\.to\(\) or \.shard\(\)"):
        zeros(4) + zeros(4).to("CPU:1")


@pytest.mark.parametrize("name", ["minimum", "sub", "stack", "cat", "div", "where", "eq"])
def test_errors_name_what_the_program_called(name: str) -> None:
    x, y = zeros(4), zeros(4).to("CPU:1")
    operands = (zeros(4) > 0, x, y) if name == "where" else (x, y)
    with pytest.raises(ShardingError, match=f"^{name}: the operands live on CPU and CPU:1"):
        getattr(Tensor, name)(*operands)


def test_an_operand_on_one_device_and_one_on_several() -> None:
    with pytest.raises(ShardingError, match=r"^mul: .*Sharding\(CPU:0-1, axis=0\).*\.to\(\)"):
        zeros(4).shard(DEVICES, 0) * zeros(4)


def test_layouts_over_other_devices() -> None:
    with pytest.raises(ShardingError, match=r"CPU:0-1.*CPU:2-3"):
        zeros(4).shard(DEVICES, 0) + zeros(4).shard(("CPU:2", "CPU:3"), 0)


def test_a_matmul_of_two_devices() -> None:
    with pytest.raises(ShardingError, match="CPU.*CPU:1"):
        zeros(4, 4) @ zeros(4, 4).to("CPU:1")


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(DeviceError, match="ABACUS.*known devices are.*CPU"):
        Tensor([1.0], device="ABACUS").realize()


MISSPELT: dict[str, Callable[[], Any]] = {
    "Tensor": lambda: Tensor([1], device="CPUU"),
    "to": lambda: Tensor([1]).to("CPUU"),
    "to_": lambda: Tensor([1]).to_("CPUU:1"),
    "shard": lambda: Tensor([1, 2]).shard(("CPU", "CPUU"), 0),
    "ones": lambda: Tensor.ones(3, device="CPUU"),
    "empty": lambda: Tensor.empty(3, device="CPUU"),
    "rand": lambda: Tensor.rand(3, device="CPUU"),
    "zeros_like": lambda: Tensor([1]).zeros_like(device="CPUU"),
    "DEFAULT": lambda: setattr(Device, "DEFAULT", "CPUU"),
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_device_fails_where_it_is_written(name: str) -> None:
    with pytest.raises(DeviceError, match="unknown device 'CPUU.*known devices are .*CPU"):
        MISSPELT[name]()
    assert Device.DEFAULT != "CPUU"


def test_a_device_with_an_invalid_number() -> None:
    with pytest.raises(DeviceError, match=r"'CPU:x'.*CPU:1"):
        Tensor([1.0]).to("CPU:x")


# ---- layouts ----


def test_an_axis_that_does_not_exist() -> None:
    with pytest.raises((ShardingError, IndexError), match=r"axis 2.*\(4, 4\)"):
        zeros(4, 4).shard(DEVICES, 2)


def test_a_device_named_twice() -> None:
    with pytest.raises(ShardingError, match="CPU.* more than once"):
        zeros(4).shard(("CPU", "CPU:1", "CPU"), 0)


def test_a_device_named_twice_in_two_spellings() -> None:
    with pytest.raises(ShardingError, match="more than once"):
        zeros(4).shard(("CPU", "cpu:0"), 0)


def test_no_device() -> None:
    with pytest.raises(ShardingError, match="at least one device"):
        zeros(4).shard((), 0)


def test_a_mesh_name_that_does_not_exist() -> None:
    mesh = Mesh((2,), ("dp",), DEVICES)
    with pytest.raises(ShardingError, match="'tp'.*dp"):
        zeros(4, 4).shard(mesh, P("tp"))


def test_a_spec_with_too_many_entries() -> None:
    mesh = Mesh((2,), ("dp",), DEVICES)
    with pytest.raises(ShardingError, match="3 entries.*2 axes"):
        zeros(4, 4).shard(mesh, P("dp", None, None))


def test_a_transfer_under_strict_sharding_names_both_layouts() -> None:
    x, y = zeros(4, 4).shard(DEVICES, 0), zeros(4, 4).shard(DEVICES, 1)
    with Context(SHARDING="strict"), pytest.raises(ShardingError, match=r"axis=1.*axis=0.*\.to\("):
        x + y


def test_assign_does_not_move_silently_to_another_device() -> None:
    with pytest.raises((ShardingError, RuntimeError, ValueError), match=r"CPU:1"):
        zeros(4).assign(zeros(4).to("CPU:1"))


# ---- shapes ----


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(4,\).*broadcast"):
        zeros(2, 3) + zeros(4)


def test_a_matmul_whose_sizes_differ() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"\(2, 3\).*\(4, 5\)"):
        zeros(2, 3) @ zeros(4, 5)


def test_a_reshape_to_another_size() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(4, 2\)"):
        zeros(2, 3).reshape(4, 2)


def test_a_reshape_with_two_unknown_sizes() -> None:
    with pytest.raises((ValueError, RuntimeError), match="-1"):
        zeros(2, 3).reshape(-1, -1)


def test_an_expand_of_an_axis_that_is_not_one() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(4, 3\)"):
        zeros(2, 3).expand(4, 3)


@pytest.mark.parametrize("order", [(0, 0), (0, 1, 2), (1,)])
def test_a_permute_that_is_no_permutation(order: tuple[int, ...]) -> None:
    with pytest.raises((ValueError, IndexError), match=r"order \(.*2 axes|no axis 2.*\(2, 3\)"):
        zeros(2, 3).permute(order)


@pytest.mark.parametrize("method", ["sum", "max", "mean", "softmax", "cumsum", "argmax"])
def test_a_reduction_of_an_axis_that_does_not_exist(method: str) -> None:
    with pytest.raises(IndexError, match=r"axis 5.*\(2, 3\)"):
        getattr(zeros(2, 3), method)(5)


def test_an_index_out_of_range() -> None:
    with pytest.raises(IndexError, match=r"7.*2"):
        zeros(2, 3)[7]


def test_too_many_indices() -> None:
    with pytest.raises(IndexError, match=r"3.*2"):
        zeros(2, 3)[0, 0, 0]


def test_cat_of_other_shapes() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"\(2, 3\).*\(2, 4\)"):
        zeros(2, 3).cat(zeros(2, 4), dim=0)


def test_stack_of_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"^stack takes tensors of one shape.*\(2, 3\).*\(2, 4\)"):
        zeros(2, 3).stack(zeros(2, 4))


def test_a_convolution_whose_channels_differ() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"channels|\(1, 3, 8, 8\)"):
        zeros(1, 3, 8, 8).conv2d(zeros(4, 5, 3, 3))


def test_assign_of_another_shape() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"\(4,\).*\(5,\)|\(5,\).*\(4,\)"):
        zeros(4).assign(zeros(5))


# ---- values and dtypes ----


def test_the_truth_of_a_tensor() -> None:
    with pytest.raises(TypeError, match="truth value of a tensor is ambiguous"):
        if zeros(4) == zeros(4):
            pass


def test_item_of_several_elements() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"item.*\(4,\)"):
        zeros(4).item()


def test_a_shift_of_floats() -> None:
    with pytest.raises((TypeError, RuntimeError), match="float"):
        zeros(4) << 1


def test_an_index_of_floats() -> None:
    with pytest.raises((IndexError, TypeError), match="float"):
        zeros(4)[Tensor([1.0])]


def test_a_backward_of_several_elements() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"\(4,\)"):
        (Tensor.ones(4, requires_grad=True) * 2).backward()


def test_an_operand_of_another_type() -> None:
    with pytest.raises(TypeError, match="str"):
        zeros(4) + "one"


def test_a_tensor_of_ragged_lists() -> None:
    with pytest.raises((ValueError, TypeError)):
        Tensor([[1, 2], [3]])


def test_a_dtype_that_does_not_exist() -> None:
    with pytest.raises((AttributeError, ValueError, TypeError), match="float33"):
        Tensor([1.0], dtype="float33")


# ---- not a number ----


def test_comparisons_with_nan_are_false() -> None:
    x = Tensor([1.0, float("nan"), 2.0]).realize()
    nan = Tensor([float("nan")]).realize()
    assert (x == nan).tolist() == [False] * 3
    assert (x != nan).tolist() == [True] * 3
    for found in (x < nan, x > nan, x <= nan, x >= nan):
        assert found.tolist() == [False] * 3


def test_a_comparison_with_itself_is_false_where_it_is_nan() -> None:
    x = Tensor([1.0, float("nan")]).realize()
    assert (x == x).tolist() == [True, False]
    assert (x != x).tolist() == [False, True]
    assert x.isnan().tolist() == [False, True]


def test_a_nan_that_padding_or_where_excludes_does_not_propagate() -> None:
    x = Tensor([float("nan"), 1.0]).realize()
    assert x.isnan().where(0, x).tolist() == [0, 1]
    assert x.pad(((2, 0),)).tolist()[:2] == [0, 0]
    np.testing.assert_array_equal(x[1:].sum().numpy(), 1)


def test_sharded_nan_stays_in_its_shard() -> None:
    x = Tensor([float("nan"), 1.0, 2.0, 3.0]).shard(DEVICES, 0).realize()
    assert x.device is Sharding(DEVICES, 0)
    np.testing.assert_array_equal((x + 1).numpy()[1:], [2, 3, 4])


# ---- the rest ----


def test_a_variable_out_of_its_bounds() -> None:
    with pytest.raises(ValueError, match=r"n=11.*\[1, 10\]"):
        Variable("n", 1, 10).bind(11)


def test_one_variable_with_two_values() -> None:
    n = Variable("n", 1, 10)
    x = zeros(10)
    with pytest.raises(ValueError, match="n .*3.*4"):
        (x[: n.bind(3)].sum() + x[: n.bind(4)].sum()).realize()


def test_a_setting_that_does_not_exist() -> None:
    with pytest.raises(SettingError, match="DEBUGG.*DEBUG"):
        Context(DEBUGG=1)


def test_a_layer_of_a_wrong_size() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"\(2, 5\)"):
        nn.Linear(4, 3)(zeros(2, 5))


@pytest.mark.parametrize("dtype", [dtypes.int, dtypes.bool])
def test_a_mean_of_integers_is_a_float(dtype: Any) -> None:
    assert dtypes.is_float(Tensor([1, 0, 1], dtype=dtype).mean().dtype)


# ---- by family of operations ----

ELSEWHERE = "live on CPU(:1)? and CPU(:1)?; bring them together first"
FAMILIES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    # axes that do not exist
    "sum of axis 1.5": (
        lambda: zeros(2).sum(1.5),
        TypeError,
        r"\(2,\) is an integer, not 1.5",
    ),
    "sum of axis a": (lambda: zeros(2).sum((0, "a")), TypeError, "is an integer, not 'a'"),
    "softmax of axis a": (lambda: zeros(2).softmax("a"), TypeError, "is an integer, not 'a'"),
    "sum of one axis twice": (lambda: zeros(2).sum((0, -1)), ValueError, r"\(0, -1\) names.*twice"),
    "argmax of two axes": (lambda: zeros(2, 2).argmax((0, 1)), TypeError, r"not \(0, 1\)"),
    "cumsum of two axes": (lambda: zeros(2, 2).cumsum((0, 1)), TypeError, r"not \(0, 1\)"),
    "sort of axis 2": (lambda: zeros(2, 3).sort(2), IndexError, r"no axis 2 in shape \(2, 3\)"),
    "topk of axis 2": (lambda: zeros(2, 3).topk(1, 2), IndexError, r"no axis 2 in shape \(2, 3\)"),
    "layernorm of axis 2": (lambda: zeros(2).layernorm(2), IndexError, "no axis 2"),
    # shapes
    "where": (lambda: zeros(3).where(1, zeros(4)), ValueError, r"\(3,\) and \(4,\) do not broad"),
    "maximum": (lambda: zeros(3).maximum(zeros(4)), ValueError, r"\(3,\) and \(4,\) do not broad"),
    "linear": (lambda: zeros(2).linear(zeros(3, 2)), RuntimeError, "size 2, axis -2.* 3"),
    "batchnorm": (
        lambda: zeros(3, 4).batchnorm(zeros(3), None, zeros(4), zeros(4)),
        ValueError,
        r"batchnorm: \(3,\) does not fit axes \(1,\) of shape \(3, 4\)",
    ),
    "loss": (
        lambda: zeros(3).binary_crossentropy(zeros(4)),
        ValueError,
        r"\(4,\) and \(3,\) do not broadcast",
    ),
    # types
    "loss of a number": (lambda: zeros(3).cross_entropy(0), TypeError, "cross_entropy.*not 0"),
    "loss of a list": (lambda: zeros(3, 2).nll_loss([0]), TypeError, r"nll_loss.*Tensor\(\.\.\.\)"),
    "loss of float classes": (
        lambda: zeros(2, 3).cross_entropy(zeros(2)),
        ValueError,
        r"takes integers as targets, not dtypes\.float; cast classes first: \.int",
    ),
    "sparse loss of float classes": (
        lambda: zeros(2, 3).sparse_categorical_crossentropy(zeros(2)),
        ValueError,
        "takes integers as targets",
    ),
    "likelihood of float classes": (
        lambda: zeros(2, 3).nll_loss(zeros(2)),
        ValueError,
        "takes integers as targets",
    ),
    "bits": (lambda: zeros(2) & 1, RuntimeError, r"&.*float; cast both first: \.int"),
    "not": (lambda: ~zeros(2), RuntimeError, r"\^.*float"),
    "logcumsumexp": (lambda: Tensor(1.0).logcumsumexp(5), IndexError, "no axis 5"),
    "quotient": (lambda: zeros(2).idiv(2), TypeError, "idiv takes integers, not dtypes.float"),
    "rounding": (lambda: zeros(2).div(2, rounding_mode="up"), RuntimeError, "rounding_mode='up'"),
    "threefry": (lambda: zeros(2).threefry(1), TypeError, "uint64, not dtypes.float"),
    "sum dtype": (lambda: zeros(2).sum(dtype="float33"), TypeError, "'float33' is not a dtype"),
    "backward": (lambda: Tensor([1]).sum().backward(), RuntimeError, "dtypes.int has no gradient"),
    "gradient": (lambda: Tensor(True).gradient(zeros(1)), RuntimeError, "dtypes.bool has no grad"),
    "bias": (
        lambda: zeros(1, 3, 4, 4).conv2d(zeros(2, 3, 3, 3), zeros(3)),
        ValueError,
        r"bias \(3,\) does not fit 2 output channels",
    ),
    "GroupNorm": (
        lambda: nn.GroupNorm(2, 4)(zeros(1, 6, 3)),
        ValueError,
        r"GroupNorm takes x of shape \(batch, 4, \.\.\.\), not \(1, 6, 3\)",
    ),
    "InstanceNorm": (
        lambda: nn.InstanceNorm(4, affine=False)(zeros(1, 6, 3)),
        ValueError,
        r"InstanceNorm takes x of shape \(batch, 4, \.\.\.\), not \(1, 6, 3\)",
    ),
    # values of another kind
    "unbound Variable": (
        lambda: zeros(2).add(Variable("n", 1, 3)).realize(),
        ValueError,
        r"Variable n of 1 to 3 has no value; bind it where it is used: n\.bind\(1\)",
    ),
    "unbound size": (
        lambda: Tensor.sum(zeros(4)[: Variable("n", 1, 3)]).item(),
        ValueError,
        "Variable n of 1 to 3 has no value",
    ),
    "Variable of 5": (lambda: Variable(5, 1, 3), TypeError, "has a name, not 5"),
    "bind": (lambda: Variable("n", 1, 3).bind("a"), TypeError, "n is bound to a number, not 'a'"),
    "shard_like": (lambda: zeros(2).shard_like(1), TypeError, "takes a tensor as y, not 1"),
    "target": (lambda: zeros(1).sum().gradient(4), TypeError, "takes a tensor as target, not 4"),
    "upstream": (lambda: zeros(2).gradient(gradient=4), TypeError, "takes a tensor as gradient"),
    "requires_grad": (lambda: zeros(2).requires_grad_(3), TypeError, "True, False or None, not 3"),
    "realize": (lambda: zeros(2).realize(None), TypeError, "takes a tensor as tensor, not None"),
    "replace": (lambda: zeros(2).replace(1), TypeError, "takes a tensor as x, not 1"),
    "unfold ()": (
        lambda: zeros(2).unfold(0, (), 1),
        TypeError,
        r"unfold: size=\(\) of type tuple is not an integer",
    ),
    "full of a tuple": (lambda: Tensor.full(2, (1, 2)), TypeError, "one number, not"),
    "where of a tuple": (lambda: zeros(2).where((1, 2), 3), TypeError, "one number, not"),
    "arange of text": (lambda: Tensor.arange("a"), TypeError, "stop='a' of type str is not a"),
    "device 1": (lambda: zeros(2).to((1,)), TypeError, "a device is a name.*not 1"),
    "shard 5": (lambda: zeros(2).shard(5), ShardingError, "tuple of devices.*not 5"),
    "layout of 5": (lambda: Sharding(5), ShardingError, "devices must be a tuple.*got 5"),
    "pad by a fraction": (lambda: zeros(2).pad((1.5, 2)), TypeError, "before=1.5.*not an integer"),
    "formula": (lambda: zeros(2).einsum(5), TypeError, "einsum takes a formula.*not 5"),
    "alu": (lambda: zeros(2).alu(None), TypeError, "elementwise op.*not None"),
    "seed": (lambda: Tensor.manual_seed("a"), TypeError, "seed='a' of type str is not an integer"),
    "too many random numbers": (lambda: Tensor.rand(2**70), ValueError, "no 1180.* random numbers"),
    "Linear": (lambda: nn.Linear("a", 2), ValueError, "'a' is not a size"),
    "optimizer": (lambda: nn.optim.SGD(5), TypeError, "SGD takes a list of tensors, not 5"),
    "TinyJit": (lambda: TinyJit(5), TypeError, "captures a function, not 5"),
    # devices
    "where elsewhere": (lambda: zeros(2).where(zeros(2), elsewhere()), ShardingError, ELSEWHERE),
    "maximum elsewhere": (lambda: zeros(2).maximum(elsewhere()), ShardingError, ELSEWHERE),
    "power elsewhere": (lambda: zeros(2) ** elsewhere(), ShardingError, ELSEWHERE),
    "loss elsewhere": (lambda: zeros(2).cross_entropy(elsewhere()), ShardingError, ELSEWHERE),
    "einsum elsewhere": (
        lambda: Tensor.einsum("i,i", zeros(2), elsewhere()),
        ShardingError,
        ELSEWHERE,
    ),
    "random elsewhere": (
        lambda: Tensor.rand(2, device="ABACUS"),
        DeviceError,
        "unknown device 'ABACUS'",
    ),
}


def elsewhere() -> Tensor:
    """A tensor of two elements on another device."""
    return zeros(2).to("CPU:1")


@pytest.mark.parametrize("name", FAMILIES)
def test_an_error_names_the_mistake(name: str) -> None:
    function, kind, text = FAMILIES[name]
    with pytest.raises(kind, match=text):
        function()


# ---- classes ----

MISTAKES: dict[str, Callable[[], Any]] = {
    "broadcast": lambda: zeros(3) + zeros(4),
    "dot": lambda: zeros(2, 3) @ zeros(2, 3),
    "reshape": lambda: zeros(4).reshape(3),
    "reshape -1": lambda: zeros(4).reshape(-1, -1),
    "expand": lambda: zeros(4).expand(5),
    "cat": lambda: zeros(3).cat(zeros(2, 3)),
    "conv2d": lambda: zeros(1, 3, 4, 4).conv2d(zeros(2, 2, 3, 3)),
    "assign": lambda: zeros(3).assign(zeros(5)),
    "item": lambda: zeros(3).item(),
    "einsum": lambda: Tensor.einsum("ij,jk", zeros(2, 3), zeros(2, 3)),
    "bitcast": lambda: zeros(3).bitcast(dtypes.int64),
    "cross_entropy": lambda: zeros(2, 3).cross_entropy(Tensor([1, 2, 3])),
    "shard": lambda: zeros(3).shard(DEVICES, 0) + zeros(3),
    "axis": lambda: zeros(3).sum(3),
    "index": lambda: zeros(3)[5],
    "too many indices": lambda: zeros(3)[0, 0],
    "written index": lambda: zeros(3).__setitem__(7, 1.0),
    "optimizer": lambda: nn.optim.SGD([]),
}
INDICES = {"axis", "index", "too many indices", "written index"}


@pytest.mark.parametrize("name", MISTAKES)
def test_arguments_that_do_not_fit_are_errors_of_one_class(name: str) -> None:
    with pytest.raises(ArgumentError) as found:
        MISTAKES[name]()
    for kind in (ValueError, RuntimeError):
        assert isinstance(found.value, kind)
    assert isinstance(found.value, IndexError) == (name in INDICES)


FIXES: dict[str, tuple[Callable[[], Any], str]] = {
    "item": (lambda: zeros(3).item(), "shape (3,); call tolist(), or item() of one element"),
    "len": (lambda: len(zeros()), "no len(); its value is item()"),
    "iteration": (lambda: list(zeros()), "cannot be iterated over; its value is item()"),
    "ellipsis": (lambda: zeros(3)[..., ...], "only one ...; write : for further axes"),
    "mask": (lambda: zeros(3)[[True, False]], "must have the sizes of the axes that it selects"),
    "step": (lambda: zeros(8)[: Variable("n", 1, 8) : 2], "slice with that step and fixed bounds"),
    "keccak": (lambda: zeros(3).keccak(), "dtypes.float; cast or bitcast to uint8"),
    "dot": (lambda: zeros(3).dot([1.0]), "wrap it in Tensor()"),
    "one_hot": (lambda: zeros(3).one_hot(4), "dtypes.float; cast them with .int()"),
    "masked_select": (lambda: zeros(3).masked_select(zeros(3)), "pass mask != 0"),
    "padding": (lambda: nn.Conv2d(1, 1, 3, padding="valid"), 'pass "same", a number or a tuple'),
}


@pytest.mark.parametrize("name", FIXES)
def test_errors_say_what_to_write_instead(name: str) -> None:
    mistake, fix = FIXES[name]
    with pytest.raises((TypeError, ArgumentError), match=re.escape(fix)):
        mistake()


def test_optimizers_name_themselves() -> None:
    weight = Tensor([1.0], requires_grad=True)
    for make in (nn.optim.SGD, nn.optim.Adam, nn.optim.AdamW, nn.optim.LAMB, nn.optim.Muon):
        name = make.__name__
        with pytest.raises(ValueError, match=f"^{name} got no parameter"):
            make([])
        with pytest.raises(TypeError, match=f"^{name} trains tensors, not 1"):
            make([1])  # type: ignore[list-item]
        with Tensor.train(), pytest.raises(RuntimeError, match=f"^{name}: 1 of 1 parameters have"):
            make([weight]).step()
        with Tensor.train(False), pytest.raises(RuntimeError, match=rf"^{name}.step\(\) needs"):
            make([weight]).step()


NO_TENSORS: dict[str, Callable[[Any], Any]] = {
    "gather takes a tensor as index": lambda x: zeros(3).gather(0, x),
    "scatter takes a tensor as index": lambda x: zeros(3).scatter(0, x, 1),
    "masked_fill takes a tensor as mask": lambda x: zeros(3).masked_fill(x, 1),
    "masked_select takes a tensor as mask": lambda x: zeros(3).masked_select(x),
    "conv2d takes a tensor as weight": lambda x: zeros(1, 1, 3, 3).conv2d(x),
    "linear takes a tensor as bias": lambda x: zeros(3).linear(zeros(3, 2), x),
    "einsum takes a tensor as operand": lambda x: Tensor.einsum("i,i->", zeros(3), x),
    "attention takes a tensor as key": lambda x: zeros(3, 2).scaled_dot_product_attention(x, x),
    "cross_entropy takes a tensor as targets": lambda x: zeros(3, 2).cross_entropy(x),
    r"pad takes \(before, after\) for each axis": lambda x: zeros(3).pad(x),
}


@pytest.mark.parametrize("message", NO_TENSORS)
def test_a_number_where_a_tensor_or_a_sequence_is_needed(message: str) -> None:
    with pytest.raises(TypeError, match=f"{message}.* not 0.5"):
        NO_TENSORS[message](0.5)


OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "**", "&", "|", "^", "@")


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_with_none_names_the_operator(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(name)} takes a tensor.*not None"):
        eval(f"x {name} None", {"x": Tensor([1, 2])})


def test_attention_of_vectors() -> None:
    with pytest.raises(ArgumentError, match=r"query \(3,\).*must each be \(..., length, size\)"):
        zeros(3).scaled_dot_product_attention(zeros(3), zeros(3))
