"""All families of ops; to import it is to declare them."""

from __future__ import annotations

from test.fuzz_sharding import elementwise, indexing, layers, movement, training

__all__ = ["elementwise", "indexing", "layers", "movement", "training"]
