"""Tensor ops against numpy and torch: values, dtypes and gradients of every family."""
