"""Loop optimizations: normalization, tiling, vectorization, staging, and the grid."""
