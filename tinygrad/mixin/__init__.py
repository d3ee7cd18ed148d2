"""The methods of `Tensor`, by family: a file and a class each.

In: tensors and Python numbers. Out: tensors whose graph says how to compute them; nothing runs
here. A class inherits from the families that it is written in terms of, down to
`core.TensorCore`.
"""
