"""Softmaxes between products, as in attention, without their scores in memory.

Before: a nest that is one `Chain`. After: blocks of rows in a grid.

    match.py               finds a chain
    softmax.py                 the softmax in its weights
    blocks.py              computes it in blocks
    bounds.py                  skips blocks that a mask excludes
    online_softmax.py      with a running maximum
"""
