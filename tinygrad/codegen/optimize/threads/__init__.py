"""Mappings of loop nests to the threads of a GPU: blocks, warps, shared memory, wide accesses.

mapping.py             distributes loops over the threads of a block
elementwise.py         outputs of a thread's own
wide_access.py             the loop along which one access moves several elements
reduction.py           rows that a group of threads shares
transpose.py           transposes through shared memory
search.py              the mappings of a kernel, for a search
product/               matrix products
chain/                 softmaxes between products
"""
