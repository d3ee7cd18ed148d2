"""Bounds what the refused requests of one client cost the others.

Input: the addresses of clients, as their requests arrive and are refused. Output: how long the
error of a refused request is held back, or `ApiError` with status 429 for a client that did not
wait. Invariants: a request that is not refused is never held back; a client that waits for its
responses never gets status 429; and the memory for clients is bounded.

A program that repeats a bad request as soon as it is refused would otherwise take a core from the
model. The pace is that of a leaky bucket, "virtual scheduling" of ITU-T I.371, annex A.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tinygrad.apps.language.server.request_fields import ApiError

# refused requests of a client in a second; the errors of more are held back
REFUSED_PER_SECOND = 5.0
# how many are refused at once before
BURST = 20
# a client with more refused requests under way than fit in this time is not listened to
MAX_WAIT_S = 4.0
MAX_CLIENTS = 4096


@dataclass
class RefusalPace:
    """The pace of refused requests; with `per_second` 0 there is no limit.

    >>> pace = RefusalPace(per_second=2, burst=1, clock=lambda: 100.0)
    >>> [pace.wait_s("::1") for _ in range(3)]
    [0.0, 0.5, 1.0]
    """

    per_second: float = REFUSED_PER_SECOND
    burst: int = BURST
    clock: Callable[[], float] = time.monotonic
    # when the bucket of a client is empty again; the client that was refused last is the last
    _empty_at: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def check(self, client: str) -> None:
        """Raise ApiError for a client that sends on while many of its errors are held back."""
        excess_s = self._excess_s(self._empty_at.get(_network(client), 0.0)) - MAX_WAIT_S
        if excess_s > 0:
            raise ApiError(
                429,
                "too many of the requests from this address were refused; wait for the responses",
                kind="rate_limit_error",
                retry_after_s=math.ceil(excess_s),
            )

    def wait_s(self, client: str) -> float:
        """Note a refused request; the time to hold back its error."""
        if not self.per_second:
            return 0.0
        key = _network(client)
        at = max(self._empty_at.pop(key, 0.0), self.clock()) + 1 / self.per_second
        self._empty_at[key] = at
        if len(self._empty_at) > MAX_CLIENTS:
            self._empty_at.popitem(last=False)
        return max(0.0, self._excess_s(at))

    def _excess_s(self, empty_at: float) -> float:
        if not self.per_second:
            return 0.0
        return empty_at - self.clock() - self.burst / self.per_second


def _network(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 one, as each of its users has 2**64 addresses.

    >>> _network("127.0.0.1"), _network("2001:db8::1:2"), _network("")
    ('127.0.0.1', '2001:db8::/64', '')
    """
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
