"""From the per-device graph to a plan: which values are stored, by which kernels, in what order."""
