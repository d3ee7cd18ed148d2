"""Who may use the server: API keys, and names of hosts.

Input: the scope of a request, as it was received. Output: `ApiError` for a request that is refused.
Invariant: only the path and the header fields themselves are compared; a URL that is built from
them could be made to look like another one by the Host field.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinygrad.apps.language.server.request_fields import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request

# these need no API key: they reveal nothing
OPEN_PATHS = ("/", "/health")
# a name or an IPv4 address, or an IPv6 address in brackets, then a port: RFC 3986, section 3.2.2
HOST = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(?::\d{1,5})?", re.ASCII)


@dataclass(frozen=True)
class AccessRules:
    """The conditions of every request.

    With `api_key`, requests must have it as a bearer token. `hosts` are the names by which the
    server may be reached besides those of this machine; None allows any.
    """

    api_key: str | None = None
    hosts: frozenset[str] | None = frozenset()

    def check(self, request: Request) -> None:
        """Raise ApiError for a request of another host name, or without the API key."""
        self._check_host(host_name(request.headers.getlist("host")))
        if self.api_key is None or request.scope["path"] in OPEN_PATHS:
            return
        kind, _, key = request.headers.get("authorization", "").partition(" ")
        # header fields are decoded as latin-1, whatever was sent
        matches = hmac.compare_digest(key.strip().encode("latin-1"), self.api_key.encode())
        if kind.lower() != "bearer" or not matches:
            raise ApiError(
                401, "the API key is missing or wrong", code="invalid_api_key", kind="auth_error"
            )

    def _check_host(self, host: str) -> None:
        if self.hosts is None or host in self.hosts or is_loopback(host):
            return
        raise ApiError(
            403,
            f"this server is for its own machine, not for the host {host!r:.80}; "
            "--allowed-host adds a name",
        )


def host_name(fields: list[str]) -> str:
    """The name in the Host field of a request, without the port. Raises ApiError.

    >>> host_name(["localhost:8000"]), host_name(["[::1]"])
    ('localhost', '::1')
    """
    match = HOST.fullmatch(fields[0]) if len(fields) == 1 else None
    if match is None:
        raise ApiError(400, "the request needs one Host field with the name of a host")
    return match[1].strip("[]").lower()


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("example.com")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
