"""Operators of ONNX Runtime, in the domain com.microsoft."""
