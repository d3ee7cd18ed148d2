"""The weights of a GGUF file, left in its blocks and laid out over devices.

In: a file and a `Placement`. Out: matrices whose numbers are made of their blocks inside the
kernels that multiply by them, and vectors. Always true: on one device of this process the blocks
are the file's own memory, mapped; on several, each device's part is read from its place in the
file. No array holds the numbers of a whole quantised weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinygrad.apps.language.files.split_files import names_of_parts
from tinygrad.apps.language.model.layouts import Placement
from tinygrad.device import Device
from tinygrad.dtype import dtypes
from tinygrad.nn.state.file_bytes import (
    FileFormatError,
    bytes_of_file,
    is_on_disk,
    memory_of,
    name_of_file,
    shown,
    view_bytes,
)
from tinygrad.nn.state.ggml import BlockFormat, block_format
from tinygrad.nn.state.gguf import TensorEntry, gguf_load_metadata
from tinygrad.nn.state.shards import read_shards
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor

ROWS, COLUMNS = 0, 1
WORDS = (dtypes.uint64, dtypes.uint32, dtypes.uint16, dtypes.uint8)


@dataclass(frozen=True)
class Split:
    """How devices share a matrix: an axis, of units that stay whole.

    Where the units are no multiple of the number of devices, units of zeros are added. Without
    units, each element of the axis is one, and none are added.
    """

    axis: int
    units: int | None = None


@dataclass(frozen=True)
class Matrix:
    """A matrix (rows, columns), or several (count, rows, columns), as blocks along the columns."""

    blocks: Tensor
    format: BlockFormat

    def __call__(self, x: Tensor) -> Tensor:
        """The product with vectors: (..., columns) to (..., rows)."""
        return x.dot(self.values().transpose(-1, -2))

    def __getitem__(self, index: Tensor) -> Matrix:
        """The entries of axis 0 that an index names: rows, or whole matrices."""
        # words are copied faster than the bytes they are made of
        word = next(kind for kind in WORDS if self.format.nbytes % kind.itemsize == 0)
        return Matrix(self.blocks.bitcast(word)[index].bitcast(dtypes.uint8), self.format)

    def values(self) -> Tensor:
        """The numbers, float32, as part of what reads them."""
        return self.format.dequantize(self.blocks).flatten(-2).float()


@dataclass(frozen=True)
class Projection:
    """A matrix, and a vector that is added to its products."""

    matrix: Matrix
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        product = self.matrix(x)
        return product if self.bias is None else product + self.bias


class _OneFile:
    """What one file has; the memory that weights are views of is kept by `self`."""

    def __init__(self, gguf: Tensor | str | Path, placement: Placement) -> None:
        self.bytes = bytes_of_file(gguf)
        self.data_start, self.metadata, self.entries = gguf_load_metadata(self.bytes)
        if placement.is_single and is_on_disk(self.bytes):
            self.bytes, self.mapping = _mapped(self.bytes, placement.mesh.devices[0])

    def view(self, entry: TensorEntry, skipped: int, shape: tuple[int, ...]) -> Tensor:
        """Bytes of a weight, after some that are skipped."""
        return view_bytes(self.bytes, self.data_start + entry.offset + skipped, dtypes.uint8, shape)


class WeightFile:
    """A GGUF file, or the parts of one, whose weights are laid out as they are taken.

    `metadata` has the values of the first file by key. Raises FileFormatError for parts that do not
    belong together.
    """

    def __init__(self, gguf: Tensor | str | Path, placement: Placement) -> None:
        parts = [gguf] if isinstance(gguf, Tensor) else names_of_parts(str(gguf))
        files = [_OneFile(part, placement) for part in parts]
        self.placement = placement
        self.metadata = files[0].metadata
        self.files = {name: file for file in files for name in file.entries}
        self._check(files)

    def _check(self, files: list[_OneFile]) -> None:
        name = name_of_file(files[0].bytes)
        count = self.metadata.get("split.count", 1)
        if count not in (0, len(files)):
            raise FileFormatError(
                f"{name}: a model of {shown(count)} files, of which {len(files)} are there; give "
                "the path of a file whose name ends in -00001-of-00002.gguf or the like"
            )
        total = sum(len(file.entries) for file in files)
        expected = self.metadata.get("split.tensors.count", total)
        if not len(self.files) == total == expected:
            raise FileFormatError(
                f"{name}: {shown(expected)} weights in {len(files)} files, of which "
                f"{len(self.files)} are there; the files are not of one model"
            )

    def __contains__(self, name: str) -> bool:
        return name in self.files

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a weight. Raises FileFormatError if the file lacks it."""
        return self._entry(name).shape

    def elements_per_block(self, name: str) -> int:
        """In how many columns a weight may be cut at the least."""
        return block_format(self._entry(name).ggml_type).elements

    def matrix(
        self, name: str, split: Split | None = None, rows: tuple[int, int] | None = None
    ) -> Matrix:
        """A weight with two axes or three; with `rows`, some of its rows.

        Raises FileFormatError if it is not there or has other axes.
        """
        entry = self._entry(name)
        if len(entry.shape) not in (2, 3):
            raise FileFormatError(f"the weight {name} has the shape {entry.shape}, not of a matrix")
        format = block_format(entry.ggml_type)
        *count, height, columns = entry.shape
        row_bytes = columns // format.elements * format.nbytes
        start, stop = rows or (0, height)
        shape = (*count, stop - start, columns // format.elements, format.nbytes)
        return Matrix(self._laid_out(entry, start * row_bytes, shape, split, len(count)), format)

    def projection(
        self, name: str, split: Split | None = None, rows: tuple[int, int] | None = None
    ) -> Projection:
        """The weight `name.weight` with the bias `name.bias`, if the file has that."""
        bias = None
        if f"{name}.bias" in self:
            # products with some of the columns are added up before the bias is
            is_split = split is not None and split.axis == ROWS
            bias = self.vector(f"{name}.bias", split if is_split else None, rows)
        return Projection(self.matrix(f"{name}.weight", split, rows), bias)

    def vector(
        self, name: str, split: Split | None = None, rows: tuple[int, int] | None = None
    ) -> Tensor:
        """A weight with one axis, as float32; with `rows`, some of its elements."""
        entry = self._entry(name)
        format = block_format(entry.ggml_type)
        if len(entry.shape) != 1 or format.elements != 1:
            raise FileFormatError(
                f"the weight {name} has the shape {entry.shape} in {format.name}, and is no vector"
            )
        start, stop = rows or (0, entry.shape[0])
        shape = (stop - start, format.nbytes)
        blocks = self._laid_out(entry, start * format.nbytes, shape, split, 0)
        return Matrix(blocks, format).values().contiguous().realize()

    def _entry(self, name: str) -> TensorEntry:
        if name not in self.files:
            raise FileFormatError(f"the file has no weight {name}, which its architecture needs")
        return self.files[name].entries[name]

    def _laid_out(
        self,
        entry: TensorEntry,
        skipped: int,
        shape: tuple[int, ...],
        split: Split | None,
        first: int,
    ) -> Tensor:
        """Bytes of a weight, (..., nbytes), after some that are skipped, on the model's devices."""
        placement, file = self.placement, self.files[entry.name]
        if placement.is_single or split is None or split.units == 1:
            return _moved(file.view(entry, skipped, shape), placement.copies)
        axis = first + split.axis
        size = shape[axis]
        units = split.units or size
        assert size % units == 0, f"{size} along axis {axis} are no {units} equal units"
        layout, missing = placement.split(axis, units), placement.padded(units) - units
        if not missing or split.units is None:
            return _moved(file.view(entry, skipped, shape), layout)
        cut = (*shape[:axis], units, size // units, *shape[axis + 1 :])
        padding = [(0, missing if i == axis else 0) for i in range(len(cut))]
        value = _moved(file.view(entry, skipped, cut), layout).pad(padding)
        return value.reshape(*shape[:axis], -1, *shape[axis + 1 :]).contiguous().realize()


def _moved(value: Tensor, layout: str | Sharding) -> Tensor:
    """A tensor of the file, on its devices in memory of its own, or as it is if it is there."""
    found = read_shards(value, layout) if isinstance(layout, Sharding) else None
    return found if found is not None else value.to(layout).realize()


def _mapped(file: Tensor, device: str) -> tuple[Tensor, Any]:
    """A file on disk as memory of a device, and what keeps that memory mapped.

    A device that does not share the memory of this process gets a copy.
    """
    if not Device[device].allocator.addressable:
        return file.to(device).realize(), None
    mapping = memory_of(file).as_memoryview()
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    return Tensor.from_blob(address, (mapping.nbytes,), dtype=dtypes.uint8, device=device), mapping
