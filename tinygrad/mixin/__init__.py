"""The methods of `Tensor`: a file and a mixin class for each family.

Input: tensors and Python numbers. Output: tensors whose graph says how to compute them; nothing
runs, except in methods that return Python values. A mixin inherits from the families that it uses,
down to `core.TensorCore`. Four files are helpers without a class of methods: `precision`
(composite functions of narrow floats), `formulas` (float functions of nodes), `index_axes` (roles
of axes in indexing) and `window_geometry` (sizes of pooling and convolution windows).
"""
