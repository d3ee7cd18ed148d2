"""Values in the host's memory.

arrays.py   numbers, lists, bytes, numpy arrays and files become nodes
shards.py   an array that goes to several devices is sharded on the host
values.py   realized values are read back as numpy arrays
dlpack.py   arrays are exchanged with other libraries, without a copy
"""
