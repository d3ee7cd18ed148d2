"""Tests; a package so that they can share modules. They mirror the source:

    unit/               no device: graphs, layouts, rules, formats, documentation
    backend/            values, kernels and memory on the default device
    sharding/           several devices: values, gradients and bytes
    ranks/              several processes
    llm/                language models and their server
    golden/             the text of rendered kernels
    test_multitensor.py the public contract of sharded tensors
    tutorials/          programs of books and tutorials, also in torch

Programs to run by hand, `python -m test.NAME`:

    benchmark           measures kernels, steps and models, next to other libraries
    fuzz_sharding       compares random programs in random layouts with one device
    fuzz_state          compares random programs of writes and captures with an eager reference
    emulator            runs a program on emulated GPUs
    hardware            compares intrinsics on a real GPU with the emulator
    kept_kernels        compiles the kernels that a run of tests kept

What these share: `evaluator/` evaluates each form of the graph with numpy, `fuzzing/` draws and
shrinks programs, `models/` are models of several sizes.

Code generation runs in each process that tests, so that it is what they test: the disk cache keeps
machine code alone.
"""

import os

# read when the library is imported; processes that tests start inherit it
os.environ.setdefault("CACHELEVEL", "1")
