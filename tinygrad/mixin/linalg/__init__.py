"""Linear algebra: matrix products and decompositions."""
