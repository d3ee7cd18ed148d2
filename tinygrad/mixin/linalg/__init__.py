"""Linear algebra: matrix products and einsum (`matmul.py`), QR and SVD (`decompositions.py`)."""
