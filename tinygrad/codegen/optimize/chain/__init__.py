"""Chains: softmaxes between products, as in attention. Finds them, and what they need to compute.

In: a nest of loops. Out: its `Chain`; no graph is changed.

    match.py               finds a chain
    softmax.py             the softmax in its weights
    bounds.py              the keys that a block of rows needs, where a mask excludes others
"""
