"""Propagation: the shape, device and bounds of a node, from those of its sources.

Each file has a rule for every op. `methods/properties.py` applies them once to a node, without
recursion, and caches the result in it.
"""
