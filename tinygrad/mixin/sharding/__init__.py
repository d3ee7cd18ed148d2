"""Placement of tensors on devices, and their shards."""
