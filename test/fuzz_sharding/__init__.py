"""Differential fuzzing of sharding: random programs in random layouts, compared with one device.

`python -m test.fuzz_sharding --minutes N [--seed S]` searches, and prints each finding as a
program.

A program is text (`program`), drawn step by step (`generate`) from ops of five families
(`elementwise`, `indexing`, `layers`, `movement`, `training`). It is run on one device and on
several (`check`): values, gradients and second-order gradients must agree, also under the JIT,
and no step may send unnecessary bytes. Programs on extreme values of every dtype (`numbers`) are
compared with numpy (`reference`). A finding is minimized (`shrink`). `test.fuzzing` is shared with
`test.fuzz_state`.
"""
