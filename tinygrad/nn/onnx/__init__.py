"""Models in the ONNX format: https://onnx.ai/onnx/repo-docs/IR.html.

Input: a file, which is not trusted. Output: a function of tensors. The file is parsed into checked
records (`graph`), and the operators in `operators/` run its nodes in order.
"""

from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.graph import ValueSpec
from tinygrad.nn.onnx.runner import OnnxRunner

# as tinygrad 0.12 calls it
OnnxValue = ValueSpec

__all__ = ["OnnxError", "OnnxRunner", "OnnxUnsupportedError", "OnnxValue", "ValueSpec"]
