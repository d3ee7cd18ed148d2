"""State dictionaries, and the file formats that store them.

Input: any nest of objects, dictionaries and sequences that holds tensors. Output: a flat dictionary
from dotted names to those tensors, and back. Each file format is a module.
"""

from tinygrad.nn.state.background_save import Saving
from tinygrad.nn.state.collect import get_parameters, get_state_dict
from tinygrad.nn.state.file_bytes import FileFormatError, accept_filename
from tinygrad.nn.state.ggml import ggml_data_to_tensor
from tinygrad.nn.state.gguf import gguf_load
from tinygrad.nn.state.load import StateDictError, load_state_dict
from tinygrad.nn.state.safetensors import safe_load, safe_load_metadata
from tinygrad.nn.state.save import async_save, safe_save
from tinygrad.nn.state.tar_archive import tar_extract
from tinygrad.nn.state.tensor_io import TensorIO
from tinygrad.nn.state.torch_checkpoint import torch_load
from tinygrad.nn.state.zip_archive import zip_extract

__all__ = [
    "FileFormatError",
    "Saving",
    "StateDictError",
    "TensorIO",
    "accept_filename",
    "async_save",
    "get_parameters",
    "get_state_dict",
    "ggml_data_to_tensor",
    "gguf_load",
    "load_state_dict",
    "safe_load",
    "safe_load_metadata",
    "safe_save",
    "tar_extract",
    "torch_load",
    "zip_extract",
]
