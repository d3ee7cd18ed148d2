"""Mappings of loop nests to the threads of a GPU: blocks, warps, shared memory, wide accesses."""
