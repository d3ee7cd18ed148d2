"""Language models of GGUF files: tokenizer, transformer, generation, chat and server."""
