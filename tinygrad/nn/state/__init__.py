"""State dictionaries, and the file formats that store them.

Input: any nest of objects, dictionaries and sequences that holds tensors. Output: a flat dictionary
from dotted names to those tensors, and back.

    collect.py             the tensors of an object, by dotted name
    load.py                loads a state dictionary into a model
    sharded_load.py            each device reads its shard of a computed value
    save.py                saves tensors, at once or in the background
    background_save.py         a file that is written while the program goes on
    shared_file.py             one file that all processes write
    shard_io.py            shards read from and written to a file

    safetensors.py         the safetensors format
    gguf.py, ggml.py       the GGUF format; its block types
    gguf_values.py             the values in its header
    gguf_parts.py              the names of the parts of a file that was split
    dequantize.py              a function for each block type
    torch_checkpoint.py    PyTorch checkpoints
    torch_globals.py           the globals that they may name
    plain_pickle.py            pickles, read without running anything
    strided.py                 strided tensors as views
    tar_archive.py         tar archives
    zip_archive.py         zip archives

    file_bytes.py          the bytes of a file as a tensor
    tensor_io.py           a tensor of bytes as a Python file object
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
