"""Generation: continuous batching, sampling, structured output."""
