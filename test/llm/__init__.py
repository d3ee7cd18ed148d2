"""Language models and their server: tokenizers, values, sampling, requests, and attacks."""
