"""All families of ops; importing this module declares them."""

from __future__ import annotations

from test.fuzz_sharding import elementwise, indexing, layers, movement, training

__all__ = ["elementwise", "indexing", "layers", "movement", "training"]
