"""Limits of a model on its devices, checked before anything is computed.

Input: a file or its configuration, and the layout. Output: nothing, or an error that names the
limit. Invariant: a model that passes has work for every device, and memory for one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad import ranks
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


def default_context(
    config: ModelConfig, layout: ModelLayout, cache_dtype: DType, sequences: int
) -> int:
    """The context of the model, shortened until `sequences` take at most half of the memory of the
    host, and of each other device. It is the same on all ranks.
    """
    devices = [Device[name].allocator for name in _local_devices(layout)]
    limits = [memory_limit() // _host_bytes(config, layout, cache_dtype)]
    cache_bytes = _device_cache_bytes(config, layout, cache_dtype)
    limits += [device.limit() // cache_bytes for device in devices if not device.addressable]
    fitting: list[int] = ranks.gather(max(1, min(limits) // (2 * sequences)))
    return min(config.context_length, *fitting)


def check_context(
    config: ModelConfig, layout: ModelLayout, max_context: int, cache_dtype: DType
) -> None:
    """Raise MemoryError if the host has too little memory for one sequence of `max_context`."""
    token_bytes = _host_bytes(config, layout, cache_dtype)
    needed, limit = max_context * token_bytes, memory_limit()
    if needed > limit:
        raise MemoryError(
            f"a context of {max_context} tokens needs {needed / 1e9:.0f} GB for one sequence, more "
            f"than the {limit / 1e9:.0f} GB of memory here; give a max_context of at most "
            f"{limit // token_bytes}"
        )


def _host_bytes(config: ModelConfig, layout: ModelLayout, cache_dtype: DType) -> int:
    """The bytes of a token of one sequence on the host."""
    on_host = sum(Device[name].allocator.addressable for name in _local_devices(layout))
    # cosines and sines are computed on the host, in float64
    return config.rope.dim * 8 + on_host * _device_cache_bytes(config, layout, cache_dtype)


def _local_devices(layout: ModelLayout) -> Sequence[str]:
    return current_local_devices().names_in(layout.mesh.devices)


def _device_cache_bytes(config: ModelConfig, layout: ModelLayout, cache_dtype: DType) -> int:
    """The bytes of a token in a KV cache on one device."""
    heads = layout.padded(config.kv_heads)
    heads_of_device = heads if config.kv_heads == 1 else heads // layout.shard_count
    elements = config.layers * 2 * heads_of_device * config.head_dim
    return elements * cache_dtype.itemsize
