"""Programs as they are in books and tutorials, each written twice: for this library and for torch.

A module is a program. `train(devices, jit)` runs it here, on one device or on several (batches are
sharded, parameters replicated), with its steps captured by `TinyJit` or not; `train_torch()` is the
same program for torch. Both start from the same weights and data (`common.py`) and return the
numbers that the program prints. `test_programs.py` compares them.
"""
