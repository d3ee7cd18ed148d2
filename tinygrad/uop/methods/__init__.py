"""The methods of `UOp`, one family a file. `uop/ops.py` composes them.

properties.py        shape, device and bounds, computed once and cached in the node
expression.py        symbolic numbers: Variables, simplification, exact division
movement.py          movement ops
tensor_graph.py      elementwise ops, reductions, indexing, copies, assignment
kernel_language.py   loops, pointers and stores, for hand-written kernels
"""
