"""Decomposition of ops and dtypes that a target lacks into those that it has."""
