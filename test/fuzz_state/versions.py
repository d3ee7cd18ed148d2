"""Whether the content of each version of memory stays what it is.

A BUFFER node is one version of the content of some memory. Where the library keeps that, no
statement changes the content of a node that is alive before and after it. `--versions` asks so
after each statement of a program.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import TypeAlias

from tinygrad import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

Versions: TypeAlias = Mapping[UOp, bytes]


def live_versions() -> Versions:
    """The content of all BUFFER nodes that are alive and in memory, which it does not keep alive.

    Left out is what may change in place: memory that code outside of the library reads and writes,
    and nodes that a captured function writes in place.
    """
    found: weakref.WeakKeyDictionary[UOp, bytes] = weakref.WeakKeyDictionary()
    for node in gc.get_objects():
        if type(node) is UOp and node.op is Ops.BUFFER and node.is_realized:
            found[node] = Tensor(node).numpy().tobytes()
    return found


def changed_versions(before: Versions) -> list[str]:
    """Descriptions of the versions of `before` that are still alive and have another content."""
    after = live_versions()
    return [
        f"version {node!r} has another content"
        for node, content in before.items()
        if node in after and after[node] != content
    ]
