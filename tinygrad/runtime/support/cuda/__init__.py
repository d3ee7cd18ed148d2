"""NVIDIA GPUs: the driver, memory, kernels and graphs, links between GPUs, NVRTC and NCCL."""
