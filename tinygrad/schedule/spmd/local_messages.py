"""The part of a change of layout that is local: pieces that a local device receives or sends.

Input: the routes of all pieces, and the local devices. Output: the pieces of which a local device
is an end. Invariant: the time taken is that of the local pieces, and what the processes of a
program find together is every piece, once by its sender and once by its receiver.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tinygrad.sharding import LocalDevices, Region, Routes, is_on_host


class LocalPiece(NamedTuple):
    """A box of the array that device number `source` sends to device number `target`."""

    target: int
    source: int
    region: Region


def local_pieces(routes: Routes, local: LocalDevices) -> Iterator[LocalPiece]:
    """The pieces that local devices receive, then those that they send to others."""
    source, target = routes.held.layout, routes.wanted.layout
    receivers = local.numbers(target.devices)
    for receiver in receivers:
        for piece in routes.received(receiver):
            yield LocalPiece(receiver, piece.source, piece.region)
    if len(receivers) == len(target):
        return
    here = set(receivers)
    for sender in local.numbers(source.devices):
        # every process copies host data for itself
        if is_on_host(source[sender]):
            continue
        for sent in routes.sent(sender):
            if sent.destination not in here:
                yield LocalPiece(sent.destination, sender, sent.region)
