"""Layers and optimizers against their formulas."""
