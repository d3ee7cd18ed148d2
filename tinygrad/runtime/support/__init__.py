"""What several runtimes share: compilers, the linker, the worker pool and native replay."""
