"""Softmaxes between products, as in attention: their scores are never materialised.

Input: the nodes of a per-device graph. Output: chains of nodes, or a per-device graph.

    chains.py              finds them; kernels recompute their scores in blocks
    score_axes.py              the axes of their scores: rows, keys and batches
    linear_steps.py            the steps by which a value is a multiple of another one
    sharded.py             over a sharded axis: each device uses its own maximum
    gradient.py            the sum in the gradient, from the product after the softmax
    replace_everywhere.py  replaces nodes, also below replacements
"""
