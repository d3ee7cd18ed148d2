"""Random programs over random layouts against themselves on one device.

`python -m test.fuzz_sharding --minutes N [--seed S]` searches; a finding is printed as a program.

A program is text (`program`), drawn step by step (`generate`) from ops of five families
(`elementwise`, `indexing`, `layers`, `movement`, `training`). It is run on one device and on
several (`check`): values and gradients must agree, under the JIT too, and gradients of gradients;
and no step may move what it need not. What does not agree loses whatever it can (`shrink`).
"""
