"""From the tensor graph to the per-device graph: layouts become local shapes and messages."""
