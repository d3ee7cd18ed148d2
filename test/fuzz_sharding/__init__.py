"""Random programs over random layouts against themselves on one device.

`python -m test.fuzz_sharding --minutes N [--seed S]` searches; a finding is printed as a program.

A program is text (`program`), drawn step by step (`generate`) from ops of four families
(`elementwise`, `indexing`, `layers`, `movement`). It is run on one device and on several (`check`):
values and gradients must agree, under the JIT too, and no step may move what it need not. What does
not agree loses whatever it can (`shrink`).
"""
