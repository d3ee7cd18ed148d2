"""Runs a Python program on emulated GPUs: `python -m test.emulator examples/beautiful_mnist.py`.

The default device is then CUDA. `-m` runs a module: `python -m test.emulator -m tinygrad.device`.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from test.emulator import emulated_cuda


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.emulator", description=__doc__)
    parser.add_argument("--devices", type=int, default=8, help="how many GPUs there are (8)")
    parser.add_argument("--mode", choices=emulated_cuda.MODES, default="forwards")
    parser.add_argument("--target", metavar="ARCHITECTURE", help="such as gfx942, gfx1100, apple7")
    parser.add_argument("-m", dest="is_module", action="store_true", help="run a module")
    parser.add_argument("program", help="a script, or with -m the name of a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    options = parser.parse_args()
    emulated_cuda.make_default(options.mode, options.target, devices=options.devices)
    sys.argv = [options.program, *options.arguments]
    if options.is_module:
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(options.program).resolve().parent))
        runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
