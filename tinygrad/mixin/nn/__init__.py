"""Functions of neural networks, without parameters of their own; `tinygrad.nn` has the layers.

activation.py        activations
attention.py         scaled dot-product attention
conv.py              convolutions; winograd.py computes those of 3x3 kernels with fewer products
pool.py              average and max pooling
window_geometry.py       sizes of the windows of both
interpolation.py     images and signals resampled to other sizes
normalization.py     layer and batch normalization
losses.py            cross entropies and other losses
"""
