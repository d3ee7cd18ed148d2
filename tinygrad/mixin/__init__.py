"""The methods of `Tensor`: a folder for each group, a file and a mixin class for each family.

Input: tensors and Python numbers. Output: tensors whose graph says how to compute them; nothing
runs, except in methods that return Python values. A mixin inherits from the families that it uses,
down to `core.TensorCore`. Some files have functions instead of a class: `precision` (composite
functions of narrow floats), `elementwise.division`, `elementwise.powers` and `elementwise.formulas`
(functions of nodes), `indexing.index_view` and `indexing.index_axes` (parsed indices, and the roles
of their axes), `movement.symbolic_range` (slices of symbolic size) and `nn.window_geometry` (sizes
of pooling and convolution windows).
"""
