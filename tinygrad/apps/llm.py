"""Language models: talk with one on the terminal, or serve it to others.

`python -m tinygrad.apps.llm --help` says how. For programs, `Transformer.from_gguf` gives a model
and the metadata of its file, `SimpleTokenizer.from_gguf_kv` the tokenizer that goes with it.
"""

from __future__ import annotations

from tinygrad.apps.language.catalogue import locate
from tinygrad.apps.language.chat import ChatTemplate
from tinygrad.apps.language.cli import main
from tinygrad.apps.language.sampling import Generated, Sampling
from tinygrad.apps.language.tokenizer import SimpleTokenizer
from tinygrad.apps.language.transformer import Transformer

__all__ = [
    "ChatTemplate",
    "Generated",
    "Sampling",
    "SimpleTokenizer",
    "Transformer",
    "locate",
    "main",
]

if __name__ == "__main__":
    raise SystemExit(main())
