"""Decoder-only transformers of GGUF files: tokens to the logits of the next token.

Input: tokens, and the KV cache of each sequence. Output: logits. Invariant: prefill works in chunks
of two sizes and decode adds one token to each sequence, so there are two captured steps for prefill
and one for each batch size of decode, for all positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tinygrad.apps.language.generation.generate import check_step, check_tokens, generate
from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import KVCache
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.model.attention import Attention, StepTokens
from tinygrad.apps.language.model.config import ModelConfig, read_config
from tinygrad.apps.language.model.feed_forward import FeedForward, MixtureOfExperts
from tinygrad.apps.language.model.layouts import Devices, ModelLayout
from tinygrad.apps.language.model.limits import check_context, check_shards, default_context
from tinygrad.apps.language.model.norm import Norm
from tinygrad.apps.language.model.rotary import RotaryEmbedding
from tinygrad.apps.language.model.weights import ROWS, ShardedAxis, WeightFile
from tinygrad.device import is_dtype_supported
from tinygrad.dtype import DType, dtypes
from tinygrad.jit import TinyJit
from tinygrad.settings import LLM_EXACT
from tinygrad.sharding.local_devices import current_local_devices
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

# tokens of a prompt that one step computes, and those of steps while there are enough of them: a
# matrix is read and dequantised once for each
PREFILL_CHUNK = 64
LONG_CHUNK = 4 * PREFILL_CHUNK
# up to this number, decoding one by one is faster than a padded chunk
MAX_SINGLE_STEPS = 16


class TransformerBlock:
    """Attention and a feed-forward network, each with norms and a residual connection."""

    def __init__(
        self, file: WeightFile, config: ModelConfig, number: int, rotary: RotaryEmbedding
    ) -> None:
        name = f"blk.{number}."
        self.rotary = rotary
        self.attention = Attention(file, config, number, rotary)
        is_mixture = f"{name}ffn_gate_inp.weight" in file
        self.feed_forward: MixtureOfExperts | FeedForward
        self.feed_forward = (MixtureOfExperts if is_mixture else FeedForward)(file, config, number)

        def norm(kind: str) -> Norm | None:
            weight = f"{name}{kind}.weight"
            if weight not in file:
                return None
            return Norm(file.vector(weight), config.epsilon, config.dim)

        self.norms = [norm(kind) for kind in ("attn_norm", "post_attention_norm")]
        self.feed_norms = [norm(kind) for kind in ("ffn_norm", "post_ffw_norm")]

    def __call__(self, x: Tensor, step: StepTokens) -> Tensor:
        """Hidden states (rows, length, dim) to the same shape."""
        angles = self.rotary.angles(step.starts, step.length)
        before, after = self.norms
        x = x + _apply_norm(after, self.attention(_apply_norm(before, x), angles, step))
        if isinstance(self.feed_forward, MixtureOfExperts):
            # experts run for small groups of tokens, and all read this value
            x = x.realize()
        before, after = self.feed_norms
        return x + _apply_norm(after, self.feed_forward(_apply_norm(before, x)))


def _apply_norm(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


def _default_cache_dtype(layout: ModelLayout) -> DType:
    """Half precision, unless a device lacks it."""
    local = current_local_devices().names_in(layout.mesh.devices)
    has_half = all(is_dtype_supported(dtypes.float16, name) for name in local)
    return dtypes.float16 if has_half and not LLM_EXACT else dtypes.float32


class Transformer:
    """A decoder-only transformer of one of the supported families.

    `config` has its hyperparameters, `max_context` is the maximum length of a sequence here, and
    `trained_context` the one that the model was trained for.
    """

    def __init__(
        self, file: WeightFile, config: ModelConfig, max_context: int, cache_dtype: DType
    ) -> None:
        self.config, self.max_context, self.cache_dtype = config, max_context, cache_dtype
        self.vocab_size, self.trained_context = config.vocab_size, config.context_length
        self.layout = file.layout
        # keeps the memory mapped that weights are views of
        self.file = file
        rotary, local = self._rotaries(file)
        self.layers = [
            TransformerBlock(file, config, number, local if config.is_local(number) else rotary)
            for number in range(config.layers)
        ]
        vocabulary = ShardedAxis(ROWS)
        self.embedding = file.matrix("token_embd.weight", vocabulary)
        self.norm = Norm(file.vector("output_norm.weight"), config.epsilon, config.dim)
        tied = "output.weight" not in file
        self.output = self.embedding if tied else file.matrix("output.weight", vocabulary)
        self.steps: dict[tuple[int, int], TinyJit[Any, Tensor]] = {}

    @classmethod
    def from_gguf(
        cls,
        gguf: Tensor | str | Path,
        max_context: int | None = None,
        devices: Devices = None,
        cache_dtype: DType | None = None,
        sequences: int = 4,
    ) -> tuple[Transformer, dict[str, Any]]:
        """The model of a GGUF file, and the file's metadata.

        `devices`: one name, several (tensor parallel), or a `Mesh` with a dimension "tp", which
        shards the model, and perhaps "dp", which shards batches. Without `max_context`, it is that
        of the model, or what half of the memory has room for in as many `sequences`. `cache_dtype`
        is that of the KV cache, by default float16, or float32 with LLM_EXACT; below float32,
        logits differ from the third digit on. Raises UnsupportedModelError for an unknown
        architecture, FileFormatError for a file that is not valid, MemoryError for a `max_context`
        too large, ShardingError for more devices than the model can be sharded over.
        """
        file = WeightFile(gguf, ModelLayout(devices))
        config = read_config(file.metadata, file.shape("token_embd.weight")[0])
        cache_dtype = cache_dtype or _default_cache_dtype(file.layout)
        if max_context is None:
            max_context = default_context(config, file.layout, cache_dtype, sequences)
        if max_context < 1:
            raise ValueError(f"max_context is {max_context}; it must be 1 or more")
        check_shards(config, file)
        check_context(config, file.layout, max_context, cache_dtype)
        return cls(file, config, max_context, cache_dtype), file.metadata

    def _rotaries(self, file: WeightFile) -> tuple[RotaryEmbedding, RotaryEmbedding]:
        """The rotary embeddings of layers with full and with sliding-window attention."""
        config, device = self.config, file.layout.replicated
        is_long = self.max_context > config.original_context
        for name in ("rope_freqs", "rope_factors_long" if is_long else "rope_factors_short"):
            if f"{name}.weight" in file:
                factors = file.vector(f"{name}.weight")
                break
        else:
            factors = None
        positions = self.max_context + PREFILL_CHUNK
        rotary = RotaryEmbedding(config.rope, positions, device, factors)
        if config.window is None or config.local_rope == config.rope:
            return rotary, rotary
        return rotary, RotaryEmbedding(config.local_rope, positions, device)

    # ---- logits of whole sequences ----

    def __call__(self, tokens: Tensor) -> Tensor:
        """The logits (batch, length, vocab) at all positions of tokens (batch, length).

        Uses no KV cache. Over a mesh, the batch is sharded along "dp".
        """
        rows, length = (int(size) for size in tokens.shape)
        return self._logits(self._hidden(tokens, StepTokens(length, [0] * rows)))

    def _hidden(self, tokens: Tensor, step: StepTokens) -> Tensor:
        """The hidden states (rows, length, dim) after all layers."""
        x = self.embedding[tokens.to(self.layout.replicated)].values() * self.config.embedding_scale
        if not step.memories:
            x = x.to(self.layout.batch(len(step.starts)))
        x = x.realize()
        for layer in self.layers:
            # equal layers share one plan if each is realized by itself
            x = layer(x, step).realize()
        return x

    def _logits(self, x: Tensor) -> Tensor:
        logits = self.output(self.norm(x))
        cap = self.config.logit_cap
        return logits if cap is None else (logits / cap).tanh() * cap

    # ---- prefill and decode ----

    def new_cache(self) -> KVCache:
        """An empty KV cache for one sequence of up to `max_context` tokens."""
        config, layout = self.config, self.layout
        heads = layout.padded(config.kv_heads)
        shape = (config.layers, 2, heads, self.max_context + PREFILL_CHUNK, config.head_dim)
        memory = Tensor.empty(*shape, device=layout.sharded(2, heads), dtype=self.cache_dtype)
        return KVCache(memory, self.max_context)

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """Make `cache` hold these tokens; returns the logits (vocab,) after the last of them.

        The longest common prefix with the sequence in the cache is not computed again. The logits
        are overwritten by the next step of batch size 1. Raises ValueError for no or unknown
        tokens, ContextOverflowError for too many.
        """
        tokens = check_tokens(tokens, self.vocab_size)
        cache.check_fits(len(tokens))
        # the last token is always computed, for its logits
        at = cache.keep_prefix(tokens[:-1])
        while len(tokens) - at > MAX_SINGLE_STEPS:
            chunk = LONG_CHUNK if len(tokens) - at >= LONG_CHUNK else PREFILL_CHUNK
            part = tokens[at : at + chunk]
            logits = self._step([part], [cache], chunk)
            at += len(part)
        for token in tokens[at:]:
            logits = self._step([[token]], [cache], 1)
        return logits[0]

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Tensor:
        """Add one token to each sequence; returns the logits (batch, vocab) after them.

        They are overwritten by the next step of the same batch size. Raises ValueError for unknown
        tokens or a number that differs from that of the caches, ContextOverflowError if a cache is
        full; no cache is changed then.
        """
        tokens = check_step(tokens, caches, self.vocab_size)
        return self._step([[token] for token in tokens], caches, 1)

    def _step(self, parts: Sequence[list[int]], caches: Sequence[KVCache], length: int) -> Tensor:
        """Add up to `length` tokens to each cache; returns the logits (rows, vocab) after them."""
        key = (len(parts), length)
        if key not in self.steps:
            step = self.steps[key] = TinyJit(self._forward)
            # the first call has no state to initialise, so it can be captured
            step.cnt = 1
        padded = [part + [0] * (length - len(part)) for part in parts]
        starts = [
            self._variable(f"start{row}", self.max_context - 1, len(cache.tokens))
            for row, cache in enumerate(caches)
        ]
        last: int | UOp = 0
        if length > 1:
            last = self._variable("last", length - 1, len(parts[0]) - 1)
        memories = [cache.memory for cache in caches]
        logits = self.steps[key](Tensor(padded), starts, memories, last)
        for part, cache in zip(parts, caches, strict=True):
            cache.tokens.extend(part)
        return logits

    def _variable(self, name: str, max_value: int, value: int) -> UOp:
        return UOp.variable(name, 0, max_value).bind(value)

    def _forward(
        self, tokens: Tensor, starts: list[UOp], memories: list[Tensor], last: int | UOp
    ) -> Tensor:
        """The logits (rows, vocab) after token `last` of each row, on the first device."""
        step = StepTokens(int(tokens.shape[1]), starts, memories)
        x = self._hidden(tokens, step)
        logits = self._logits(x[:, last : last + 1]).squeeze(1)
        return logits.to(self.layout.first).realize()

    def generate(
        self,
        tokens: Sequence[int],
        sampling: Sampling | None = None,
        cache: KVCache | None = None,
        grammar: Grammar | None = None,
    ) -> Iterator[Generated]:
        """The tokens that follow `tokens`, see `generate.generate`."""
        return generate(self, tokens, sampling, cache, grammar)
