"""Layering: imports point down only and form no cycles, and one file alone reads the environment.

Modules are parsed, not imported. Imports inside functions and under TYPE_CHECKING count; the
implicit import of a parent package does not.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tinygrad"

# from the bottom up; a module may import from its own layer and those below
LAYERS = (
    {
        "settings",
        "atomic_file",
        "diskcache",
        "fetch",
        "measure",
        "text",
        "helpers",
        "dtype",
        "sharding",
    },
    {"uop"},
    {"device", "allocator", "dlpack"},
    {"renderer", "runtime"},
    {"schedule", "codegen", "gradient"},
    {"execution"},
    {"storage"},
    {"tensor", "mixin"},
    {"jit"},
    {"engine", "nn", "apps", "planner"},
    {"", "__main__"},  # `tinygrad` itself re-exports the public names
)

# inside `schedule`, from the bottom up: lowering and the rewrites of communication come before
# grouping, and do not depend on it
SCHEDULE_LAYERS = (
    {"execution_plan", "canonical", "storage_views"},
    {"comm"},
    {"spmd"},
    {"multi"},
    {"kernel"},
    {"grouping"},
    {"pipeline", ""},
)

# the registry alone imports by a computed name: the module of this package named after a device
REGISTRY = ("tinygrad.device", "tinygrad.runtime")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
PACKAGES = {module_name(path) for path in SOURCE.rglob("__init__.py")}


@functools.cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(MODULES[module].read_text())


def layer(module: str) -> int:
    """The number of the layer of a module, by the longest name in the table."""
    inside = module.removeprefix("tinygrad").removeprefix(".")
    while inside:
        for number, names in enumerate(LAYERS):
            if inside in names:
                return number
        inside = inside.rpartition(".")[0]
    if module == "tinygrad":
        return len(LAYERS) - 1
    raise AssertionError(f"{module} is in no layer: add it to LAYERS in this test")


def imported_modules(module: str, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The modules of this package that `module` imports, each with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = from_names(module, node)
        else:
            continue
        yield from ((name, node.lineno) for name in names if name in MODULES)


def from_names(module: str, node: ast.ImportFrom) -> list[str]:
    """The modules that `from x import y` imports: x.y if it is a module, else x."""
    base = node.module or ""
    if node.level:
        package = module if module in PACKAGES else module.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        base = f"{package}.{base}".rstrip(".")
    names = (f"{base}.{alias.name}" for alias in node.names)
    return [name if name in MODULES else base for name in names]


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_nothing_from_above(module):
    wrong = [
        f"line {line} imports {name}"
        for name, line in imported_modules(module, tree_of(module))
        if layer(name) > layer(module)
    ]
    assert not wrong, f"{module} is below what it imports: {'; '.join(wrong)}"


def schedule_layer(module: str) -> int | None:
    """The number of the layer of a module of `schedule`, None for any other module."""
    package, _, inside = module.partition("tinygrad.schedule")
    if package:
        return None
    stage = inside.removeprefix(".").partition(".")[0]
    for number, names in enumerate(SCHEDULE_LAYERS):
        if stage in names:
            return number
    raise AssertionError(f"{module} is in no layer: add it to SCHEDULE_LAYERS in this test")


@pytest.mark.parametrize("module", [x for x in MODULES if schedule_layer(x) is not None])
def test_stages_of_scheduling_import_no_later_ones(module):
    own = schedule_layer(module)
    wrong = [
        f"line {line} imports {name}"
        for name, line in imported_modules(module, tree_of(module))
        if (other := schedule_layer(name)) is not None and other > own
    ]
    assert not wrong, f"{module} is below what it imports: {'; '.join(wrong)}"


def codegen_stage(module: str) -> str:
    """The folder of a module of `codegen`, "" for any other module."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["tinygrad", "codegen"] and len(parts) > 2 else ""


@pytest.mark.parametrize("module", [x for x in MODULES if codegen_stage(x)])
def test_stages_of_code_generation_share_analyses_alone(module):
    allowed = {"", "analysis", codegen_stage(module)}
    wrong = [
        f"line {line} imports {name}"
        for name, line in imported_modules(module, tree_of(module))
        if codegen_stage(name) not in allowed
    ]
    assert not wrong, f"{module} depends on another stage: {'; '.join(wrong)}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        module: {name for name, _ in imported_modules(module, tree_of(module)) if name != module}
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def dynamic_imports(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls of `import_module` or `__import__`, except with the name of an external package."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func).rpartition(".")[2]
        if function not in ("import_module", "__import__"):
            continue
        name = node.args[0]
        if isinstance(name, ast.Constant) and str(name.value).partition(".")[0] != "tinygrad":
            continue
        yield node


@pytest.mark.parametrize("module", MODULES)
def test_only_the_device_registry_imports_by_computed_name(module):
    if module == REGISTRY[0]:
        for call in dynamic_imports(tree_of(module)):
            assert f"{REGISTRY[1]}." in ast.unparse(call), f"line {call.lineno}"
        return
    lines = [call.lineno for call in dynamic_imports(tree_of(module))]
    assert not lines, f"{module} hides imports from this test in lines {lines}"


ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv")


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"tinygrad.settings"}))
def test_only_settings_reads_the_environment(module):
    wrong = []
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ENVIRONMENT:
            wrong.append(f"line {node.lineno} uses {ast.unparse(node)}")
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {f"os.{alias.name}" for alias in node.names} & set(ENVIRONMENT)
            wrong += [f"line {node.lineno} imports {name}" for name in names]
    assert not wrong, f"{module} must declare a setting instead: {'; '.join(wrong)}"


@pytest.mark.parametrize("module", MODULES)
def test_only_storage_writes_the_table_of_buffers(module):
    if module in ("tinygrad.uop.ops", "tinygrad.execution.buffers"):
        return
    lines = [
        node.lineno
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and any(x.name == "buffers" for x in node.names)
    ]
    assert not lines, f"{module} reaches for the table in lines {lines}: ask execution.buffers"


DECIDING = {"common_layout", "moved_elements", "rule_layouts", "allreduce_bytes"}


@pytest.mark.parametrize("module", [x for x in MODULES if layer(x) >= layer("tinygrad.storage")])
def test_tensor_methods_leave_layout_decisions_to_reshard(module):
    if module.startswith("tinygrad.planner"):
        return  # the planner chooses the layouts of a program
    lines = [
        node.lineno
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ImportFrom) and DECIDING & {x.name for x in node.names}
    ]
    assert not lines, f"{module} decides on a layout in lines {lines}: ask uop.reshard"
