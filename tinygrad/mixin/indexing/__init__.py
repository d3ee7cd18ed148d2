"""Indexing by slices and tensors, gather, scatter and sorting."""
