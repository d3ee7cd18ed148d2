"""ONNX: models and operators against ONNX Runtime, and ONNX's own cases."""
