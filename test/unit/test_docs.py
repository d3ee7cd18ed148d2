"""The documentation: its Python runs, and prints what the pages show.

The blocks of a page run in order in one namespace. A `text` block after a Python block is its
expected output, in which `...` matches anything.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import pytest

from tinygrad.settings import NO_EFFECT, ContextVar

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "README.md", *ROOT.glob("docs/*.md")))
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n?```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#]*)(?:#(?P<section>[^)]*))?\)")
FILE = re.compile(r"`(?P<name>(?:[\w-]+/)+|[\w/-]+\.(?:py|c|md))`")
TREE = {"/" + path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/*")}
TREE |= {f"/{path.name}" for path in ROOT.iterdir()}


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer((ROOT / page).read_text()))


def printed(code: str, page: Path, line: int, names: dict[str, Any]) -> str:
    """The output of a block, compiled so that an error names the line of the page."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile("\n" * line + code, str(page), "exec"), names)
    return output.getvalue()


@pytest.mark.sample(2)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=str)
def test_the_examples_of_a_page_print_what_it_shows(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        line = block.string.count("\n", 0, block.start("code"))
        output = printed(block["code"], page, line, names)
        wanted = block["output"] or ""
        assert doctest.OutputChecker().check_output(wanted, output, doctest.ELLIPSIS), (
            f"{page}:{line}: the example prints\n{output}and not\n{wanted}"
        )


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_of_python_is_found(page: Path) -> None:
    assert len(blocks(page)) == (ROOT / page).read_text().count("```python")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_links_of_a_page_exist(page: Path) -> None:
    links = LINK.findall(CODE.sub("", (ROOT / page).read_text()))
    missing: list[str] = []
    for name, section in links:
        if name.startswith(("http:", "https:")):
            continue
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (section and section not in sections(target)):
            missing.append(f"{name}#{section}")
    assert not missing, f"{page} has dead links: {', '.join(missing)}"


def sections(page: Path) -> set[str]:
    """The names of the headings of a page, as links have them."""
    headings = re.findall(r"(?m)^#+ (.*)$", CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_checks_before_a_change_run_the_test_command_of_the_readme() -> None:
    command = "pip install -e '.[test]' && SPEC=2 python -m pytest test"
    assert command in (ROOT / "README.md").read_text().splitlines()


def is_there(name: str) -> bool:
    """Whether a file or folder of the project has this name, or ends in this path."""
    return any(path.endswith(f"/{name}") for path in TREE)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_files_and_folders_that_a_page_names_exist(page: Path) -> None:
    names = {name.rstrip("/") for name in FILE.findall((ROOT / page).read_text())}
    missing = {name for name in names if not is_there(name)}
    assert not missing, f"{page} names files that are not there: {', '.join(sorted(missing))}"


def test_a_package_that_lists_its_files_lists_all_of_them() -> None:
    wrong: list[str] = []
    for package in (ROOT / "tinygrad").rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(package.read_text())) or ""
        files = {path.stem for path in package.parent.glob("*.py")} - {"__init__", "__main__"}
        unlisted = files - set(re.findall(r"\w+", text))
        if len(files) > 4 and len(unlisted) < len(files) / 2:
            wrong += [f"{package}: {name} is not listed" for name in unlisted]
        named = re.findall(r"\w+\.py\b", text)
        wrong += [f"{package}: no {name}" for name in named if not is_there(name)]
    assert not wrong, "\n".join(wrong)


SETTINGS = [name for name, setting in ContextVar.declared.items() if setting.meaning]


def names_read(path: Path) -> set[str]:
    """The names that a file uses, except those it only re-exports."""
    tree = ast.parse(path.read_text())
    local = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    if path.name == "settings.py":
        local = set(SETTINGS)
    found = (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and type(n.ctx) is ast.Load)
    return local.intersection(found)


@pytest.mark.slow
def test_settings_documented_as_without_effect_are_those_that_nothing_reads() -> None:
    read = set().union(*(names_read(path) for path in (ROOT / "tinygrad").rglob("*.py")))
    silent = {name for name in SETTINGS if ContextVar.declared[name].meaning == NO_EFFECT}
    assert silent == set(SETTINGS) - read
