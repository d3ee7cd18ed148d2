"""Prompts to new tokens: KV cache, sampling, grammars, and continuous batching."""
