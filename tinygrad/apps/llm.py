"""Language models of GGUF files: chat on the terminal, or an HTTP server with OpenAI's API.

`python -m tinygrad.apps.llm --help` shows the options. In programs, `Transformer.from_gguf` loads a
model and the metadata of its file, and `SimpleTokenizer.from_gguf_kv` makes its tokenizer.
"""

from __future__ import annotations

from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.cli.main import main
from tinygrad.apps.language.files.catalogue import locate
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.model.rotary import apply_rope, precompute_freqs_cis
from tinygrad.apps.language.model.transformer import Transformer, TransformerBlock
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer

__all__ = [
    "ChatTemplate",
    "Generated",
    "Sampling",
    "SimpleTokenizer",
    "Transformer",
    "TransformerBlock",
    "apply_rope",
    "locate",
    "main",
    "precompute_freqs_cis",
]

if __name__ == "__main__":
    raise SystemExit(main())
