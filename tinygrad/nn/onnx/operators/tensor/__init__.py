"""Operators on shapes, indices and control flow."""
