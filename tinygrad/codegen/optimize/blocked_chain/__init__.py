"""Softmaxes between products in blocks, with the scores of one block in scratch memory.

Before: a nest that is one `Chain`. After: blocks of rows in a grid.

    blocks.py              computes a chain in blocks
    online_softmax.py      with a running maximum; entry point
"""
