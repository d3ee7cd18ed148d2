"""Lowering of optimized loops: vectors, accumulators, and the order of the program.

vector_ranges.py       VECTOR ranges become vector dtypes
reductions.py          REDUCE becomes accumulators in registers
scalar_lanes.py        vectors are written lane by lane, for GPUs
wide_masks.py          masked loads that are wider than a vector register are divided
async_copies.py        copies to shared memory become asynchronous, for GPUs that can
narrow_index.py        indices become 32-bit integers, for GPUs
linearize.py           nodes get the order in which they run
barriers.py            barriers are placed between accesses to shared memory
roles.py               roles of the threads of a block follow each other
"""
