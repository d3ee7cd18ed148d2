"""Reductions and prefix scans over axes."""
