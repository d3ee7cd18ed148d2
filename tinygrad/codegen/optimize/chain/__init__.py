"""Chains: reductions of expressions that contain products, such as attention. This package matches
them, and bounds the keys that a mask leaves.

In: a nest of loops. Out: its `Chain`; no graph is changed.

    match.py               matches a chain, and defines its parts
    softmax.py             matches the softmax in its weights
    bounds.py              the range of keys that a mask leaves to a block of rows
"""
