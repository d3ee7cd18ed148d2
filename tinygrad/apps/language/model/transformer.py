"""Language models of GGUF files: tokens to the logits of the next one.

In: tokens, and the cache of each sequence. Out: logits. Always true: a prompt is read in chunks of
one size and tokens are then added one by one, so that there is one captured step for prompts and
one for each number of sequences that grow together, whatever their positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tinygrad.apps.language.generation.generate import check_step, check_tokens, generate
from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import KVCache
from tinygrad.apps.language.generation.sampling import Generated, Sampling
from tinygrad.apps.language.model.attention import Attention, Span
from tinygrad.apps.language.model.config import Config, read_config
from tinygrad.apps.language.model.feed_forward import Experts, FeedForward
from tinygrad.apps.language.model.layouts import Devices, Placement
from tinygrad.apps.language.model.norm import Norm
from tinygrad.apps.language.model.rotary import Rotary
from tinygrad.apps.language.model.weights import ROWS, Split, WeightFile
from tinygrad.dtype import DType, dtypes
from tinygrad.jit import TinyJit
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

# tokens of a prompt that are read at once
CHUNK = 64
# so many take less time one by one
FEW = 16
DEFAULT_CONTEXT = 4096


class Layer:
    """Attention and what follows it, each added to what it was given."""

    def __init__(self, file: WeightFile, config: Config, number: int, rotary: Rotary) -> None:
        name = f"blk.{number}."
        self.rotary = rotary
        self.attention = Attention(file, config, number, rotary)
        is_mixture = f"{name}ffn_gate_inp.weight" in file
        self.feed_forward: Experts | FeedForward
        self.feed_forward = (Experts if is_mixture else FeedForward)(file, config, number)

        def norm(kind: str) -> Norm | None:
            weight = f"{name}{kind}.weight"
            if weight not in file:
                return None
            return Norm(file.vector(weight), config.epsilon, config.dim)

        self.norms = [norm(kind) for kind in ("attn_norm", "post_attention_norm")]
        self.feed_norms = [norm(kind) for kind in ("ffn_norm", "post_ffw_norm")]

    def __call__(self, x: Tensor, span: Span) -> Tensor:
        """Vectors (rows, length, dim) to the same."""
        angles = self.rotary.angles(span.starts, span.length)
        before, after = self.norms
        x = x + _applied(after, self.attention(_applied(before, x), angles, span))
        if isinstance(self.feed_forward, Experts):
            # they run for a few tokens after the others
            x = x.realize()
        before, after = self.feed_norms
        return x + _applied(after, self.feed_forward(_applied(before, x)))


def _applied(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)


class Transformer:
    """A decoder of the family that its GGUF file names.

    `config` has its sizes, `max_context` is the most tokens of a sequence.
    """

    def __init__(
        self, file: WeightFile, config: Config, max_context: int, cache_dtype: DType
    ) -> None:
        self.config, self.max_context, self.cache_dtype = config, max_context, cache_dtype
        self.vocab_size = config.vocab_size
        self.placement = file.placement
        # weights are views of its memory
        self.file = file
        rotary, local = self._rotaries(file)
        self.layers = [
            Layer(file, config, number, local if config.is_local(number) else rotary)
            for number in range(config.layers)
        ]
        vocabulary = Split(ROWS)
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
        cache_dtype: DType = dtypes.float32,
    ) -> tuple[Transformer, dict[str, Any]]:
        """The model of a GGUF file, and the file's metadata.

        `devices`: one name, several (the model is split over them), or a `Mesh` with a dimension
        "tp", which splits the model, and perhaps "dp", which splits batches. Without `max_context`,
        the context is the model's own, but at most 4096. `cache_dtype` is that of keys and values
        that are kept; of less than float32, logits differ from the third digit on. Raises
        UnsupportedModelError for a model that is not known, FileFormatError for a file that is not
        valid.
        """
        file = WeightFile(gguf, Placement(devices))
        config = read_config(file.metadata, file.shape("token_embd.weight")[0])
        if max_context is None:
            max_context = min(config.context_length, DEFAULT_CONTEXT)
        if max_context < 1:
            raise ValueError(f"max_context is {max_context}; it must be 1 or more")
        return cls(file, config, max_context, cache_dtype), file.metadata

    def _rotaries(self, file: WeightFile) -> tuple[Rotary, Rotary]:
        """The rotary positions of ordinary layers and of those with a window."""
        config, device = self.config, file.placement.copies
        is_long = self.max_context > config.original_context
        for name in ("rope_freqs", "rope_factors_long" if is_long else "rope_factors_short"):
            if f"{name}.weight" in file:
                factors = file.vector(f"{name}.weight")
                break
        else:
            factors = None
        positions = self.max_context + CHUNK
        rotary = Rotary(config.rope, positions, device, factors)
        if config.window is None or config.local_rope == config.rope:
            return rotary, rotary
        return rotary, Rotary(config.local_rope, positions, device)

    # ---- logits of whole sequences ----

    def __call__(self, tokens: Tensor) -> Tensor:
        """The logits (batch, length, vocab) at all positions of tokens (batch, length).

        Uses no cache. Over a mesh, the batch is split by "dp".
        """
        rows, length = (int(size) for size in tokens.shape)
        return self._logits(self._hidden(tokens, Span(length, [0] * rows)))

    def _hidden(self, tokens: Tensor, span: Span) -> Tensor:
        """The vectors (rows, length, dim) after all layers."""
        x = self.embedding[tokens.to(self.placement.copies)].values() * self.config.embedding_scale
        if not span.memories:
            x = x.to(self.placement.batch(len(span.starts)))
        x = x.realize()
        for layer in self.layers:
            # equal layers are planned once if each is a plan of its own
            x = layer(x, span).realize()
        return x

    def _logits(self, x: Tensor) -> Tensor:
        logits = self.output(self.norm(x))
        cap = self.config.logit_cap
        return logits if cap is None else (logits / cap).tanh() * cap

    # ---- logits of sequences that grow ----

    def new_cache(self) -> KVCache:
        """A cache without tokens, for one sequence of at most `max_context`."""
        config, placement = self.config, self.placement
        heads = placement.padded(config.kv_heads)
        shape = (config.layers, 2, heads, self.max_context + CHUNK, config.head_dim)
        layout = placement.split(2, heads)
        memory = Tensor.empty(*shape, device=layout, dtype=self.cache_dtype)
        return KVCache(memory, self.max_context)

    def prefill(self, tokens: Sequence[int], cache: KVCache) -> Tensor:
        """Makes `cache` hold these tokens; returns the logits (vocab,) after the last of them.

        What the cache holds of them already, from the start on, is not computed again. The logits
        are overwritten by the next step of one sequence. Raises ValueError for no tokens or unknown
        ones, ContextOverflowError for too many.
        """
        tokens = check_tokens(tokens, self.vocab_size)
        cache.check_fits(len(tokens))
        # the last one is computed always: its logits are asked for
        at = cache.keep_prefix(tokens[:-1])
        while len(tokens) - at > FEW:
            part = tokens[at : at + CHUNK]
            logits = self._step([part], [cache], CHUNK)
            at += len(part)
        for token in tokens[at:]:
            logits = self._step([[token]], [cache], 1)
        return logits[0]

    def decode(self, tokens: Sequence[int], caches: Sequence[KVCache]) -> Tensor:
        """One more token for each sequence; the logits (batch, vocab) after them.

        They are overwritten by the next step of as many sequences. Raises ValueError for unknown
        tokens or another number of them than of caches, ContextOverflowError if a cache is full; no
        cache is changed then.
        """
        tokens = check_step(tokens, caches, self.vocab_size)
        return self._step([[token] for token in tokens], caches, 1)

    def _step(self, parts: Sequence[list[int]], caches: Sequence[KVCache], length: int) -> Tensor:
        """Adds tokens to caches, up to `length` to each; the logits (rows, vocab) after them."""
        key = (len(parts), length)
        if key not in self.steps:
            step = self.steps[key] = TinyJit(self._forward)
            # a first call makes nothing that later ones use, so it is captured as a second one is
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

    def _variable(self, name: str, most: int, value: int) -> UOp:
        return UOp.variable(name, 0, most).bind(value)

    def _forward(
        self, tokens: Tensor, starts: list[UOp], memories: list[Tensor], last: int | UOp
    ) -> Tensor:
        """The logits (rows, vocab) of token number `last` of each row, on the first device."""
        span = Span(int(tokens.shape[1]), starts, memories)
        x = self._hidden(tokens, span)
        logits = self._logits(x[:, last : last + 1]).squeeze(1)
        return logits.to(self.placement.first).realize()

    def generate(
        self,
        tokens: Sequence[int],
        sampling: Sampling | None = None,
        cache: KVCache | None = None,
        grammar: Grammar | None = None,
    ) -> Iterator[Generated]:
        """The tokens that follow `tokens`, see `generate.generate`."""
        return generate(self, tokens, sampling, cache, grammar)
