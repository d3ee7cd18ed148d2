"""Analyses of kernel graphs that all passes share: free ranges, affine indices, estimates."""
