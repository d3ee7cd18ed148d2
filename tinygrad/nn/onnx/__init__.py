"""Models in the ONNX format: https://onnx.ai/onnx/repo-docs/IR.html.

In: a file, which is not trusted. Out: a function of tensors. A file is read into records that are
checked (`graph`), and its nodes are run in order by the operators in `operators/`.
"""

from tinygrad.nn.onnx.errors import OnnxError, OnnxUnsupportedError
from tinygrad.nn.onnx.graph import ValueSpec
from tinygrad.nn.onnx.runner import OnnxRunner

__all__ = ["OnnxError", "OnnxRunner", "OnnxUnsupportedError", "ValueSpec"]
