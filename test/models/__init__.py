"""Models shared by tests and benchmarks, with sizes as constructor arguments."""
