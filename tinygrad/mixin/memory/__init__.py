"""Memory of tensors, and their values outside of the graph.

storage.py       realized, contiguous, cloned, replaced, assigned
conversion.py    to numpy and Python values
interchange.py   exchanged with other libraries without a copy: DLPack, the array protocol
"""
