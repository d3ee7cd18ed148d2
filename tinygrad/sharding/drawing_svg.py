"""Panels of blocks as SVG: blocks to scale, a colour for each device.

Input: a title, panels, a footer. Output: one self-contained SVG element. Invariant: it is
well-formed XML and has its own background, so that it is legible on any page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinygrad.sharding.panels import Bounds, Cell, Panel

# sizes in pixels
FONT, LINE, GAP, MARGIN = 13, 18, 14, 16
# the maximum width of a character of the monospaced font
CHARACTER = 8.0
MAX_SIDE, MIN_SIDE = 220.0, 50.0

# hues in degrees that are easy to distinguish
_HUES = (205, 40, 140, 320, 265, 5, 180, 75, 230, 100)

_STYLE = """
.sharding { font: 13px ui-monospace, Menlo, Consolas, monospace; }
.sharding .page { fill: #ffffff; stroke: #d0d7de; }
.sharding .word { fill: #1f2328; }
.sharding .note { fill: #59636e; }
.sharding .block { stroke: #1f2328; stroke-width: 1; }
.sharding .held { fill: #1f2328; }
@media (prefers-color-scheme: dark) {
  .sharding .page { fill: #161b22; stroke: #3d444d; }
  .sharding .word { fill: #f0f6fc; }
  .sharding .note { fill: #9198a1; }
}
"""


def svg(title: str, panels: Sequence[Panel], footer: str) -> str:
    """The panels as one SVG element, from top to bottom."""
    parts: list[str] = []
    y: float = MARGIN + LINE
    parts.append(_text(MARGIN, y, title, "word"))
    widest = len(title) * CHARACTER
    for panel in panels:
        y += GAP
        if panel.place:
            y += LINE
            parts.append(_text(MARGIN, y, panel.place, "note"))
            y += 4
        drawn, width, height = _panel(panel, y)
        parts += drawn
        y += height
        widest = max(widest, width)
    if footer:
        y += GAP + LINE
        parts.append(_text(MARGIN, y, footer, "note"))
        widest = max(widest, len(footer) * CHARACTER)
    width, height = widest + 2 * MARGIN, y + MARGIN
    page = (
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="6"/>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sharding" role="img" '
        f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}">'
        f"<title>{_escaped(title)}</title><style>{_STYLE}</style>{page}{''.join(parts)}</svg>"
    )


def _panel(panel: Panel, top: float) -> tuple[list[str], float, float]:
    """The elements of a panel that starts at `top`, its width and its height."""
    labels, heads = panel.row_labels, panel.column_labels
    left = MARGIN + max(map(len, labels)) * CHARACTER + 6
    over = LINE if any(heads) else 0
    widths, heights = _sides(panel, heads)
    parts: list[str] = []
    x = left
    for head, width in zip(heads, widths, strict=True):
        parts.append(_text(x + width / 2, top + LINE - 5, head, "note", "middle"))
        x += width
    y = top + over
    for label, row, height in zip(labels, panel.cells, heights, strict=True):
        parts.append(_text(left - 6, y + height / 2 + 4, label, "note", "end"))
        x = left
        for cell, width in zip(row, widths, strict=True):
            parts += _block(cell, x, y, width, height)
            x += width
        y += height
    return parts, left + sum(widths) - MARGIN, y - top


def _sides(panel: Panel, heads: Sequence[str]) -> tuple[list[float], list[float]]:
    """The widths and heights of blocks: to scale, but large enough for their text."""
    words = [line for row in panel.cells for cell in row if cell for line in cell.lines]
    lines = max([1, *(len(cell.lines) for row in panel.cells for cell in row if cell)])
    narrowest = max([4, *map(len, words), *map(len, heads)]) * CHARACTER + 12
    columns, rows = _lengths(panel.columns), _lengths(panel.rows)
    ratio = (sum(rows) or 1) / (sum(columns) or 1)
    width = min(MAX_SIDE, max(MIN_SIDE, MAX_SIDE / max(ratio, 1e-9)))
    height = min(MAX_SIDE, max(MIN_SIDE, MAX_SIDE * ratio))
    return (
        [max(narrowest, width * size / (sum(columns) or 1)) for size in columns],
        [max(lines * LINE + 8, height * size / (sum(rows) or 1)) for size in rows],
    )


def _lengths(bounds: Sequence[Bounds]) -> list[float]:
    """The lengths of blocks; a symbolic axis is unsharded and has one block."""
    if not all(isinstance(stop, int) for _, stop in bounds):
        return [1.0] * len(bounds)
    return [float(stop - start) for start, stop in bounds]


def _block(cell: Cell | None, x: float, y: float, width: float, height: float) -> Iterator[str]:
    color = "none" if cell is None else _fill(cell.device)
    yield (
        f'<rect class="block" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'fill="{color}"/>'
    )
    lines = () if cell is None else cell.lines
    first = y + height / 2 + FONT / 2 - 2 - (len(lines) - 1) * LINE / 2
    for number, line in enumerate(lines):
        yield _text(x + width / 2, first + number * LINE, line, "held", "middle")


def _fill(device: int) -> str:
    """A light colour for dark text; each round of hues differs in lightness."""
    lightness = (82, 74, 88)[device // len(_HUES) % 3]
    return f"hsl({_HUES[device % len(_HUES)]}, 70%, {lightness}%)"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    if not text:
        return ""
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{_escaped(text)}</text>'
    )


def _escaped(text: str) -> str:
    """Text as a part of a document. `html` names all entities, so it is imported where it is
    used.
    """
    from html import escape

    return escape(text)
