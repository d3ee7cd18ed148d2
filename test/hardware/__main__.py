"""Checks and measures the GPU of this machine, and keeps what it finds, whatever crashes or hangs.

    python -m test.hardware                                    # the intrinsics of the CUDA prelude
    python -m test.hardware all --budget 9m --out results      # all parts, in order of worth
    python -m test.hardware tests tiles --budget 9m --out results

Says so, and succeeds, if there is no GPU. Each part runs in processes of its own, with limits of
time of its own; after each, `summary.md` is written again. The emulator, which the intrinsics are
compared with, needs a C++ compiler; `--write-emulated` keeps its values for a machine without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from test.benchmark.__main__ import duration
from test.hardware.intrinsics import checks
from test.hardware.journal import results
from test.hardware.parts import PARTS, TEST_S, Session, process_count, run_parts
from test.hardware.run import run
from test.hardware.summary import write_summary
from test.hardware.worker import DEVICE, FEW
from tinygrad.device import Device, DeviceError

ALL = "all"
BUDGET_S = 540.0
ARCHITECTURE = "sm_90a"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m test.hardware",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help=f"{ALL}, or some of {', '.join(PARTS)}")
    parser.add_argument("--budget", type=duration, default=BUDGET_S, metavar="TIME", help="as 9m")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the results are kept")
    parser.add_argument("--processes", type=int, default=process_count(), help="that run tests")
    parser.add_argument("--tests", nargs="*", default=[], metavar="FILE", help="run these tests")
    parser.add_argument("--test-limit", type=duration, default=TEST_S, metavar="TIME")
    parser.add_argument("--small", action="store_true", help="small sizes: whether the parts run")
    parser.add_argument("--emulated", type=Path, metavar="FILE", help="the emulator's values")
    parser.add_argument("--write-emulated", type=Path, metavar="FILE", help="write them, and stop")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - {ALL, *PARTS}:
        parser.error(f"no part is named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return arguments


def main() -> int:
    arguments = parse()
    if arguments.write_emulated:
        write_emulated(arguments.write_emulated, arguments.small)
        return 0
    try:
        # without opening it: the processes of the parts do
        Device.count(DEVICE)
    except DeviceError as error:
        print(f"nothing to check: {error}")
        return 0
    names = list(PARTS) if ALL in arguments.parts else arguments.parts or ["intrinsics"]
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            arguments.out or Path(folder),
            processes=arguments.processes,
            is_small=arguments.small,
            tests=arguments.tests,
            emulated=arguments.emulated,
            test_s=arguments.test_limit,
        )
        run_parts(session, names, arguments.budget, lambda x: write_summary(x.out, names))
        print((session.out / "summary.md").read_text())
        found = [*results(session.journal), *results(session.test_journal)]
    failures = sum("failed" in line for line in found)
    print(f"{failures} of {len(found)} failed" if failures else f"all {len(found)} are right")
    return int(failures > 0)


def write_emulated(path: Path, is_small: bool) -> None:
    """Writes what the emulator computes for each intrinsic, or with `is_small` for a few."""
    from test.emulator import emulated_cuda

    emulated_cuda.install(devices=1, checked=True)
    made = checks(ARCHITECTURE)[: FEW if is_small else None]
    np.savez_compressed(path, **{x.name: run(x, DEVICE) for x in made})


if __name__ == "__main__":
    sys.exit(main())
