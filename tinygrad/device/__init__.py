"""Devices by name, and buffers in their memory."""

from tinygrad.device.allocator import Allocation, Allocator, BufferSpec, OutOfMemoryError
from tinygrad.device.buffer import Buffer, MultiBuffer, RemoteBuffer, copy_buffer
from tinygrad.device.compiled import Compiled, CompileError, DeviceError, LoadedProgram
from tinygrad.device.registry import Device, is_dtype_supported
from tinygrad.sharding import Sharding

__all__ = [
    "Allocation",
    "Allocator",
    "Buffer",
    "BufferSpec",
    "CompileError",
    "Compiled",
    "Device",
    "DeviceError",
    "LoadedProgram",
    "MultiBuffer",
    "OutOfMemoryError",
    "RemoteBuffer",
    "Sharding",
    "copy_buffer",
    "is_dtype_supported",
]
