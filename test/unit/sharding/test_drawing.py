"""Pictures of layouts: text and SVG show which device holds which block, legibly."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.unit.sharding.test_sharding_properties import layouts
from tinygrad import GlobalCounters, Mesh, Tensor
from tinygrad.settings import Context
from tinygrad.sharding import Partial, Shape, Sharding, ShardingError
from tinygrad.sharding.drawing import Drawing, where
from tinygrad.sharding.panels import Panel, empty_devices, panels
from tinygrad.text import ansistrip

ROOT = Path(__file__).parents[3]
EIGHT = tuple(f"CPU:{number}" for number in range(8))
FOUR, TWO = EIGHT[:4], EIGHT[:2]
SVG = "{http://www.w3.org/2000/svg}"

# ---- text ----

PICTURES: dict[str, tuple[Drawing, str]] = {
    "one device": (
        Drawing("CPU", (8, 4)),
        """
        (8, 4) on CPU
             0:4
            ┌─────┐
        0:8 │ CPU │
            └─────┘
        """,
    ),
    "replicated": (
        Drawing(Sharding(FOUR), (8, 4)),
        """
        (8, 4) on Sharding(CPU:0-3, axis=None)
             0:4
            ┌─────────┐
        0:8 │ CPU:0-3 │
            └─────────┘
        """,
    ),
    "rows": (
        Drawing(Sharding(TWO, 0), (8, 4)),
        """
        (8, 4) on Sharding(CPU:0-1, axis=0), (4, 4) each
             0:4
            ┌───────┐
        0:4 │  CPU  │
            ├───────┤
        4:8 │ CPU:1 │
            └───────┘
        """,
    ),
    "a vector whose size does not divide": (
        Drawing(Sharding(FOUR, 0), (10,)),
        """
        (10,) on Sharding(CPU:0-3, axis=0), (3,) each
          0:3     3:6     6:9     9:10
         ┌───────┬───────┬───────┬───────┐
         │  CPU  │ CPU:1 │ CPU:2 │ CPU:3 │
         └───────┴───────┴───────┴───────┘
        """,
    ),
    "rows that do not divide, and a device without any": (
        Drawing(Sharding(FOUR, 0), (5, 4)),
        """
        (5, 4) on Sharding(CPU:0-3, axis=0), (2, 4) each
             0:4
            ┌───────┐
            │       │
        0:2 │  CPU  │
            │       │
            ├───────┤
            │       │
        2:4 │ CPU:1 │
            │       │
            ├───────┤
        4:5 │ CPU:2 │
            │       │
            └───────┘
        CPU:3: nothing
        """,
    ),
    "rows and columns": (
        Drawing(Sharding(FOUR, (0, 1), (2, 2)), (8, 6)),
        """
        (8, 6) on Sharding(CPU:0-3, axis=(0, 1), mesh=(2, 2)), (4, 3) each
             0:3     3:6
            ┌───────┬───────┐
        0:4 │  CPU  │ CPU:1 │
            ├───────┼───────┤
        4:8 │ CPU:2 │ CPU:3 │
            └───────┴───────┘
        """,
    ),
    "two copies of columns": (
        Drawing(Sharding(FOUR, (None, 1), (2, 2)), (8, 6)),
        """
        (8, 6) on Sharding(CPU:0-3, axis=(None, 1), mesh=(2, 2)), (8, 3) each
             0:3            3:6
            ┌──────────────┬──────────────┐
        0:8 │  CPU, CPU:2  │ CPU:1, CPU:3 │
            └──────────────┴──────────────┘
        """,
    ),
    "two mesh dimensions on one axis": (
        Drawing(Sharding(EIGHT, (0, 1, 0), (2, 2, 2)), (8, 6)),
        """
        (8, 6) on Sharding(CPU:0-7, axis=(0, 1, 0), mesh=(2, 2, 2)), (2, 3) each
             0:3     3:6
            ┌───────┬───────┐
        0:2 │  CPU  │ CPU:2 │
            ├───────┼───────┤
        2:4 │ CPU:1 │ CPU:3 │
            ├───────┼───────┤
        4:6 │ CPU:4 │ CPU:6 │
            ├───────┼───────┤
        6:8 │ CPU:5 │ CPU:7 │
            └───────┴───────┘
        """,
    ),
    "partial sums, in two replicas": (
        Drawing(Sharding(EIGHT, (None, Partial("ADD"), 1), (2, 2, 2)), (2, 8)),
        """
        (2, 8) on Sharding(CPU:0-7, axis=(None, Partial(ADD), 1), mesh=(2, 2, 2)), (2, 4) each
             0:4                   4:8
            ┌─────────────────────┬─────────────────────┐
        0:2 │  sum of CPU, CPU:2  │ sum of CPU:1, CPU:3 │
            │ sum of CPU:4, CPU:6 │ sum of CPU:5, CPU:7 │
            └─────────────────────┴─────────────────────┘
        """,
    ),
    "partial maxima": (
        Drawing(Sharding(FOUR, Partial("MAX")), ()),
        """
        () on Sharding(CPU:0-3, axis=Partial(MAX))
         ┌────────────────┐
         │ max of CPU:0-3 │
         └────────────────┘
        """,
    ),
    "three axes: the sharded ones are shown": (
        Drawing(Sharding(FOUR, (2, 0), (2, 2)), (4, 5, 6)),
        """
        (4, 5, 6) on Sharding(CPU:0-3, axis=(2, 0), mesh=(2, 2)), (2, 5, 3) each
        [↓, :, →]
             0:3     3:6
            ┌───────┬───────┐
        0:2 │  CPU  │ CPU:2 │
            ├───────┼───────┤
        2:4 │ CPU:1 │ CPU:3 │
            └───────┴───────┘
        """,
    ),
    "three sharded axes: a table for each block of the last": (
        Drawing(Sharding(EIGHT, (0, 1, 2), (2, 2, 2)), (8, 6, 4)),
        """
        (8, 6, 4) on Sharding(CPU:0-7, axis=(0, 1, 2), mesh=(2, 2, 2)), (4, 3, 2) each
        [↓, →, 0:2]
             0:3     3:6
            ┌───────┬───────┐
        0:4 │  CPU  │ CPU:2 │
            ├───────┼───────┤
        4:8 │ CPU:4 │ CPU:6 │
            └───────┴───────┘
        [↓, →, 2:4]
             0:3     3:6
            ┌───────┬───────┐
        0:4 │ CPU:1 │ CPU:3 │
            ├───────┼───────┤
        4:8 │ CPU:5 │ CPU:7 │
            └───────┴───────┘
        """,
    ),
    "many blocks: the first ones and the last": (
        Drawing(Sharding([f"CPU:{i}" for i in range(64)], 0), (64, 6), axes=(1, 0)),
        """
        (64, 6) on Sharding(CPU:0-63, axis=0), (1, 6) each
             0:1      1:2      2:3      3:4      4:5      5:6      …   63:64
            ┌────────┬────────┬────────┬────────┬────────┬────────┬───┬────────┐
        0:6 │  CPU   │ CPU:1  │ CPU:2  │ CPU:3  │ CPU:4  │ CPU:5  │   │ CPU:63 │
            └────────┴────────┴────────┴────────┴────────┴────────┴───┴────────┘
        """,
    ),
    "chosen axes at an index": (
        Drawing(Sharding(EIGHT, (0, 1, 2), (2, 2, 2)), (8, 6, 4), axes=(2, 1), at={0: 5}),
        """
        (8, 6, 4) on Sharding(CPU:0-7, axis=(0, 1, 2), mesh=(2, 2, 2)), (4, 3, 2) each
        [5, →, ↓]
             0:3     3:6
            ┌───────┬───────┐
        0:2 │ CPU:4 │ CPU:6 │
            ├───────┼───────┤
        2:4 │ CPU:5 │ CPU:7 │
            └───────┴───────┘
        """,
    ),
}


@pytest.mark.parametrize(("drawing", "expected"), PICTURES.values(), ids=PICTURES.keys())
def test_a_text_picture(drawing: Drawing, expected: str) -> None:
    assert str(drawing) == textwrap.dedent(expected).strip("\n")
    assert repr(drawing) == str(drawing)


def test_colours_are_for_terminals_and_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = Drawing(Sharding(TWO, 0), (8, 4))
    piped = str(drawing)
    assert "\x1b" not in piped
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with Context(NO_COLOR=""):
        shown = str(drawing)
    assert len(set(re.findall(r"\x1b\[(\d+)m *CPU", shown))) == 2
    assert ansistrip(shown) == piped
    with Context(NO_COLOR="1"):
        assert str(drawing) == piped


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axes": (3,)}, "there is no axis 3 in shape (8, 6, 4)"),
        ({"axes": (0, 0)}, "axes (0, 0) of shape (8, 6, 4) cannot be drawn"),
        ({"axes": (0, 1, 2)}, "axes (0, 1, 2) of shape (8, 6, 4) cannot be drawn"),
        ({"axes": (0, 1), "at": {-2: 0}}, "none that `at` picks an index of"),
        ({"at": {1: 6}}, "there is no index 6 along axis 1 of shape (8, 6, 4)"),
    ],
)
def test_values_that_cannot_be_drawn_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ShardingError, match=re.escape(message)):
        Drawing(Sharding(TWO, 0), (8, 6, 4), **options)


# ---- any layout ----


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    shape = tuple(draw(st.lists(st.integers(2, 9), max_size=4)))
    layout = draw(layouts(len(shape), partial=True))
    return Drawing(layout, shape)


def devices_in(text: str) -> list[int]:
    """The device numbers that a text names."""
    found: list[int] = []
    for first, last in re.findall(r"CPU(?::(\d+)(?:-(\d+))?)?", text):
        found += range(int(first or 0), int(last or first or 0) + 1)
    return found


def cells_of(layout: Sharding, shape: Shape) -> Iterator[tuple[Panel, Any, Any, Any]]:
    """The cells of a drawing that are not empty, each with its panel, row and column."""
    for panel in panels(layout, shape):
        for row, cells in zip(panel.rows, panel.cells, strict=True):
            for column, cell in zip(panel.columns, cells, strict=True):
                if cell is not None:
                    yield panel, row, column, cell


@given(drawings())
@settings(max_examples=200, deadline=None)
def test_every_device_is_in_the_cell_of_its_block_and_in_no_other(drawing: Drawing) -> None:
    layout, shape = drawing.layout, drawing.shape
    assert isinstance(layout, Sharding)
    regions = layout.regions(shape)
    found = devices_in(" ".join(empty_devices(layout, shape)))
    for panel, row, column, cell in cells_of(layout, shape):
        for device in devices_in(" ".join(cell.lines)):
            found.append(device)
            for axis, bounds in zip(panel.axes, (row, column), strict=True):
                assert axis is None or regions[device][axis] == bounds
    assert sorted(found) == list(range(len(layout)))


@given(drawings())
@settings(max_examples=100, deadline=None)
def test_tables_are_aligned_and_svg_has_the_same_content_as_text(drawing: Drawing) -> None:
    text = str(drawing)
    for table in re.findall(r"^ *┌.*?┘$", text, re.DOTALL | re.MULTILINE):
        assert len({len(line) for line in table.splitlines()}) == 1
    tree = ElementTree.fromstring(drawing.svg())
    assert tree.tag == f"{SVG}svg"
    words = " ".join(element.text or "" for element in tree.iter(f"{SVG}text"))
    assert sorted(devices_in(words)) == sorted(devices_in(text))
    blocks = [e for e in tree.iter(f"{SVG}rect") if e.get("class") == "block"]
    assert len(blocks) == sum(
        len(panel.rows) * len(panel.columns) for panel in panels(drawing.layout, drawing.shape)
    )


def test_an_svg_loads_nothing_from_the_network() -> None:
    drawing = Drawing(Sharding(FOUR, 0), (8, 4))
    text = drawing.svg().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|//|url\(|@import|<script|<image|href", text)


def test_the_picture_in_the_documentation_is_up_to_date() -> None:
    page = (ROOT / "docs" / "sharding.svg").read_text()
    assert page.rstrip("\n") == Drawing(Sharding(EIGHT, (0, 1), (2, 4)), (8, 4)).svg()


def test_names_of_devices_are_text_and_not_markup() -> None:
    tree = ElementTree.fromstring(Drawing("<b>&CPU", (2,)).svg())
    assert "<b>&CPU" in [element.text for element in tree.iter(f"{SVG}text")]


# ---- tensors ----


def test_a_tensor_shows_its_layout_without_being_computed() -> None:
    x = Tensor.rand(8, 4).shard(("CPU", "CPU:1"), axis=1)
    GlobalCounters.reset()
    drawing = x.visualize_sharding()
    assert str(drawing).splitlines()[2:] == [
        "    ┌───────┬───────┐",
        "0:8 │  CPU  │ CPU:1 │",
        "    └───────┴───────┘",
    ]
    assert drawing._repr_html_() == drawing.svg()
    assert GlobalCounters.kernel_count == 0
    assert not x.uop.is_realized


def test_representations_show_the_layout() -> None:
    x = Tensor.ones(8, 4).shard(FOUR, axis=0)
    assert repr(x) == (
        "<Tensor dtypes.float (8, 4) on Sharding(CPU:0-3, axis=0), (2, 4) each: COPY>"
    )
    assert repr(x.device) == str(x.device)
    assert repr(Mesh((2, 2), ("dp", "tp"), FOUR)) == "Mesh(dp=2, tp=2, CPU:0-3)"
    assert where("CPU", (8, 4)) == "(8, 4) on CPU"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (FOUR, "CPU:0-3"),
        (("CPU", "CPU:1"), "CPU:0-1"),
        (("CPU:0", "CPU:1", "CPU:4", "CPU:5", "CPU:7"), "CPU:0-1, CPU:4-5, CPU:7"),
        (("CPU:1", "CPU:0"), "CPU:1, CPU"),
        (("CPU:0", "NULL:1"), "CPU, NULL:1"),
    ],
)
def test_consecutive_devices_are_abbreviated(devices: tuple[str, ...], expected: str) -> None:
    assert str(Sharding(devices)) == f"Sharding({expected}, axis=None)"


# ---- a browser ----

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
# a page measures its pictures: the luminance of text and background, and overflowing text
MEASURE = """
const luminance = color => {
  const parts = color.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255);
  const linear = parts.map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
};
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const fill = element => getComputedStyle(element).fill;
const inside = (a, b) =>
  a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
let least = Infinity, outside = [];
for (const svg of document.querySelectorAll("svg")) {
  const page = svg.querySelector(".page"), blocks = [...svg.querySelectorAll(".block")];
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect(), held = text.classList.contains("held");
    const around = held ? blocks.filter(b => inside(box, b.getBoundingClientRect())) : [page];
    const fits = around.length && inside(box, page.getBoundingClientRect());
    if (!fits) outside.push(text.textContent);
    else least = Math.min(least, contrast(fill(text), fill(around[0])));
  }
}
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.title = JSON.stringify({dark, least, outside});
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_browser_shows_text_inside_its_blocks_and_in_contrast(
    tmp_path: Path, scheme: str
) -> None:
    many = Sharding([f"CPU:{i}" for i in range(64)], (0, 1), (16, 4))
    drawings = [*(drawing for drawing, _ in PICTURES.values()), Drawing(many, (640, 320))]
    drawn = "".join(drawing.svg() for drawing in drawings)
    page = tmp_path / "pictures.html"
    page.write_text(
        f'<meta charset="utf-8"><body>{drawn}<script>{MEASURE}</script></body>', encoding="utf-8"
    )
    assert BROWSER is not None
    shown = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu"),
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            *(f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    found = re.search(r"<title>({.*?})</title>", shown)
    assert found is not None, shown[:2000]
    measured = json.loads(found[1])
    assert measured["dark"] == (scheme == "dark")
    assert measured["outside"] == []
    # the minimum contrast of the accessibility guidelines (WCAG 2, AA)
    assert measured["least"] >= 4.5
