"""Models that tests and benchmarks share; each is its constructor's sizes and a call."""
