"""KV caches of ended sequences in host memory, in blocks; equal prefixes share their blocks.

Input: the KV cache of a sequence whose slot is given to another one. Output: the blocks of the
longest known prefix of a prompt. Invariants: a block is found by all tokens up to its end, as its
keys and values depend on them; at most `max_bytes` are kept, the least recently used blocks are
dropped first, and of a sequence the last ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tinygrad.apps.language.generation.kv_cache import (
    BLOCK_TOKENS,
    HostBlock,
    KVCache,
    common_prefix,
)

Part = tuple[int, ...]


@dataclass(eq=False)
class Block:
    """Up to `BLOCK_TOKENS` tokens of a sequence with their keys and values, and what follows."""

    tokens: Part
    memory: HostBlock | None
    parent: Block | None
    children: dict[Part, Block] = field(default_factory=dict)

    def closest(self, part: Part) -> tuple[Block | None, int]:
        """The child that shares the longest prefix with `part`, and its length."""
        if part in self.children:
            return self.children[part], len(part)
        lengths = [(common_prefix(child.tokens, part), child) for child in self.children.values()]
        count, child = max(lengths, key=lambda pair: pair[0], default=(0, None))
        return (child, count) if count else (None, 0)


class PrefixStore:
    """A tree of blocks of at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._root = Block((), None, None)
        # least recently used first; a block comes after all of its children
        self._used: OrderedDict[Block, None] = OrderedDict()

    def add(self, cache: KVCache) -> None:
        """Keep the sequence of a cache."""
        if not self.max_bytes:
            return
        path = [self._root]
        try:
            for start in range(0, len(cache.tokens), BLOCK_TOKENS):
                path.append(self._block_of(path[-1], cache, start))
        finally:
            self._touch(path[1:])
        while self.nbytes > self.max_bytes:
            self._drop(next(iter(self._used)))

    def _block_of(self, parent: Block, cache: KVCache, start: int) -> Block:
        """The block of the tokens of a cache from `start`, copied if there is none."""
        part = tuple(cache.tokens[start : start + BLOCK_TOKENS])
        child, count = parent.closest(part)
        if child is not None and count == len(part):
            return child
        memory = cache.copy_block(start)
        if child is not None and count == len(child.tokens):
            # the end of the same sequence when it was shorter
            self._drop(child)
        made = parent.children[part] = Block(part, memory, parent)
        self._used[made] = None
        self.nbytes += memory.nbytes()
        return made

    def find(self, tokens: Sequence[int]) -> tuple[list[Block], int]:
        """The blocks of the longest prefix that is kept, and its length."""
        at, path, length = self._root, list[Block](), 0
        while True:
            part = tuple(tokens[length : length + BLOCK_TOKENS])
            child, count = at.closest(part)
            if child is None:
                return path, length
            path.append(child)
            length += count
            if count < BLOCK_TOKENS:
                return path, length
            at = child

    def restore(self, tokens: Sequence[int], cache: KVCache) -> None:
        """Make a cache hold the longest prefix of `tokens` that is kept."""
        path, length = self.find(tokens)
        own = cache.keep_prefix(tokens)
        for number, block in enumerate(path):
            # what the cache has itself is not copied
            if block.memory is not None and (number + 1) * BLOCK_TOKENS > own:
                cache.write_block(number * BLOCK_TOKENS, block.memory)
        cache.tokens = list(tokens[:length])
        self._touch(path)

    def _touch(self, path: Sequence[Block]) -> None:
        for block in reversed(path):
            self._used.move_to_end(block)

    def _drop(self, block: Block) -> None:
        """Remove a block without children."""
        assert block.parent is not None and block.memory is not None and not block.children
        del self._used[block], block.parent.children[block.tokens]
        self.nbytes -= block.memory.nbytes()
