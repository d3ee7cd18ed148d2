"""ONNX's own test cases of its operators, which the package onnx generates.

Every case of a supported operator must pass, except those in `EXCEPTIONS`; every other case must be
refused when the model is loaded. Cases whose names end in "expanded" have the function's body in
place of the operator.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any

import numpy as np
import pytest

from test.devices import DEVICE
from tinygrad import GlobalCounters, Tensor
from tinygrad.dtype import dtypes
from tinygrad.nn.onnx import OnnxRunner, OnnxUnsupportedError
from tinygrad.nn.onnx.initializers import load_tensor
from tinygrad.nn.onnx.operators import HOST_OPERATORS, OPERATORS
from tinygrad.nn.onnx.values import HostValue

onnx = pytest.importorskip("onnx", reason="the cases are in the package onnx")

# generating the cases takes seconds; the quick suite compares operators with onnxruntime
pytestmark = pytest.mark.slow

# patterns of names, each with the reason why the cases fail
EXCEPTIONS = {
    r"bernoulli.*|training_dropout(_default)?(_mask)?": "random numbers of another generator",
    r".*(UINT4|INT4|UINT2|INT2|FLOAT4E2M1|uint4|int4|uint2|int2|float4e2m1).*": "no such dtype",
    r".*(E8M0|e8m0).*": "no such dtype",
    r".*_to_FLOAT8E(4M3|5M2)FNUZ.*": "numbers out of range and infinities by another rule",
    r"equal_string.*": "no strings",
    r"scatter_with(out)?_axis|upsample_nearest|dropout.*_old": "opset below 13",
    r"if|loop11|scan_sum|scan9_.*": "opset below 13",
    r".*(dynamicquantizelinear|quantizelinear).*_expanded": "opset below 13",
}
SUPPORTED = sorted({op for domain, op in OPERATORS if domain == ""})


def is_exception(name: str) -> bool:
    plain = name.removeprefix("test_")
    return any(re.fullmatch(pattern, plain) for pattern in EXCEPTIONS)


@functools.cache
def all_cases() -> dict[str, list[Any]]:
    """The cases of each operator."""
    with warnings.catch_warnings():
        # their inputs are computed with divisions by zero and casts that overflow
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    operators = {
        case.name: case.model.graph.node[-1].op_type
        for case in cases
        if "_expanded" not in case.name
    }
    found: dict[str, list[Any]] = {}
    for case in cases:
        plain = case.name.partition("_expanded")[0]
        found.setdefault(operators[plain], []).append(case)
    return found


def with_new_opset(model: Any) -> Any:
    """The model converted to opset 13, if its operators did not change."""
    old = {entry.domain: entry.version for entry in model.opset_import}.get("", 13)
    schema = onnx.defs.get_schema
    if old >= 13 or any(
        schema(node.op_type, max_inclusive_version=old).since_version
        != schema(node.op_type, max_inclusive_version=13).since_version
        for node in model.graph.node
    ):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        entry.version = 13 if entry.domain == "" else entry.version
    return copy


def as_input(given: Any) -> Any:
    if isinstance(given, list):
        return [as_input(item) for item in given]
    if given is None:
        return None
    if not isinstance(given, onnx.TensorProto):
        return Tensor(given)
    value = load_tensor(given, None)
    return value.tensor(DEVICE) if isinstance(value, HostValue) else value


def check(case: Any) -> None:
    runner = OnnxRunner(with_new_opset(case.model))
    names = [value.name for value in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        results = runner(dict(zip(names, map(as_input, inputs), strict=True)))
        for result, output in zip(results.values(), outputs, strict=True):
            check_output(result, output, case)


def check_output(result: Any, output: Any, case: Any) -> None:
    """A tensor, a sequence of tensors, or an optional without an element."""
    if output is None:
        assert result is None
        return
    if isinstance(output, list):
        assert isinstance(result, list)
        for found, expected in zip(result, output, strict=True):
            check_output(found, expected, case)
        return
    is_proto = isinstance(output, onnx.TensorProto)
    expected = onnx.numpy_helper.to_array(output) if is_proto else np.asarray(output)
    assert_close(result, expected, case)


def assert_close(result: Tensor, expected: Any, case: Any) -> None:
    # four units in the last place of types up to 16 bits
    rtol = max(case.rtol, {dtypes.float16: 2**-9, dtypes.bfloat16: 2**-6}.get(result.dtype, 0))
    found = result.numpy()
    if result.dtype in (dtypes.bfloat16, *dtypes.fp8s):
        names = {dtypes.bfloat16: "bfloat16", dtypes.fp8e4m3: "float8_e4m3fn"}
        assert expected.dtype.name == names.get(result.dtype, "float8_e5m2")
        expected = expected.astype(np.float32)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=max(case.atol, 1e-6))


def check_all(cases: list[Any]) -> None:
    failed = []
    for case in cases:
        if is_exception(case.name):
            continue
        try:
            check(case)
        except Exception as error:
            failed.append(f"{case.name}: {type(error).__name__}: {str(error)[:500]}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("operator", SUPPORTED)
def test_cases_of_an_operator_are_right(operator):
    cases = [case for case in all_cases().get(operator, ()) if "_expanded" not in case.name]
    if not cases:
        pytest.skip("ONNX has no case of this operator")
    check_all(cases)


@pytest.mark.parametrize("operator", SUPPORTED)
def test_expanded_cases_of_an_operator_pass(operator):
    cases = [case for case in all_cases().get(operator, ()) if "_expanded" in case.name]
    if not cases:
        pytest.skip("this operator is no function")
    check_all(cases)


def as_constants(case: Any) -> Any:
    """The model with its inputs as constants, so that Python can compute it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(with_new_opset(case.model))
    ((inputs, _),) = case.data_sets
    for value, array in zip(case.model.graph.input, inputs, strict=True):
        tensor = onnx.numpy_helper.from_array(np.asarray(array), value.name)
        copy.graph.initializer.append(tensor)
    del copy.graph.input[:]
    return copy


@pytest.mark.parametrize("operator", sorted(op for _, op in HOST_OPERATORS))
def test_cases_of_small_constants_pass_without_a_kernel(operator):
    checked = 0
    for case in all_cases().get(operator, ()):
        inputs, outputs = case.data_sets[0]
        arrays = [np.asarray(x) for x in inputs if not isinstance(x, onnx.TensorProto)]
        is_small = all(x.size <= 64 and x.dtype.kind in "biuf" for x in arrays)
        plain = "_expanded" not in case.name and not is_exception(case.name)
        if not plain or not is_small or len(arrays) != len(inputs):
            continue
        runner = OnnxRunner(as_constants(case))
        GlobalCounters.reset()
        results = runner({})
        assert GlobalCounters.kernel_count == 0
        for result, output in zip(results.values(), outputs, strict=True):
            assert_close(result, np.asarray(output), case)
        checked += 1
    if not checked:
        pytest.skip("ONNX has no small case of this operator")


def test_models_with_other_operators_are_refused_when_they_are_loaded():
    others = all_cases().keys() - set(SUPPORTED)
    cases = [case for operator in others for case in all_cases()[operator]]
    wrong = []
    for case in cases:
        nodes = {(entry.domain, entry.op_type) for entry in case.model.graph.node}
        if nodes <= OPERATORS.keys() | {("", "Constant")}:
            continue  # a function body of supported operators
        try:
            OnnxRunner(case.model)
        except OnnxUnsupportedError:
            continue
        wrong.append(case.name)
    assert len(cases) > 100
    assert not wrong


def test_exceptions_still_fail():
    Tensor.manual_seed(0)
    cases = [case for name in SUPPORTED for case in all_cases().get(name, ())]
    excepted = [case for case in cases if is_exception(case.name)]
    right = []
    for case in excepted:
        try:
            check(case)
        except (AssertionError, ValueError, TypeError):
            continue
        right.append(case.name)
    assert excepted
    assert not right
