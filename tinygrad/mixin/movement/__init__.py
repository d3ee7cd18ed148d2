"""Movement of elements; none is computed.

reshape.py          reshape, permute, expand, shrink, pad, flip, repeat
windows.py          split, chunk, unfold, and the windows of pooling and convolution
rearrange.py        named axes, in the notation of einops
symbolic_range.py   checks of symbolic ranges of an axis
"""
