"""Training: parallelism, memory, checkpoints, choice of layouts."""
