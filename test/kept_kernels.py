"""Every CUDA kernel that tests render, kept as text, and then compiled by NVRTC without a GPU.

    KEPT_KERNELS=folder python -m pytest test/backend --emulated-cuda forwards -p test.kept_kernels
    python -m test.kept_kernels folder            # each for one architecture, in turn
    python -m test.kept_kernels folder --all      # each for all architectures
    python -m test.kept_kernels folder --every 4  # a quarter of them, by their hash

Prints the kernels that spill registers. Exits with 1 if one does not compile, or if one whose
threads work together, as those of products, softmaxes, norms and attention do, spills.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from test import nvrtc
from tinygrad.renderer.cstyle.cuda import CUDARenderer
from tinygrad.uop.ops import UOp

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a")
# instructions of this one alone
HOPPER, HOPPER_NAME = "sm_90a", "wgmma"
TOGETHER = ("__shared__", "warp_shuffle(")
"""What the text of a kernel has whose threads exchange values."""

texts: set[str] = set()
"""The kernels that this process rendered."""


def pytest_configure() -> None:
    """Keeps the text of each kernel."""
    render = CUDARenderer.render

    def keep(self: CUDARenderer, function: str, linear: list[UOp]) -> str:
        text = render(self, function, linear)
        texts.add(text)
        return text

    CUDARenderer.render = keep  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    """Writes each kernel to a file named by its hash, after tests that may write no files."""
    folder = Path(os.environ["KEPT_KERNELS"])
    folder.mkdir(parents=True, exist_ok=True)
    for text in texts:
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()}.cu").write_text(text)


def jobs(folder: Path, is_all: bool = False, every: int = 1) -> Iterator[tuple[str, Path]]:
    """The architectures to compile each kernel for."""
    for number, path in enumerate(sorted(folder.glob("*.cu"))[::every]):
        if HOPPER_NAME in path.read_text():
            yield HOPPER, path
        elif is_all:
            yield from ((x, path) for x in ARCHITECTURES)
        else:
            yield ARCHITECTURES[number % len(ARCHITECTURES)], path


def compile_kernel(job: tuple[str, Path]) -> tuple[bool, str]:
    """Whether a kernel is as it should be, and what to say of it."""
    architecture, path = job
    text = path.read_text()
    try:
        compiled = nvrtc.compile_for(architecture, text)
    except RuntimeError as error:
        return False, f"{path} does not compile for {architecture}: {error}"
    if not compiled.spills:
        return True, ""
    name = text.rsplit("__launch_bounds__", 1)[1].split("(")[1].split()[-1]
    where = f"{path}: {name} stores {compiled.spills} bytes of registers on {architecture}"
    return not any(x in text for x in TOGETHER), where


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.kept_kernels")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true", help="compile for all architectures")
    parser.add_argument("--every", type=int, default=1, help="compile only each N-th kernel")
    arguments = parser.parse_args()
    if reason := nvrtc.why_not():
        print(f"nothing is compiled: {reason}")
        return 0
    made = list(jobs(arguments.folder, arguments.all, arguments.every))
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(compile_kernel, made, chunksize=16))
    for _, message in found:
        if message:
            print(message)
    wrong = sum(not is_right for is_right, _ in found)
    print(f"{len(found)} kernels are compiled; {wrong} fail or spill where threads work together")
    return int(wrong > 0 or not found)


if __name__ == "__main__":
    sys.exit(main())
