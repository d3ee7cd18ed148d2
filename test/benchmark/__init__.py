"""Benchmarks: `python -m test.benchmark [names]` prints median times next to torch's."""
