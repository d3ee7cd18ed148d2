"""AMD GPUs: the HIP runtime, and the compiler of HIP C++."""
