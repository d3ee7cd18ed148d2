"""Differential fuzzing of state: programs of writes, reads and captures, and an eager reference.

`python -m test.fuzz_state --minutes N [--seed S] [--groups ...]` searches, and prints each finding
as a Python snippet.

A program is a list of statements (`program`), drawn one by one (`generate`) in groups:

- `creation`, `values`: new tensors, values of others, and equal values, by one or several ops;
- `views`, `writes`, `reads`: views; writes of all kinds, through views too; reads and realizes;
- `gradients`: leaves, `backward`, and updates of leaves;
- `jit`: functions under `TinyJit` that share what they read and write, their arguments and results;
- `exports`: arrays in the memory of tensors, and tensors in that of arrays;
- `interrupts`: Ctrl-C before or after any item of a realize;
- `threads`: calls and realizes by two threads at the same time;
- `nodes`: the nodes of stored values, kept while these are written (only if named by `--groups`).

The same text runs with the library, which `harness` adds to, and with an eager tensor
(`reference`, `tape`), on one device and in random layouts; what the program reads must be the same
(`check`). With `--versions`, no content of a version of memory may change (`versions`); with
`--policy-off`, values must not depend on the search for readers; with `--strict`, errors are
findings. A finding is minimized (`shrink`). `mutants` breaks the library, and the search must
notice. `test.fuzzing` is shared with `test.fuzz_sharding`.
"""
