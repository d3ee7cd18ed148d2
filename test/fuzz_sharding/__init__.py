"""Random programs over random layouts against themselves on one device.

`python -m test.fuzz_sharding --minutes N [--seed S]` searches; a finding is printed as a program.
"""
