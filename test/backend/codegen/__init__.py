"""From kernel graphs to programs: loop optimizations, renderers and custom kernels."""
