"""Code generation without a device: tiles, decompositions, lane maps."""
