"""`TinyJit`: what is captured, replayed, kept and refused."""
