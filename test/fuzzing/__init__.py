"""What both fuzzers share: layouts of programs, findings, their reduction, and the search.

`test.fuzz_sharding` and `test.fuzz_state` each have programs, a generator, checks, and candidates
of simpler programs of their own.
"""
