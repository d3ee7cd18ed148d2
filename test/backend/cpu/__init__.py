"""The CPU runtime: linker, worker pool and native code."""
