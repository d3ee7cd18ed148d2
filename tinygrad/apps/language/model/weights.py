"""The weights of a GGUF file, kept quantised and laid out over devices.

Input: a file and a `ModelLayout`. Output: matrices, dequantised inside the kernels that multiply by
them, and vectors. Invariants: on devices that address the memory of this process, blocks are the
memory-mapped file, of which each device reads its shard; others have copies of their shards. No
array holds all dequantised elements of a weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad.apps.language.model.layouts import ModelLayout
from tinygrad.device import Buffer, BufferSpec, Device
from tinygrad.dtype import dtypes
from tinygrad.execution.buffers import bind_buffers
from tinygrad.nn.state.file_bytes import (
    FileFormatError,
    bytes_of_file,
    is_on_disk,
    memory_of,
    name_of_file,
    view_bytes,
)
from tinygrad.nn.state.ggml import BlockFormat, block_format
from tinygrad.nn.state.gguf import TensorEntry, check_parts, gguf_load_metadata
from tinygrad.nn.state.gguf_parts import names_of_parts
from tinygrad.nn.state.shard_io import range_starts, read_shards
from tinygrad.settings import LLM_EXACT
from tinygrad.sharding import Sharding
from tinygrad.sharding.local_devices import current_local_devices
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import TensorDevice, device_names
from tinygrad.uop.ops import UOp

ROWS, COLUMNS = 0, 1
# vectors of a product, from which on matrix instructions compute it
MIN_ROUNDED_ROWS = 16
WORDS = (dtypes.uint64, dtypes.uint32, dtypes.uint16, dtypes.uint8)


@dataclass(frozen=True)
class ShardedAxis:
    """The axis along which a matrix is sharded, and the number of its indivisible units.

    If the number of devices does not divide that of units, units of zeros are added as padding.
    Without units, each element is one, and none are added.
    """

    axis: int
    units: int | None = None


@dataclass(frozen=True)
class Matrix:
    """A matrix (rows, columns), or a stack (count, rows, columns), in blocks along the columns."""

    blocks: Tensor
    format: BlockFormat
    columns: TensorDevice | None = None
    """The layout of the dequantised elements, where it is not that of the blocks."""

    def __call__(self, x: Tensor) -> Tensor:
        """The product with vectors, (..., columns) to (..., rows), in float32.

        Many vectors, as those of a prompt, are rounded to bfloat16 with the matrix, unless
        LLM_EXACT is set: `docs/llm.md` states the error.
        """
        values = self.values().transpose(-1, -2)
        if self._rounds(x):
            x, values = x.cast(dtypes.bfloat16).contiguous(), values.cast(dtypes.bfloat16)
        return x.dot(values, dtype=dtypes.float32)

    def _rounds(self, x: Tensor) -> bool:
        """Whether a product with `x` is one of bfloat16 numbers."""
        if LLM_EXACT or self.format.elements == 1 or self.blocks.ndim > 3:
            return False
        # all ranks are of one kind
        local = current_local_devices().names_in(device_names(self.blocks.device))
        return math.prod(x.shape[:-1]) >= MIN_ROUNDED_ROWS and all(
            Device[name].target.has_matrix_units(dtypes.bfloat16) for name in local
        )

    def __getitem__(self, index: Tensor) -> Matrix:
        """Gather along axis 0: rows, or whole matrices of a stack."""
        # gathering words is faster than gathering bytes
        word = next(kind for kind in WORDS if self.format.nbytes % kind.itemsize == 0)
        return Matrix(self.blocks.bitcast(word)[index].bitcast(dtypes.uint8), self.format)

    def values(self) -> Tensor:
        """The dequantised elements, float32, fused into the kernels that use them."""
        found = self.format.dequantize(self.blocks).flatten(-2).float()
        return found if self.columns is None else found.to(self.columns)


@dataclass(frozen=True)
class Projection:
    """A matrix product and an optional bias."""

    matrix: Matrix
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        product = self.matrix(x)
        return product if self.bias is None else product + self.bias


class _SingleFile:
    """The metadata and tensors of one file; `self` keeps its memory mapped."""

    def __init__(self, gguf: Tensor | str | Path, layout: ModelLayout) -> None:
        self.bytes = bytes_of_file(gguf)
        self.data_start, self.metadata, self.entries = gguf_load_metadata(self.bytes)
        self.local = current_local_devices().numbers(layout.mesh.devices)
        devices = [Device[layout.mesh.devices[number]] for number in self.local]
        self.mapping: Any = None
        if not is_on_disk(self.bytes):
            return
        if all(device.allocator.addressable for device in devices):
            self.mapping = np.frombuffer(memory_of(self.bytes).as_memoryview(), np.uint8)
        if layout.is_single:
            self.bytes = self.place(0, (self.bytes.numel(),), layout.mesh.devices[0])

    def place(self, start: int, shape: tuple[int, ...], layout: TensorDevice) -> Tensor:
        """The bytes of a shape that begin at `start`, on the devices of a layout.

        A shard that is one range of the file is a view of the mapped file, on devices that address
        the memory of this process; others are copies.
        """
        value = view_bytes(self.bytes, start, dtypes.uint8, shape)
        if not isinstance(layout, Sharding):
            block, regions = shape, [tuple((0, size) for size in shape) for _ in self.local]
        else:
            block = layout.local_shape(shape)
            regions = [layout.regions(shape)[number] for number in self.local]
        starts = [range_starts(shape, region, 1) for region in regions]
        is_whole = all(tuple(stop - start for start, stop in x) == block for x in regions)
        if self.mapping is None or not is_whole or any(len(found) > 1 for found in starts):
            read = read_shards(value, layout) if isinstance(layout, Sharding) else None
            return value.to(layout).realize() if read is None else read
        address, names = self.mapping.ctypes.data + start, device_names(layout)
        parts = []
        for number, found in zip(self.local, starts, strict=True):
            spec = BufferSpec(external_ptr=address + found[0])
            part = Buffer(names[number], math.prod(block), dtypes.uint8, options=spec).allocate()
            # no code writes the file, so its content is not copied before it is read
            part.outside = False
            parts.append(part)
        return Tensor(bind_buffers(UOp.new_buffer(layout, shape, dtypes.uint8), parts))


class WeightFile:
    """A GGUF file, or the parts of one, with methods that lay out one weight each.

    `metadata` is that of the first file. Raises FileFormatError for parts that do not belong
    together.
    """

    def __init__(self, gguf: Tensor | str | Path, layout: ModelLayout) -> None:
        parts = [gguf] if isinstance(gguf, Tensor) else names_of_parts(str(gguf))
        files = [_SingleFile(part, layout) for part in parts]
        self.layout = layout
        self.metadata = files[0].metadata
        self.files = {name: file for file in files for name in file.entries}
        parts_of = [file.entries for file in files]
        check_parts(name_of_file(files[0].bytes), self.metadata, parts_of)

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a weight. Raises FileFormatError if the file lacks it."""
        return self._entry(name).shape

    def elements_per_block(self, name: str) -> int:
        """The columns of a block, at whose multiples a weight can be cut."""
        return block_format(self._entry(name).ggml_type).elements

    def matrix(
        self, name: str, sharded: ShardedAxis | None = None, rows: tuple[int, int] | None = None
    ) -> Matrix:
        """A weight with two or three axes; with `rows`, a range of its rows.

        Raises FileFormatError if it is missing or has another rank.
        """
        entry = self._entry(name)
        if len(entry.shape) not in (2, 3):
            raise FileFormatError(f"the weight {name} has the shape {entry.shape}, not of a matrix")
        format = block_format(entry.ggml_type)
        *count, height, columns = entry.shape
        row_bytes = columns // format.elements * format.nbytes
        start, stop = rows or (0, height)
        shape = (*count, stop - start, columns // format.elements, format.nbytes)
        if self._is_mapped(entry, sharded, len(count)):
            # a device has some columns of all rows, which it reads in the mapped file
            blocks = self._laid_out(entry, start * row_bytes, shape, None, 0)
            return Matrix(blocks, format, self.layout.sharded(COLUMNS, columns))
        return Matrix(self._laid_out(entry, start * row_bytes, shape, sharded, len(count)), format)

    def projection(
        self, name: str, sharded: ShardedAxis | None = None, rows: tuple[int, int] | None = None
    ) -> Projection:
        """The weight `name.weight`, with the bias `name.bias` if the file has one."""
        bias = None
        if f"{name}.bias" in self:
            # a product with shards of columns is reduced before the bias is added
            is_sharded = sharded is not None and sharded.axis == ROWS
            bias = self.vector(f"{name}.bias", sharded if is_sharded else None, rows)
        return Projection(self.matrix(f"{name}.weight", sharded, rows), bias)

    def vector(
        self, name: str, sharded: ShardedAxis | None = None, rows: tuple[int, int] | None = None
    ) -> Tensor:
        """A weight with one axis, as float32; with `rows`, a range of its elements."""
        entry = self._entry(name)
        format = block_format(entry.ggml_type)
        if len(entry.shape) != 1 or format.elements != 1:
            raise FileFormatError(
                f"the weight {name} has the shape {entry.shape} in {format.name}, and is no vector"
            )
        start, stop = rows or (0, entry.shape[0])
        shape = (stop - start, format.nbytes)
        blocks = self._laid_out(entry, start * format.nbytes, shape, sharded, 0)
        return Matrix(blocks, format).values().contiguous().realize()

    def _entry(self, name: str) -> TensorEntry:
        if name not in self.files:
            raise FileFormatError(f"the file has no weight {name}, which its architecture needs")
        return self.files[name].entries[name]

    def _is_mapped(self, entry: TensorEntry, sharded: ShardedAxis | None, first: int) -> bool:
        """Whether a matrix of the mapped file is sharded along columns, without padding."""
        if self.layout.is_single or sharded is None or sharded.axis != COLUMNS or first:
            return False
        units = sharded.units
        is_even = units is not None and units > 1 and self.layout.padded(units) == units
        return is_even and self.files[entry.name].mapping is not None

    def _laid_out(
        self,
        entry: TensorEntry,
        skipped: int,
        shape: tuple[int, ...],
        sharded: ShardedAxis | None,
        first: int,
    ) -> Tensor:
        """The bytes (..., nbytes) of a weight past the first `skipped`, laid out over devices."""
        layout, file = self.layout, self.files[entry.name]
        begin = file.data_start + entry.offset + skipped
        if layout.is_single:
            value = view_bytes(file.bytes, begin, dtypes.uint8, shape)
            return value.to(layout.replicated).realize()
        if sharded is None or sharded.units == 1:
            return file.place(begin, shape, layout.replicated)
        axis = first + sharded.axis
        size = shape[axis]
        units = sharded.units or size
        assert size % units == 0, f"{size} along axis {axis} are no {units} equal units"
        sharding, missing = layout.sharded(axis, units), layout.padded(units) - units
        if not missing or sharded.units is None:
            return file.place(begin, shape, sharding)
        cut = (*shape[:axis], units, size // units, *shape[axis + 1 :])
        padding = [(0, missing if i == axis else 0) for i in range(len(cut))]
        value = file.place(begin, cut, sharding).pad(padding)
        return value.reshape(*shape[:axis], -1, *shape[axis + 1 :]).contiguous().realize()
