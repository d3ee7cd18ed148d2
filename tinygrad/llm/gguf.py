"""The path of GGUF files, as programs for tinygrad 0.13 import it."""

from tinygrad.nn.state import ggml_data_to_tensor, gguf_load

__all__ = ["ggml_data_to_tensor", "gguf_load"]
