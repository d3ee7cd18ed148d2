"""Lowering, plans of chosen devices, and captured functions."""
