"""GPUs: their kernels and runtimes, most of them without a GPU."""
