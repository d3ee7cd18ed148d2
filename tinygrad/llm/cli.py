"""The path of the command line and the tokenizer, as programs for tinygrad 0.13 import them."""

from tinygrad.apps.llm import SimpleTokenizer, main

__all__ = ["SimpleTokenizer", "main"]
