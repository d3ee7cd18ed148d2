"""The text of a Metal kernel as C++: its parameters have attributes that say what they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KERNEL = re.compile(
    r"(?:\[\[max_total_threads_per_threadgroup\((?P<bound>\d+)\)\]\]\s*)?"
    r"\bkernel\s+void\s+(?P<name>\w+)\s*\((?P<parameters>[^{]*)\)\s*\{"
)
_PARAMETER = re.compile(r"(?P<type>.*?)(?P<name>\w+)\s*\[\[(?P<attribute>\w+)(?:\(\d+\))?\]\]$")
MAX_BUFFERS = 31
"""Entries of the table of buffer arguments, integers among them."""
POSITIONS = {
    "threadgroup_position_in_grid": "emulator::position_of_block()",
    "thread_position_in_threadgroup": "emulator::position_in_block()",
}


@dataclass(frozen=True)
class MetalKernel:
    """A kernel, and a function that calls it with the parameters of launches alone."""

    name: str
    caller: str
    """The text of the function `NAME__caller`."""
    max_threads: int | None
    """The threads that a pipeline allows: without an attribute, as many as registers are left."""


def find_kernels(source: str) -> list[MetalKernel]:
    """The kernels that a text defines. Buffers must be in the order of their numbers."""
    return [
        _kernel(*found.group("name", "parameters", "bound")) for found in _KERNEL.finditer(source)
    ]


def _kernel(name: str, parameters: str, bound: str | None) -> MetalKernel:
    takes, passes = [], []
    for text in re.split(r",(?![^\[]*\])", parameters):
        found = _PARAMETER.match(" ".join(text.split()))
        if found is None:
            raise ValueError(f"{name}: what the parameter {text!r} is is not known")
        if found["attribute"] == "buffer":
            takes.append(f"{found['type'].replace('&', '')}{found['name']}")
            passes.append(found["name"])
        elif found["attribute"] == "threadgroup":
            passes.append(f"({found['type']})emulator::dynamic_shared()")
        else:
            passes.append(_position(found["type"].strip(), POSITIONS[found["attribute"]]))
    if len(takes) > MAX_BUFFERS:
        raise ValueError(f"{name}: {len(takes)} buffers; Metal has {MAX_BUFFERS} entries for them")
    head = f"static void {name}__caller({', '.join(takes)})"
    caller = f"{head} {{ {name}({', '.join(passes)}); }}"
    return MetalKernel(name, caller, int(bound) if bound else None)


def _position(kind: str, position: str) -> str:
    if kind == "uint":
        return f"{position}.x"
    return f"uint3{{{position}.x, {position}.y, {position}.z}}"
