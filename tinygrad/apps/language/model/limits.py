"""Limits of a model on its devices, checked before anything is computed.

Input: a file or its configuration, and the layout. Output: nothing, or an error that names the
limit. Invariant: a model that passes has work for every device, and memory for one sequence.
"""

from __future__ import annotations

from tinygrad.apps.language.model.config import ModelConfig
from tinygrad.apps.language.model.feed_forward import hidden_blocks
from tinygrad.apps.language.model.layouts import ModelLayout
from tinygrad.apps.language.model.weights import WeightFile
from tinygrad.device import Device
from tinygrad.dtype import DType
from tinygrad.memory_limit import memory_limit
from tinygrad.sharding import ShardingError
from tinygrad.sharding.local_devices import current_local_devices


def check_shards(config: ModelConfig, file: WeightFile) -> None:
    """Raise ShardingError if a device would have neither heads nor blocks of hidden vectors."""
    shards = file.layout.shard_count
    if shards == 1:
        return
    blocks = hidden_blocks(file, 0)
    limit = max(config.heads, blocks)
    if shards > limit:
        raise ShardingError(
            f"{shards} devices are too many for one copy of this model: its {config.heads} heads "
            f"and the {blocks} blocks of its hidden vectors can be sharded over {limit} devices; "
            "give at most as many"
        )


def check_context(
    config: ModelConfig, layout: ModelLayout, max_context: int, cache_dtype: DType
) -> None:
    """Raise MemoryError if the host has too little memory for one sequence of `max_context`."""
    # cosines and sines are computed on the host, in float64
    token_bytes = config.rope.dim * 8 + _host_cache_bytes(config, layout, cache_dtype)
    needed, limit = max_context * token_bytes, memory_limit()
    if needed > limit:
        raise MemoryError(
            f"a context of {max_context} tokens needs {needed / 1e9:.0f} GB for one sequence, more "
            f"than the {limit / 1e9:.0f} GB of memory here; give a max_context of at most "
            f"{limit // token_bytes}"
        )


def _host_cache_bytes(config: ModelConfig, layout: ModelLayout, cache_dtype: DType) -> int:
    """The bytes of a token in a KV cache that the devices of this process keep on the host."""
    local = current_local_devices().names_in(layout.mesh.devices)
    on_host = sum(Device[name].allocator.addressable for name in local)
    heads = layout.padded(config.kv_heads)
    heads_of_device = heads if config.kv_heads == 1 else heads // layout.shard_count
    elements = config.layers * 2 * heads_of_device * config.head_dim
    return on_host * elements * cache_dtype.itemsize
