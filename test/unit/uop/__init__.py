"""The graph: nodes, patterns, simplification, bounds, forms."""
