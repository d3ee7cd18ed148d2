"""Text to token ids and back, by the vocabulary of a GGUF file."""
