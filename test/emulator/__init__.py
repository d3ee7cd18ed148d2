"""GPUs without a GPU: kernels and the CUDA driver on the CPU. See README.md."""
