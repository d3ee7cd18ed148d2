"""Drawings of layouts: which device holds which block of an array, for a terminal or a notebook.

Input: a layout, or the name of a device, and a shape. Output: text, coloured on a terminal, and
SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinygrad.sharding.device_names import device_range
from tinygrad.sharding.drawing_svg import svg
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.panels import Cell, Panel, empty_devices, panels
from tinygrad.sharding.sizes import Shape, Size
from tinygrad.text import highlighted

# adjacent devices differ, also along the columns of small meshes
_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red", "CYAN", "YELLOW", "GREEN")
# lines of the tallest block, if blocks differ in size
_MAX_LINES = 3


@dataclass(frozen=True)
class Drawing:
    """A drawing of a layout: text in `print` and at a prompt, SVG in notebooks and by `svg()`.

    Of many blocks along an axis, only the first and the last are shown. `axes` and `at` choose what
    to show of an array of more than two axes, see `panels`.

    >>> print(Drawing(Sharding(("CPU:0", "CPU:1"), axis=0), (4, 2)))
    (4, 2) on Sharding(CPU:0-1, axis=0), (2, 2) each
         0:2
        ┌───────┐
    0:2 │  CPU  │
        ├───────┤
    2:4 │ CPU:1 │
        └───────┘
    """

    layout: Sharding | str
    shape: Shape
    axes: tuple[int, ...] | None = None
    at: Mapping[int, int] | None = None

    def __post_init__(self) -> None:
        self._panels()

    def __str__(self) -> str:
        parts = [self.title, *(_panel_text(panel) for panel in self._panels()), self.footer]
        return "\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """The drawing as a self-contained SVG element with blocks to scale, for light and dark
        pages.
        """
        return svg(self.title, self._panels(), self.footer)

    @property
    def title(self) -> str:
        """The layout of the array, and the local shape."""
        return where(self.layout, self.shape)

    @property
    def footer(self) -> str:
        """The devices with empty shards, if any."""
        idle = empty_devices(self.layout, self.shape)
        return f"{device_range(idle)}: nothing" if idle else ""

    def _panels(self) -> list[Panel]:
        return [x.shortened() for x in panels(self.layout, self.shape, self.axes, self.at)]


def where(layout: Sharding | str, shape: Shape) -> str:
    """The layout and the local shape of an array, in one line.

    >>> where(Sharding(("CPU:0", "CPU:1"), axis=0), (4, 2))
    '(4, 2) on Sharding(CPU:0-1, axis=0), (2, 2) each'
    """
    if isinstance(layout, str) or not layout.split_axes:
        return f"{shape} on {layout}"
    return f"{shape} on {layout}, {layout.local_shape(shape)} each"


# ---- text ----


def _panel_text(panel: Panel) -> str:
    """A table with the bounds of its blocks on the left and above."""
    labels, heads = panel.row_labels, panel.column_labels
    widths = _widths(panel, heads)
    heights = _heights(panel)
    margin = max(map(len, labels))
    indent = " " * (margin + 1)
    lines = [panel.place] if panel.place else []
    lines += [indent + _above(heads, widths)] if any(heads) else []
    lines.append(indent + _rule("┌", "┬", "┐", widths))
    for number, (label, row, height) in enumerate(zip(labels, panel.cells, heights, strict=True)):
        if number:
            lines.append(indent + _rule("├", "┼", "┤", widths))
        lines += _row(label.rjust(margin), row, widths, height)
    lines.append(indent + _rule("└", "┴", "┘", widths))
    return "\n".join(lines)


def _widths(panel: Panel, heads: Sequence[str]) -> list[int]:
    """The width of each column of the table, in proportion to its blocks."""
    needed = [
        max([len(head), *(len(line) for line in _said(cells))])
        for head, cells in zip(heads, zip(*panel.cells, strict=True), strict=True)
    ]
    sizes = [stop - start for start, stop in panel.columns]
    if _are_equal(sizes):
        widest = max(needed) + 2
        return [widest if size else need + 2 for need, size in zip(needed, sizes, strict=True)]
    largest, widest = max(sizes), max(needed)
    return [
        max(need, round(widest * size / largest)) + 2
        for need, size in zip(needed, sizes, strict=True)
    ]


def _said(cells: Sequence[Cell | None]) -> list[str]:
    return [line for cell in cells if cell is not None for line in cell.lines]


def _heights(panel: Panel) -> list[int]:
    """The height of each row of the table in lines, in proportion to its blocks."""
    needed = [max([1, *(len(cell.lines) for cell in row if cell)]) for row in panel.cells]
    sizes = [stop - start for start, stop in panel.rows]
    if _are_equal(sizes):
        return needed
    largest = max(sizes)
    return [
        max(need, round(_MAX_LINES * size / largest))
        for need, size in zip(needed, sizes, strict=True)
    ]


def _are_equal(sizes: Sequence[Size]) -> bool:
    """Whether blocks have one size, omitted ones aside; a size may be symbolic."""
    return len({str(size) for size in sizes} - {"0"}) <= 1


def _above(heads: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f" {head}".ljust(width + 1) for head, width in zip(heads, widths, strict=True))
    return "".join(cells).rstrip()


def _rule(left: str, middle: str, right: str, widths: Sequence[int]) -> str:
    return left + middle.join("─" * width for width in widths) + right


def _row(label: str, row: Sequence[Cell | None], widths: Sequence[int], height: int) -> list[str]:
    columns = [_cell(cell, width, height) for cell, width in zip(row, widths, strict=True)]
    beside = (height - 1) // 2
    return [
        f"{label if number == beside else ' ' * len(label)} │{'│'.join(parts)}│"
        for number, parts in enumerate(zip(*columns, strict=True))
    ]


def _cell(cell: Cell | None, width: int, height: int) -> list[str]:
    """The lines of a cell: centred text in the colour of its first device."""
    if cell is None:
        return [" " * width] * height
    above = (height - len(cell.lines)) // 2
    lines = ["" for _ in range(above)] + [*cell.lines]
    lines += ["" for _ in range(height - len(lines))]
    color = _COLORS[cell.device % len(_COLORS)]
    return [highlighted(line.center(width), color) if line else " " * width for line in lines]
