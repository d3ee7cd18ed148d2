"""Shared by runtimes: compilers, memory, the worker pool and replay. `cuda/` and `hip/` are GPUs.

worker_pool.py         the threads of all CPU devices
replay.py              recorded kernels and copies as one native call
native/                the C code of both
llvm.py                compiles LLVM IR, and links object files into this process
compile_workers.py     processes that compile kernels
c_compiler.py          the system's C compiler
address_space.py       checks for free address space, since LLVM aborts without
host_memory.py         host memory as device memory
hazards.py             which launches must wait for which
"""
