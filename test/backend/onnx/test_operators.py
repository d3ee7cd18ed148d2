"""ONNX operators against ONNX Runtime: the operators and attributes of exported models.

ONNX's own cases are in `test_node_cases.py`; here are larger inputs, combinations, inputs
without elements, and the operators of com.microsoft.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.backend.onnx.models import compare, floats, integers, model, node

MICROSOFT = "com.microsoft"
IMAGE = {"x": floats(2, 4, 9, 10)}
SEQUENCE = {"x": floats(2, 5, 8)}
INT8 = {"x": integers(1, 2, 6, 6, low=-9, high=9, dtype=np.int8)}


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


# node, inputs, initializers
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "conv, grouped and dilated": (
        node("Conv", "x w b", group=2, dilations=[2, 1], strides=[1, 2], pads=[1, 0, 2, 3]),
        IMAGE,
        {"w": floats(6, 2, 3, 2), "b": floats(6)},
    ),
    "conv, same padding": (
        node("Conv", "x w", auto_pad="SAME_LOWER", strides=[2, 2]),
        IMAGE,
        {"w": floats(3, 4, 3, 2)},
    ),
    "conv along one axis": (node("Conv", "x w"), SEQUENCE, {"w": floats(4, 5, 3)}),
    "conv of volumes": (
        node("Conv", "x w", pads=[1] * 6),
        {"x": floats(1, 2, 4, 3, 5)},
        {"w": floats(3, 2, 3, 3, 3)},
    ),
    "transposed conv": (
        node("ConvTranspose", "x w b", strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 0]),
        IMAGE,
        {"w": floats(4, 3, 3, 3), "b": floats(3)},
    ),
    "transposed conv to a size": (
        node("ConvTranspose", "x w", strides=[2, 2], output_shape=[19, 20]),
        IMAGE,
        {"w": floats(4, 1, 3, 3)},
    ),
    "transposed conv, grouped": (
        node("ConvTranspose", "x w", group=2, auto_pad="SAME_UPPER", strides=[2, 2]),
        IMAGE,
        {"w": floats(4, 3, 3, 3)},
    ),
    "deformable conv": (
        node("DeformConv", "x w o b m", group=2, offset_group=2, strides=[2, 1], pads=[1, 0, 1, 1]),
        {"x": floats(2, 4, 5, 6), "o": floats(2, 16, 3, 6), "m": floats(2, 8, 3, 6)},
        {"w": floats(6, 2, 2, 2), "b": floats(6)},
    ),
    "overlapping columns": (
        node("Col2Im", "x size block", strides=[1, 2], pads=[1, 0, 0, 1], dilations=[2, 1]),
        {"x": floats(2, 18, 12)},
        {"size": ints(5, 12), "block": ints(3, 2)},
    ),
    "max pool": (
        node("MaxPool", "x", "y places", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
        IMAGE,
        {},
    ),
    "max pool, rounded up": (
        node("MaxPool", "x", kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1, dilations=[2, 1]),
        IMAGE,
        {},
    ),
    "average pool": (
        node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        IMAGE,
        {},
    ),
    "average pool with padding": (
        node("AveragePool", "x", kernel_shape=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1),
        IMAGE,
        {},
    ),
    "norm pool": (node("LpPool", "x", kernel_shape=[2, 3], strides=[2, 1], p=3), IMAGE, {}),
    "global pools": (node("GlobalAveragePool", "x"), IMAGE, {}),
    "batch norm": (
        node("BatchNormalization", "x s b m v", epsilon=1e-3),
        IMAGE,
        {"s": floats(4), "b": floats(4), "m": floats(4), "v": floats(4, low=0.5)},
    ),
    "instance norm": (
        node("InstanceNormalization", "x s b"),
        IMAGE,
        {"s": floats(4), "b": floats(4)},
    ),
    "group norm": (
        node("GroupNormalization", "x s b", num_groups=2),
        IMAGE,
        {"s": floats(4), "b": floats(4)},
    ),
    "layer norm": (
        node("LayerNormalization", "x s b", "y mean invstd", axis=1),
        SEQUENCE,
        {"s": floats(5, 8), "b": floats(5, 8)},
    ),
    "local response norm": (node("LRN", "x", size=3, alpha=0.1, bias=2.0), IMAGE, {}),
    "gemm": (
        node("Gemm", "x w c", transA=1, transB=1, alpha=0.5, beta=2.0),
        {"x": floats(6, 3)},
        {"w": floats(4, 6), "c": floats(4)},
    ),
    "matmul, broadcast": (node("MatMul", "x w"), {"x": floats(3, 1, 4, 5)}, {"w": floats(2, 5, 6)}),
    "matmul of vectors": (node("MatMul", "x w"), {"x": floats(5)}, {"w": floats(2, 5, 6)}),
    "einsum": (
        node("Einsum", "x w", equation="bij,bkj->bik"),
        SEQUENCE,
        {"w": floats(2, 3, 8)},
    ),
    "slice backwards": (
        node("Slice", "x starts ends axes steps"),
        IMAGE,
        {
            "starts": ints(-1, 8),
            "ends": ints(-100, 1),
            "axes": ints(3, -2),
            "steps": ints(-2, -3),
        },
    ),
    "slice of nothing": (
        node("Slice", "x starts ends"),
        SEQUENCE,
        {"starts": ints(1, 3), "ends": ints(9, 3)},
    ),
    "split, unequal": (node("Split", "x s", "y z", axis=2), SEQUENCE, {"s": ints(3, 5)}),
    "split, last smaller": (node("Split", "x", "a b c", axis=1, num_outputs=3), SEQUENCE, {}),
    "pad by reflection": (
        node("Pad", "x p", mode="reflect"),
        SEQUENCE,
        {"p": ints(0, 2, 1, 0, 1, 3)},
    ),
    "pad some axes": (
        node("Pad", "x p v a"),
        SEQUENCE,
        {"p": ints(1, -1, 2, 0), "v": np.array(0.5, np.float32), "a": ints(2, 0)},
    ),
    "reshape keeps and infers": (node("Reshape", "x s"), SEQUENCE, {"s": ints(0, -1, 2, 4)}),
    "expand against ones": (node("Expand", "x s"), {"x": floats(3, 1)}, {"s": ints(2, 1, 4)}),
    "tile": (node("Tile", "x r"), SEQUENCE, {"r": ints(1, 2, 3)}),
    "depth to space": (
        node("DepthToSpace", "x", blocksize=2, mode="CRD"),
        IMAGE,
        {},
    ),
    "gather rows": (
        node("Gather", "w x", axis=1),
        {"x": integers(2, 3, low=-5)},
        {"w": floats(4, 5, 2)},
    ),
    "gather elements": (
        node("GatherElements", "w x", axis=1),
        {"x": integers(4, 3, low=-5)},
        {"w": floats(4, 5)},
    ),
    "gather with batches": (
        node("GatherND", "w x", batch_dims=1),
        {"x": integers(2, 3, 1, high=3)},
        {"w": floats(2, 3, 4)},
    ),
    "scatter parts, added": (
        node("ScatterND", "x i u", reduction="add"),
        {"x": floats(4, 3, 2)},
        {"i": ints(1, 3, 1, 0).reshape(4, 1), "u": floats(4, 3, 2)},
    ),
    "scatter elements": (
        node("ScatterElements", "x i u", axis=1),
        {"x": floats(3, 5)},
        {"i": ints(1, -1, 0, 3, 2, 4).reshape(3, 2), "u": floats(3, 2)},
    ),
    "reduce to nothing left": (node("ReduceMean", "x", keepdims=0), IMAGE, {}),
    "reduce no axis": (
        node("ReduceSum", "x a", noop_with_empty_axes=1),
        SEQUENCE,
        {"a": np.zeros(0, np.int64)},
    ),
    "reduce integers": (node("ReduceSum", "x a"), {"x": integers(3, 4)}, {"a": ints(-1)}),
    "log of sums": (node("ReduceLogSumExp", "x a", keepdims=0), IMAGE, {"a": ints(1, 3)}),
    "last smallest": (
        node("ArgMin", "x", axis=1, select_last_index=1),
        {"x": integers(4, 6, high=3, dtype=np.int32)},
        {},
    ),
    "smallest three": (
        node("TopK", "x k", "y places", axis=1, largest=0),
        {"x": floats(3, 7)},
        {"k": ints(3)},
    ),
    "cumulative sum": (
        node("CumSum", "x a", exclusive=1, reverse=1),
        SEQUENCE,
        {"a": np.array(1, np.int64)},
    ),
    "integer division": (
        node("Div", "x w"),
        {"x": integers(20, low=-20, high=20, dtype=np.int32)},
        {"w": integers(20, low=1, high=5, dtype=np.int32)},
    ),
    "remainder": (
        node("Mod", "x w", fmod=1),
        {"x": integers(20, low=-20, high=20)},
        {"w": integers(20, low=1, high=5)},
    ),
    "power to a float": (node("Pow", "x w"), {"x": integers(4, low=1)}, {"w": floats(4, low=0)}),
    "clip from above": (node("Clip", "x - high"), IMAGE, {"high": np.array(0.5, np.float32)}),
    "comparison of integers": (node("GreaterOrEqual", "x w"), {"x": ints(1, 2, 3)}, {"w": ints(2)}),
    "cast of floats": (node("Cast", "x", to=6), {"x": floats(20, low=-9, high=9)}, {}),
    "resize, linear": (
        node("Resize", "x - - sizes", mode="linear"),
        IMAGE,
        {"sizes": ints(2, 4, 5, 15)},
    ),
    "resize, cubic, aligned": (
        node("Resize", "x - s", mode="cubic", coordinate_transformation_mode="align_corners"),
        IMAGE,
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resize, nearest": (
        node(
            "Resize",
            "x - s",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        IMAGE,
        {"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "quantize": (
        node("QuantizeLinear", "x s z", axis=1),
        IMAGE,
        {"s": floats(4, low=0.1), "z": integers(4, dtype=np.uint8)},
    ),
    "dequantize": (
        node("DequantizeLinear", "x s z", axis=1),
        INT8,
        {"s": floats(2, low=0.1), "z": integers(2, dtype=np.int8)},
    ),
    "quantized conv": (
        node("QLinearConv", "x xs xz w ws wz ys yz b", pads=[1, 1, 1, 1]),
        {"x": integers(1, 2, 6, 6, high=255, dtype=np.uint8)},
        {
            "xs": np.float32(0.02),
            "xz": np.uint8(120),
            "w": integers(3, 2, 3, 3, low=-100, high=100, dtype=np.int8),
            "ws": floats(3, low=0.01, high=0.02),
            "wz": np.zeros(3, np.int8),
            "ys": np.float32(0.1),
            "yz": np.uint8(100),
            "b": integers(3, low=-100, high=100, dtype=np.int32),
        },
    ),
    "integer product": (
        node("MatMulInteger", "x w xz wz"),
        {"x": integers(3, 4, high=255, dtype=np.uint8)},
        {"w": integers(4, 5, high=255, dtype=np.uint8), "xz": np.uint8(7), "wz": np.uint8(100)},
    ),
    "LSTM in both directions": (
        node("LSTM", "x w r b", "y h c", direction="bidirectional", hidden_size=3),
        SEQUENCE,
        {"w": floats(2, 12, 8), "r": floats(2, 12, 3), "b": floats(2, 24)},
    ),
    "GRU of sequences of different lengths": (
        node("GRU", "x w r b n", "y h", direction="reverse", hidden_size=3),
        SEQUENCE,
        {
            "w": floats(1, 9, 8),
            "r": floats(1, 9, 3),
            "b": floats(1, 18),
            "n": np.array([2, 1, 2, 0, 1], np.int32),
        },
    ),
    "gelu": (node("Gelu", "x", approximate="tanh"), SEQUENCE, {}),
    "fused matmul": (
        node("FusedMatMul", "x w", domain=MICROSOFT, transA=1, alpha=0.5),
        SEQUENCE,
        {"w": floats(2, 5, 3)},
    ),
    "gelu with a bias": (node("BiasGelu", "x b", domain=MICROSOFT), SEQUENCE, {"b": floats(8)}),
    "fast gelu": (node("FastGelu", "x b", domain=MICROSOFT), SEQUENCE, {"b": floats(8)}),
    "quick gelu": (node("QuickGelu", "x", domain=MICROSOFT), SEQUENCE, {}),
    "layer norm of a sum": (
        node("SkipLayerNormalization", "x s g b c", "y - - total", domain=MICROSOFT, epsilon=1e-5),
        SEQUENCE,
        {"s": floats(2, 5, 8), "g": floats(8), "b": floats(8), "c": floats(8)},
    ),
    "RMS norm of a sum": (
        node(
            "SkipSimplifiedLayerNormalization",
            "x s g",
            "y - - total",
            domain=MICROSOFT,
            epsilon=1e-5,
        ),
        SEQUENCE,
        {"s": floats(2, 5, 8), "g": floats(8)},
    ),
    "RMS norm": (node("SimplifiedLayerNormalization", "x g"), SEQUENCE, {"g": floats(8)}),
    "embedding with layer norm": (
        node(
            "EmbedLayerNormalization",
            "x segments words places kinds g b mask",
            "y counts",
            domain=MICROSOFT,
        ),
        {"x": integers(2, 3, dtype=np.int32)},
        {
            "segments": integers(2, 3, high=2, dtype=np.int32),
            "words": floats(5, 8),
            "places": floats(4, 8),
            "kinds": floats(2, 8),
            "g": floats(8),
            "b": floats(8),
            "mask": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        },
    ),
    "attention with a mask": (
        node("Attention", "x w b mask", domain=MICROSOFT, num_heads=2),
        SEQUENCE,
        {
            "w": floats(8, 24),
            "b": floats(24),
            "mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32),
        },
    ),
    "causal attention": (
        node("Attention", "x w b", domain=MICROSOFT, num_heads=4, unidirectional=1),
        SEQUENCE,
        {"w": floats(8, 24), "b": floats(24)},
    ),
    "attention to other keys": (
        node("MultiHeadAttention", "x k v b mask", domain=MICROSOFT, num_heads=2),
        SEQUENCE,
        {
            "k": floats(2, 3, 8),
            "v": floats(2, 3, 8),
            "b": floats(24),
            "mask": np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        },
    ),
    "causal attention with a past": (
        node(
            "MultiHeadAttention",
            "x k v - - - pk pv",
            "y keys values",
            domain=MICROSOFT,
            num_heads=2,
            unidirectional=1,
        ),
        SEQUENCE,
        {
            "k": floats(2, 5, 8),
            "v": floats(2, 5, 8),
            "pk": floats(2, 2, 3, 4),
            "pv": floats(2, 2, 3, 4),
        },
    ),
    "attention of groups, first call": (
        node(
            "GroupQueryAttention",
            "x k v - - n total cos sin",
            "y keys values",
            domain=MICROSOFT,
            num_heads=2,
            kv_num_heads=1,
            do_rotary=1,
        ),
        {"x": floats(2, 5, 32)},
        {
            "k": floats(2, 5, 16),
            "v": floats(2, 5, 16),
            "n": np.array([4, 4], np.int32),
            "total": np.array([5], np.int32),
            "cos": floats(9, 8),
            "sin": floats(9, 8),
        },
    ),
    "attention of groups, next token": (
        node(
            "GroupQueryAttention",
            "x - - pk pv n total cos sin",
            "y keys values",
            domain=MICROSOFT,
            num_heads=2,
            kv_num_heads=1,
            do_rotary=1,
            local_window_size=3,
        ),
        {"x": floats(2, 1, 64)},
        {
            "pk": floats(2, 1, 5, 16),
            "pv": floats(2, 1, 5, 16),
            "n": np.array([5, 5], np.int32),
            "total": np.array([6], np.int32),
            "cos": floats(9, 8),
            "sin": floats(9, 8),
        },
    ),
    "weights of 4 bits": (
        node("MatMulNBits", "x w s z", domain=MICROSOFT, K=48, N=3, bits=4, block_size=16),
        {"x": floats(2, 5, 48)},
        {
            "w": integers(3, 3, 8, high=256, dtype=np.uint8),
            "s": floats(9),
            "z": integers(3, 2, high=256, dtype=np.uint8),
        },
    ),
    "rotary positions": (
        node("RotaryEmbedding", "x p c s", domain=MICROSOFT, interleaved=1),
        {"x": floats(2, 2, 5, 8)},
        {
            "p": ints(0, 1, 2, 3, 4, 1, 2, 3, 4, 5).reshape(2, 5),
            "c": floats(6, 4),
            "s": floats(6, 4),
        },
    ),
    # signals and boxes
    "DFT of 15 points": (
        node("DFT", "x n a"),
        {"x": floats(2, 15, 1)},
        {"n": np.int64(15), "a": np.int64(1)},
    ),
    "DFT padded to 12": (
        node("DFT", "x n a"),
        {"x": floats(3, 2, 7, 2)},
        {"n": np.int64(12), "a": np.int64(2)},
    ),
    "DFT cut, one side": (
        node("DFT", "x n a", onesided=1),
        {"x": floats(2, 9, 1)},
        {"n": np.int64(6), "a": np.int64(1)},
    ),
    "DFT inverse": (
        node("DFT", "x n a", inverse=1),
        {"x": floats(2, 3, 10, 2)},
        {"n": np.int64(10), "a": np.int64(-2)},
    ),
    "STFT of a window": (
        node("STFT", "x s w l"),
        {"x": floats(2, 50, 1)},
        {"s": np.int64(5), "w": floats(16), "l": np.int64(16)},
    ),
    "symmetric Hann window": (node("HannWindow", "n", periodic=0), {}, {"n": np.int64(9)}),
    "Mel weights": (
        node("MelWeightMatrix", "b n r l h"),
        {},
        {
            "b": np.int64(10),
            "n": np.int64(128),
            "r": np.int64(8000),
            "l": np.float32(20),
            "h": np.float32(3900),
        },
    ),
    "NonMaxSuppression": (
        node("NonMaxSuppression", "boxes scores m i s"),
        {"boxes": np.abs(floats(2, 20, 4)), "scores": floats(2, 3, 20)},
        {"m": ints(5), "i": np.float32([0.3]), "s": np.float32([-0.5])},
    ),
    "NonMaxSuppression of centers": (
        node("NonMaxSuppression", "boxes scores m i", center_point_box=1),
        {"boxes": np.abs(floats(1, 20, 4)), "scores": floats(1, 2, 20)},
        {"m": ints(7), "i": np.float32([0.1])},
    ),
    "RoiAlign": (
        node("RoiAlign", "x r b", output_height=3, output_width=2, spatial_scale=0.5),
        {"x": floats(2, 3, 9, 11)},
        {"r": np.float32([[0, 0, 12, 9], [-3, 2, 30, 14], [5, 5, 6, 6]]), "b": ints(1, 0, 1)},
    ),
    "RoiAlign of two samples": (
        node(
            "RoiAlign",
            "x r b",
            output_height=2,
            output_width=4,
            sampling_ratio=2,
            coordinate_transformation_mode="output_half_pixel",
        ),
        {"x": floats(2, 3, 9, 11), "r": np.float32([[0, 0, 7, 8], [2, 3, 2.5, 3.5]])},
        {"b": ints(1, 0)},
    ),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES)
def test_operator_equals_onnxruntime(case):
    operator, inputs, initializers = CASES[case]
    arrays = {name: np.asarray(x) for name, x in initializers.items()}
    outputs = [name for name in operator.output if name]
    compare(model([operator], inputs, outputs, arrays), inputs)


WITHOUT_ELEMENTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "added": (node("Add", "x w"), {"x": floats(0, 3)}, {"w": floats(3)}),
    "multiplied": (node("MatMul", "x w"), {"x": floats(0, 3)}, {"w": floats(3, 2)}),
    "added up": (node("ReduceSum", "x a"), {"x": floats(2, 0, 3)}, {"a": ints(1)}),
    "joined": (node("Concat", "x w", axis=0), {"x": floats(0, 3)}, {"w": floats(2, 3)}),
    "reshaped": (
        node("Reshape", "x s", allowzero=1),
        {"x": floats(0, 3)},
        {"s": ints(3, 0)},
    ),
    "gathered": (node("Gather", "w x"), {"x": integers(0)}, {"w": floats(4, 2)}),
    "expanded": (node("Expand", "x s"), {"x": floats(1, 3)}, {"s": ints(0, 3)}),
    "of one element": (node("Softmax", "x"), {"x": floats(1, 1)}, {}),
    "without axes": (node("Mul", "x w"), {"x": floats()}, {"w": floats()}),
}


@pytest.mark.parametrize("case", WITHOUT_ELEMENTS)
def test_arrays_of_no_elements_or_one(case):
    operator, inputs, initializers = WITHOUT_ELEMENTS[case]
    arrays = {name: np.asarray(x, getattr(x, "dtype", None)) for name, x in initializers.items()}
    compare(
        model([operator], {n: np.asarray(x) for n, x in inputs.items()}, initializers=arrays),
        {n: np.asarray(x) for n, x in inputs.items()},
    )
