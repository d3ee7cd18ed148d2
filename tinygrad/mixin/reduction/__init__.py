"""Reductions over axes (`reduce.py`), and prefix scans along one (`cumulative.py`)."""
