"""Every CUDA and HIP kernel that tests render, kept as text, and then compiled without a GPU.

    KEPT_KERNELS=folder python -m pytest test/backend --emulated-cuda forwards -p test.kept_kernels
    python -m test.kept_kernels folder            # each CUDA kernel for one architecture, in turn
    python -m test.kept_kernels folder --all      # each CUDA kernel for all architectures
    python -m test.kept_kernels folder --every 4  # a quarter of them, by their hash

With `--emulated-target gfx942` or `gfx1100`, the tests render HIP, which clang compiles for that
architecture. Prints the kernels that spill registers. Exits with 1 if one does not compile, or if
one whose threads work together, as those of products, softmaxes, norms and attention do, spills.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from test import nvrtc
from tinygrad.device import CompileError, DeviceError
from tinygrad.renderer.cstyle.cuda import CUDARenderer
from tinygrad.renderer.cstyle.gpu import GPURenderer
from tinygrad.renderer.cstyle.hip import HIPRenderer
from tinygrad.runtime.support.hip.compiler import find_hip_compiler
from tinygrad.uop.ops import UOp

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")
# instructions of this one alone
HOPPER, HOPPER_NAME = "sm_90a", "wgmma"
TOGETHER = ("__shared__", "warp_shuffle(")
"""What the text of a kernel has whose threads exchange values."""
HIP_SPILLS = re.compile(r"^\s+\.vgpr_spill_count: +(\d+)$", re.MULTILINE)

texts: dict[str, str] = {}
"""The kernels that this process rendered, with the ends of their file names."""


def pytest_configure() -> None:
    """Keeps the text of each kernel."""
    _keep_texts(CUDARenderer)
    _keep_texts(HIPRenderer)


def _keep_texts(renderer: type[GPURenderer]) -> None:
    render = renderer.render

    def keep(self: GPURenderer, function: str, linear: list[UOp]) -> str:
        text = render(self, function, linear)
        is_hip = isinstance(self, HIPRenderer)
        texts[text] = f".{self.target.architecture}.hip" if is_hip else ".cu"
        return text

    renderer.render = keep  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    """Writes each kernel to a file named by its hash, after tests that may write no files."""
    folder = Path(os.environ["KEPT_KERNELS"])
    folder.mkdir(parents=True, exist_ok=True)
    for text, end in texts.items():
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()}{end}").write_text(text)


def jobs(folder: Path, is_all: bool = False, every: int = 1) -> Iterator[tuple[str, Path]]:
    """The architectures to compile each kernel for."""
    for number, path in enumerate(sorted(folder.glob("*.cu"))[::every]):
        if HOPPER_NAME in path.read_text():
            yield HOPPER, path
        elif is_all:
            yield from ((x, path) for x in ARCHITECTURES)
        else:
            yield ARCHITECTURES[number % len(ARCHITECTURES)], path
    for path in sorted(folder.glob("*.hip"))[::every]:
        yield path.name.split(".")[1], path


def why_not(folder: Path) -> str:
    """Why kernels of a folder cannot be compiled here; empty if they can."""
    if any(folder.glob("*.hip")):
        try:
            find_hip_compiler()
        except DeviceError as error:
            return str(error)
    return nvrtc.why_not() if any(folder.glob("*.cu")) else ""


def compile_kernel(job: tuple[str, Path]) -> tuple[bool, str]:
    """Whether a kernel is as it should be, and what to say of it."""
    architecture, path = job
    text = path.read_text()
    try:
        if path.suffix == ".hip":
            (spills,) = HIP_SPILLS.findall(find_hip_compiler().assembly(text, architecture))
        else:
            compiled = nvrtc.compile_for(architecture, text)
            if nvrtc.MOVES_NO_REGISTERS in compiled.messages:
                return False, f"{path} moves no registers between roles of its threads"
            spills = compiled.spills
    except (RuntimeError, CompileError) as error:
        return False, f"{path} does not compile for {architecture}: {error}"
    if not int(spills):
        return True, ""
    name = text.rsplit("__launch_bounds__", 1)[1].split("(")[1].split()[-1]
    what = "registers" if path.suffix == ".hip" else "bytes of registers"
    where = f"{path}: {name} stores {spills} {what} on {architecture}"
    return not any(x in text for x in TOGETHER), where


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.kept_kernels")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="compile for all CUDA architectures")
    parser.add_argument("--every", type=int, default=1, help="compile only each N-th kernel")
    arguments = parser.parse_args()
    if reason := why_not(arguments.folder):
        print(f"nothing is compiled: {reason}")
        return 0
    made = list(jobs(arguments.folder, arguments.all, arguments.every))
    wrong = 0
    with ProcessPoolExecutor() as pool:
        for is_right, message in pool.map(compile_kernel, made, chunksize=16):
            wrong += not is_right
            if message:
                print(message, flush=True)
    print(f"{len(made)} kernels are compiled; {wrong} fail or spill where threads work together")
    return int(wrong > 0 or not made)


if __name__ == "__main__":
    sys.exit(main())
