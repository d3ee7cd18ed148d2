"""Paths and names that programs for tinygrad 0.12 and 0.13 import are there, with their meaning."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys

import numpy as np
import pytest

import tinygrad
from tinygrad import Tensor, TinyJit, Variable, dtypes, function
from tinygrad.device import Device
from tinygrad.settings import COMPATIBLE

PATHS = {
    "tinygrad": "Context Device GlobalCounters Tensor TinyJit UOp Variable dtypes fetch function "
    "getenv nn",
    "tinygrad.apps.llm": "SimpleTokenizer Transformer TransformerBlock apply_rope main "
    "precompute_freqs_cis",
    "tinygrad.codegen": "get_program",
    "tinygrad.device": "Allocator Buffer BufferSpec CompileError Compiled Device "
    "is_dtype_supported",
    "tinygrad.dtype": "AddrSpace ConstType DType DTypeLike PtrDType _from_np_dtype _to_np_dtype "
    "can_lossless_cast dtypes least_upper_dtype least_upper_float sum_acc_dtype to_dtype truncate",
    "tinygrad.engine.jit": "CapturedJit JitError TinyJit",
    "tinygrad.engine.realize": "BufferCopy CompiledRunner Estimates ExecItem get_program "
    "get_runner run_schedule",
    "tinygrad.engine.schedule": "ExecItem",
    "tinygrad.function": "function",
    "tinygrad.gradient": "compute_gradient",
    "tinygrad.helpers": "ALL2ALL BEAM CI CPU_COUNT CPU_LLVM Context ContextVar DEBUG DEV "
    "FUSE_OPTIM GlobalCounters IMAGE JIT NOOPT NO_COLOR OSX PROFILE Profiling RING SPEC "
    "SPLIT_REDUCEOP TRANSCENDENTAL Timing VIZ WIN WINO all_int all_same ansilen ansistrip argfix "
    "argsort cdiv ceildiv cmod colored dedup diskcache fetch flatten fully_flatten get_child "
    "get_single_element getenv is_numpy_ndarray make_tuple merge_dicts next_power2 partition polyN "
    "prod profile_marker round_down round_up strip_parens temp to_function_name to_mv tqdm trange "
    "unwrap word_wrap",
    "tinygrad.llm": "SimpleTokenizer Transformer",
    "tinygrad.llm.cli": "SimpleTokenizer main",
    "tinygrad.llm.gguf": "ggml_data_to_tensor gguf_load",
    "tinygrad.llm.model": "Transformer TransformerBlock apply_rope precompute_freqs_cis",
    "tinygrad.nn": "BatchNorm BatchNorm2d BatchNorm3d Conv1d Conv2d ConvTranspose1d "
    "ConvTranspose2d Embedding GroupNorm InstanceNorm LSTMCell LayerNorm LayerNorm2d Linear "
    "RMSNorm datasets optim state",
    "tinygrad.nn.datasets": "cifar mnist",
    "tinygrad.nn.onnx": "OnnxRunner OnnxValue",
    "tinygrad.nn.optim": "Adam AdamW LAMB LARS Muon Optimizer OptimizerGroup SGD",
    "tinygrad.nn.state": "TensorIO accept_filename get_parameters get_state_dict "
    "ggml_data_to_tensor gguf_load load_state_dict safe_load safe_load_metadata safe_save "
    "tar_extract torch_load zip_extract",
    "tinygrad.renderer": "Estimates ProgramSpec Renderer",
    "tinygrad.renderer.cstyle": "CUDARenderer HIPRenderer MetalRenderer OpenCLRenderer",
    "tinygrad.schedule.multi": "multi_pm",
    "tinygrad.tensor": "Tensor _to_np_dtype",
    "tinygrad.uop": "GroupOp Ops",
    "tinygrad.uop.ops": "AxisType GroupOp KernelInfo Ops PatternMatcher UOp UPat Variable "
    "graph_rewrite resolve sint smax smin sym_infer",
    "tinygrad.uop.spec": "type_verify",
    "tinygrad.uop.symbolic": "symbolic symbolic_simple",
}


@pytest.mark.parametrize("path", PATHS)
def test_every_name_can_be_imported(path: str) -> None:
    module = importlib.import_module(path)
    missing = [name for name in PATHS[path].split() if not hasattr(module, name)]
    assert not missing and module.__doc__


def test_every_setting_can_be_imported_from_helpers() -> None:
    helpers = importlib.import_module("tinygrad.helpers")
    for name, default in COMPATIBLE.items():
        assert getattr(helpers, name).default == default
    with pytest.raises(AttributeError, match="NO_SUCH_SETTING"):
        _ = helpers.NO_SUCH_SETTING


def test_paths_of_other_releases_are_the_same_objects() -> None:
    for path in ("tinygrad.llm", "tinygrad.llm.cli", "tinygrad.llm.model"):
        module = importlib.import_module(path)
        for name in module.__all__:
            assert getattr(module, name) is getattr(tinygrad.apps.llm, name)
    from tinygrad.engine.jit import JitError

    assert JitError is tinygrad.jit.JitError
    assert dtypes.weakint is dtypes.index
    assert Device.default is Device[Device.DEFAULT]


def test_the_language_model_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tinygrad.llm", "--help"])
    with pytest.raises(SystemExit) as raised:
        runpy.run_module("tinygrad.llm", run_name="__main__")
    assert raised.value.code == 0
    assert "usage" in capsys.readouterr().out


def test_a_function_of_a_graph_is_itself() -> None:
    @function
    def double(x: Tensor) -> Tensor:
        return x * 2

    @function(precompile=True)
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    class Layer:
        @function(allow_implicit=True)
        def __call__(self, x: Tensor) -> Tensor:
            return add(double(x), x)

    x = Tensor([1.0, 2.0], requires_grad=True)
    Layer()(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3]
    step = TinyJit(lambda x: Layer()(x).callify().realize())
    assert [step(Tensor([i]).realize()).tolist() for i in range(4)] == [[3 * i] for i in range(4)]
    with pytest.raises(TypeError, match="decorates functions"):
        function(5)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="callify takes a tensor"):
        x.callify(5)  # type: ignore[arg-type]


def test_rotary_embeddings_rotate_halves_of_heads_by_the_position() -> None:
    from tinygrad.apps.llm import apply_rope, precompute_freqs_cis

    x = np.random.default_rng(0).standard_normal((2, 3, 5, 8)).astype(np.float32)
    start = 4
    angles = np.outer(np.arange(start, start + 5), 10000.0 ** -(np.arange(4) / 4))
    rotated = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles)
    expected = np.concatenate([rotated.real, rotated.imag], -1)
    bound = Variable("start", 0, 9).bind(start)
    table = precompute_freqs_cis(8, 16)[start : start + 5]
    for positions in (table, start, bound):
        found = apply_rope(Tensor(x), positions)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="head_dim of .* is odd"):
        apply_rope(Tensor.ones(1, 1, 1, 7), 0)


def test_helpers_of_other_releases() -> None:
    from tinygrad.helpers import get_single_element, is_numpy_ndarray

    assert get_single_element(x for x in "a") == "a"
    for several in ([], [1, 2]):
        with pytest.raises(ValueError, match=f"not {len(several)}"):
            get_single_element(several)
    assert is_numpy_ndarray(np.zeros(2)) and is_numpy_ndarray(np.array(1))
    assert not any(map(is_numpy_ndarray, (np.float32(1), [1], Tensor([1]), None)))


def test_symbolic_sums_and_products() -> None:
    n = Variable("n", 1, 9)
    assert n.usum(2, n).substitute({n: n.const_like(4)}).simplify().arg == 10
    assert n.uprod(2, 3).substitute({n: n.const_like(4)}).simplify().arg == 24


def test_importing_the_package_loads_no_compiler_and_no_file_formats() -> None:
    program = """
import sys
import tinygrad
later = ("tinygrad.codegen", "tinygrad.schedule.pipeline", "tinygrad.nn.state",
         "tinygrad.nn.datasets", "html.entities", "tarfile", "numpy", "llvmlite")
print([name for name in later if name in sys.modules])
print(tinygrad.nn.state.get_parameters(tinygrad.nn.Linear(2, 3))[0].shape)
from tinygrad.nn import datasets
print(datasets.mnist.__name__, hasattr(tinygrad.nn, "nothing"))
"""
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.stdout.splitlines() == ["[]", "(3, 2)", "mnist False"], found.stderr
