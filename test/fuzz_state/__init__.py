"""Differential fuzzing of state: programs of writes, reads and captures, and an eager reference.

`python -m test.fuzz_state --minutes N [--seed S] [--groups ...]` searches, and prints each finding
as a Python snippet.

A program is a list of statements (`program`), drawn one by one (`generate`) in groups: new tensors
(`creation`), views (`views`), writes (`writes`), reads and realizes (`reads`), gradients
(`gradients`), and functions under `TinyJit` (`jit`). The same text runs with the library and with
an eager tensor (`reference`, `tape`), on one device and in random layouts; what the program reads
must be the same (`check`). A finding is minimized (`shrink`). `test.fuzzing` is shared
with `test.fuzz_sharding`.
"""
