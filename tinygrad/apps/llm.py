"""Language models: talk with one on the terminal, or serve it to others.

`python -m tinygrad.apps.llm --help` says how. For programs, `Transformer.from_gguf` gives a model
and the metadata of its file, `SimpleTokenizer.from_gguf_kv` the tokenizer that goes with it.
"""

from __future__ import annotations

from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.cli.main import main
from tinygrad.apps.language.files.catalogue import locate
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.model.transformer import Transformer
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

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
