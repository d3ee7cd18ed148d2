"""Running plans: order, failures, threads, and the memory that a process keeps."""
