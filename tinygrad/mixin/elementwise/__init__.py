"""Elementwise functions: of one tensor and of two, comparisons, casts.

arithmetic.py   two tensors: sums, products, powers, bitwise operations
comparison.py   comparisons, `where`, minimum, maximum, clamp
unary.py        one tensor: roots, exponentials, trigonometry, rounding
casting.py      casts to other dtypes, bitcasts
operators.py    Python operators, each by the method of its name
division.py     quotients of nodes, and the gradient of remainders
powers.py       powers of nodes
formulas.py     formulas on float nodes with a gradient of their own
"""
