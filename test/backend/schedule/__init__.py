"""From a graph to kernels: what is fused, what needs none, and how many there are."""
