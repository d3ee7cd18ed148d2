"""Whether the content of each version of memory stays what it is.

A BUFFER node is one version of the content of some memory, and no statement changes the content of
a node that is alive before and after it. `--versions` asks so after each statement of a program.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TypeAlias

from tinygrad.device import DeviceError
from tinygrad.execution.buffers import device_buffers
from tinygrad.uop import Ops
from tinygrad.uop.interning import table
from tinygrad.uop.ops import UOp

Versions: TypeAlias = Mapping[UOp, bytes]


def live_versions() -> Versions:
    """The content of all BUFFER nodes that are alive and in memory of this process, which it does
    not keep alive. Nodes that were lost, or never filled, have none.
    """
    found: weakref.WeakKeyDictionary[UOp, bytes] = weakref.WeakKeyDictionary()
    for ref in [*table.values()]:
        node = ref()
        if node is None or node.op is not Ops.BUFFER or node.memory is None:
            continue
        parts = device_buffers(node)
        if parts and all(x.is_allocated() for x in parts):
            try:
                found[node] = b"".join(x.numpy().tobytes() for x in parts)
            except DeviceError:
                continue
    return found


def changed_versions(before: Versions) -> list[str]:
    """Descriptions of the versions of `before` that are still alive and have another content."""
    after = live_versions()
    return [
        f"version {node!r} has another content"
        for node, content in before.items()
        if node in after and after[node] != content
    ]
