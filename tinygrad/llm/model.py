"""The path of the model, as programs for tinygrad 0.13 import it."""

from tinygrad.apps.llm import Transformer, TransformerBlock, apply_rope, precompute_freqs_cis

__all__ = ["Transformer", "TransformerBlock", "apply_rope", "precompute_freqs_cis"]
