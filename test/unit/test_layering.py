"""Layering: imports point down only and form no cycles, and one file alone reads the environment.

Modules are parsed, not imported. Imports inside functions and under TYPE_CHECKING count; the
implicit import of a parent package does not.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tinygrad"

# from the bottom up; a module may import from its own layer and those below
LAYERS = (
    {
        "settings",
        "caches",
        "errors",
        "memory_limit",
        "atomic_file",
        "diskcache",
        "fast_enum",
        "fetch",
        "garbage",
        "interrupt",
        "measure",
        "progress",
        "text",
        "helpers",
        "dtype",
        "sharding",
    },
    {"uop"},
    {"renderer.matrix_instruction"},
    {"renderer.tensor_map"},
    {"renderer.target"},
    {"device"},
    {"renderer", "runtime"},
    {"schedule", "codegen", "gradient"},
    {"execution"},
    {"ranks"},
    {"storage"},
    {"tensor", "mixin"},
    {"jit"},
    {"engine", "nn", "apps", "llm", "planner", "function"},
    {"", "__main__", "device.__main__"},  # `tinygrad` itself re-exports the public names
)

# inside `schedule`, from the bottom up: lowering and the rewrites of communication come before
# grouping, and do not depend on it
SCHEDULE_LAYERS = (
    {"execution_plan", "canonical", "movement_chains", "storage_views"},
    {"comm"},
    {"spmd"},
    {"multi"},
    {"kernel"},
    {"grouping"},
    {"pipeline", ""},
)

# the registry alone imports by a computed name: the module of this package named after a device
REGISTRY = ("tinygrad.device.registry", "tinygrad.runtime")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
PACKAGES = {module_name(path) for path in SOURCE.rglob("__init__.py")}


@functools.cache
def nodes_of(module: str) -> list[ast.AST]:
    """The nodes of the syntax tree of a module."""
    return list(ast.walk(ast.parse(MODULES[module].read_text())))


@functools.cache
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


@functools.cache
def imports_of(module: str) -> list[tuple[str, int]]:
    """The modules of this package that `module` imports, each with the line."""
    found = []
    for node in nodes_of(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = from_names(module, node)
        else:
            continue
        found += [(name, node.lineno) for name in names if name in MODULES]
    return found


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


def wrong_imports(is_wrong: Callable[[str, str], bool]) -> str:
    """The imports (module, imported) for which `is_wrong` holds, one on each line."""
    return "\n".join(
        f"{module}, line {line}, imports {name}"
        for module in MODULES
        for name, line in imports_of(module)
        if is_wrong(module, name)
    )


def test_modules_import_nothing_from_above():
    wrong = wrong_imports(lambda module, name: layer(name) > layer(module))
    assert not wrong, wrong


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


def test_stages_of_scheduling_import_no_later_ones():
    def is_later(module: str, name: str) -> bool:
        own, other = schedule_layer(module), schedule_layer(name)
        return own is not None and other is not None and other > own

    wrong = wrong_imports(is_later)
    assert not wrong, wrong


def codegen_stage(module: str) -> str:
    """The folder of a module of `codegen`, "" for any other module."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["tinygrad", "codegen"] and len(parts) > 2 else ""


def test_stages_of_code_generation_share_analyses_alone():
    def is_other_stage(module: str, name: str) -> bool:
        own = codegen_stage(module)
        return bool(own) and codegen_stage(name) not in ("", "analysis", own)

    wrong = wrong_imports(is_other_stage)
    assert not wrong, wrong


def test_no_modules_import_each_other_in_a_circle():
    graph = {
        module: {name for name, _ in imports_of(module) if name != module} for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def wrong_nodes(is_wrong: Callable[[ast.AST], bool], modules: Iterable[str]) -> str:
    """The nodes of the modules' syntax trees for which `is_wrong` holds, one on each line."""
    return "\n".join(
        f"{module}, line {getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for module in modules
        for node in nodes_of(module)
        if is_wrong(node)
    )


def is_dynamic_import(node: ast.AST) -> bool:
    """If a node calls `import_module` or `__import__`, except by the name of another package."""
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func).rpartition(".")[2] not in ("import_module", "__import__"):
        return False
    name = node.args[0]
    is_other = isinstance(name, ast.Constant) and str(name.value).partition(".")[0] != "tinygrad"
    return not is_other


def test_only_the_device_registry_imports_by_computed_name():
    registry, package = REGISTRY
    wrong = wrong_nodes(is_dynamic_import, MODULES.keys() - {registry})
    assert not wrong, wrong
    for call in filter(is_dynamic_import, nodes_of(registry)):
        assert f"{package}." in ast.unparse(call)


ENVIRONMENT = ("os.environ", "os.environb", "os.getenv", "os.putenv", "os.unsetenv")


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and node.module == "os":
        return any(f"os.{alias.name}" in ENVIRONMENT for alias in node.names)
    return isinstance(node, ast.Attribute) and ast.unparse(node) in ENVIRONMENT


def test_only_settings_reads_the_environment():
    wrong = wrong_nodes(reads_environment, MODULES.keys() - {"tinygrad.settings"})
    assert not wrong, f"declare a setting instead:\n{wrong}"


def imports_any(names: set[str]) -> Callable[[ast.AST], bool]:
    """If a node is `from module import name` with one of these names."""
    return lambda node: (
        isinstance(node, ast.ImportFrom) and not names.isdisjoint(x.name for x in node.names)
    )


def test_only_storage_writes_the_table_of_buffers():
    own = {"tinygrad.uop.ops", "tinygrad.execution.buffers"}
    wrong = wrong_nodes(imports_any({"buffers"}), MODULES.keys() - own)
    assert not wrong, f"ask execution.buffers:\n{wrong}"


DECIDING = {"common_layout", "moved_elements", "rule_layouts", "allreduce_bytes"}


def test_tensor_methods_leave_layout_decisions_to_reshard():
    modules = [
        module
        for module in MODULES
        # the planner chooses the layouts of a program
        if layer(module) >= layer("tinygrad.storage") and not module.startswith("tinygrad.planner")
    ]
    wrong = wrong_nodes(imports_any(DECIDING), modules)
    assert not wrong, f"ask uop.reshard:\n{wrong}"
