"""Shared by runtimes: compilers, the JIT linker, the worker pool and native replay."""
