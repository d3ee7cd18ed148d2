"""Checks every intrinsic of the CUDA prelude on the GPU of this machine against the emulator.

    python -m test.hardware

Says so, and succeeds, if there is no GPU. The emulator runs in a process of its own: it takes the
place of the driver.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from test.hardware.intrinsics import checks
from test.hardware.run import differences, run
from tinygrad.device import Device, DeviceError

DEVICE = "CUDA"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.hardware", description=__doc__)
    parser.add_argument("--emulated", metavar="FILE", help="write the emulator's values to a file")
    arguments = parser.parse_args()
    if arguments.emulated:
        write_emulated(Path(arguments.emulated))
        return 0
    try:
        Device[DEVICE]
    except DeviceError as error:
        print(f"nothing to check: {error}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "emulated.npz")
        command = [sys.executable, "-m", "test.hardware", "--emulated", str(path)]
        subprocess.run(command, check=True)
        with np.load(path) as emulated:
            return compare({name: emulated[name] for name in emulated})


def write_emulated(path: Path) -> None:
    """Runs all kernels on the emulator."""
    from test.emulator import emulated_cuda

    emulated_cuda.install(devices=1, checked=True)
    made = checks(Device[DEVICE].target.architecture)
    np.savez(path, **{check.name: run(check, DEVICE) for check in made})


def compare(emulated: dict[str, np.ndarray]) -> int:
    """Prints a line for each kernel. Returns 1 if any differs."""
    failures = 0
    for check in checks(Device[DEVICE].target.architecture):
        wrong = differences(check, run(check, DEVICE), emulated[check.name])
        failures += bool(wrong)
        print(f"{check.name:32} {wrong or 'equal'}")
    print(f"{failures} of {len(emulated)} kernels differ" if failures else "all are equal")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
