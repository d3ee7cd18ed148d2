"""The C sources of the CPU runtime: the shipped IR is up to date, and the pool has no races."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import llvmlite.binding
import pytest

from test.devices import only_cpu
from tinygrad.runtime.support import native
from tinygrad.runtime.support.native import build

MODULE_OF_EACH_PLATFORM = [
    (module, platform) for platform in build.TARGETS for module in build.MODULES
]
pytestmark = only_cpu
SANITIZE = ("-std=gnu11", "-O1", "-g", "-fsanitize=thread")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None,
    reason="the package ziglang, a part of the extra `dev`, is not installed",
)
@pytest.mark.parametrize(("module", "platform"), MODULE_OF_EACH_PLATFORM)
def test_shipped_ir_equals_the_compiled_sources(module: str, platform: str):
    shipped = (native.FOLDER / platform / f"{module}.ll").read_text()
    version = build.clang_version()
    if f"with clang {version}\n" not in shipped:
        pytest.skip(f"it was compiled by another clang than the installed {version}")
    assert build.compile_module(module, platform) == shipped


def assemble(module: str, platform: str) -> str:
    """Machine code of a shipped module, as text, for the oldest CPU of its platform."""
    machine, system = platform.split("-")
    triple = f"{machine}-{'unknown-linux-gnu' if system == 'linux' else 'apple-macosx'}"
    # an LLVM built for one CPU supports no other
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    try:
        target = llvmlite.binding.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"this LLVM has no code generator for {machine}")
    code_generator = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    source = (native.FOLDER / platform / f"{module}.ll").read_text()
    parsed = llvmlite.binding.parse_assembly(source, llvmlite.binding.create_context())
    parsed.triple = triple
    parsed.data_layout = str(code_generator.target_data)
    parsed.verify()
    return str(code_generator.emit_assembly(parsed))


@pytest.mark.parametrize("platform", build.TARGETS)
def test_the_runtime_of_each_platform_compiles(platform: str):
    assembly = assemble("runtime", platform)
    for name in ("pool_launch", "pool_reset", "pool_stop", "replay_run", "copy_kernel"):
        assert f"{name}:" in assembly


@pytest.mark.parametrize("platform", build.TARGETS)
def test_conversions_of_half_do_not_call_themselves(platform: str):
    assembly = assemble("half", platform)
    for name in ("__truncsfhf2", "__truncdfhf2", "__extendhfsf2"):
        lines = [line.split() for line in assembly.splitlines() if name in line]
        assert lines
        assert not any(words[0] in ("call", "callq", "jmp", "bl", "b") for words in lines)


def _succeeds(command: Sequence[str | Path], folder: Path) -> bool:
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True)
    return done.returncode == 0


@pytest.fixture(scope="module")
def sanitizing_compiler(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A C compiler whose programs can run under thread sanitizer."""
    folder = tmp_path_factory.mktemp("sanitizer")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    for compiler in filter(None, map(shutil.which, ("clang", "gcc", "cc"))):
        commands = ([compiler, *SANITIZE, "empty.c", "-o", "empty"], [folder / "empty"])
        # a program that links may still fail to start, depending on the system's memory layout
        if all(_succeeds(command, folder) for command in commands):
            return compiler
    pytest.skip("there is no C compiler with thread sanitizer")


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["", "-DUSE_CONDITION_VARIABLE"])
def test_the_pool_has_no_data_races(sanitizing_compiler: str, flag: str, tmp_path: Path):
    program = tmp_path / "pool_stress"
    source = Path(__file__).parent / "pool_stress.c"
    # -Wno-tsan, -Wno-psabi: the fence and the vectors of the copy kernel, which it does not run
    flags = [*SANITIZE, "-Wno-tsan", "-Wno-psabi", f"-I{native.FOLDER}", *flag.split()]
    command = [sanitizing_compiler, *flags, str(source), "-o", str(program), "-pthread"]
    subprocess.run(command, check=True)
    options = {"TSAN_OPTIONS": "halt_on_error=1 exitcode=66"}
    done = subprocess.run(
        [program],
        env={**os.environ, **options},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
