"""To which names the service answers. Pure.

A page of evil.example may point its own name at 127.0.0.1 after it was loaded, and then talk to whatever listens there
as if it were its own server (DNS rebinding). The browser still says the name in the Host header, so that is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from accoda.errors import InvalidInput
from accoda.http.problems import ProblemError
from accoda.http.security.refusals import bad_host, foreign_host

WILDCARDS = ("", "0.0.0.0", "::")
_AUTHORITY = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9_-][A-Za-z0-9._-]{0,252}))(?::([0-9]{1,5}))?\Z")
_MOST_KNOWN = 1000


class Authority(NamedTuple):
    """A name in lower case, or an address in its usual form, and the port if one is given."""

    name: str
    port: int | None


def read_authority(raw: bytes) -> Authority | None:
    """What a Host header or an origin names; None: nothing that can be used.

    >>> read_authority(b"LocalHost:8000"), read_authority(b"[0:0::1]"), read_authority(b"a@b")
    (Authority(name='localhost', port=8000), Authority(name='::1', port=None), None)
    """
    found = _AUTHORITY.match(raw)
    if found is None:
        return None
    port = int(found[3]) if found[3] else None
    if port is not None and port > 65535:
        return None
    if found[2]:
        return Authority(found[2].decode().lower().removesuffix("."), port)
    address = _address(found[1].decode())
    return Authority(str(address), port) if isinstance(address, IPv6Address) else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can be at the other end.

    >>> [is_loopback(host) for host in ("localhost", "127.8.9.1", "::1", "0.0.0.0", "localhost.evil.example")]
    [True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    address = _address(host.strip("[]"))
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address is not None and address.is_loopback


class Hosts:
    """Checks Host headers: loopback names, the address that the service listens on, and those that were allowed.

    The port is looked at only where an allowed host has one: a tunnel or a container's port may show another one to the
    client, and a port is nothing that rebinding could change.
    """

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        self._names: set[str] = set()
        self._exact: set[Authority] = set()
        self._by_connection = host in WILDCARDS
        self._known: set[bytes] = set()
        if not self._by_connection:
            address = _address(host)
            self._names.add(host.lower() if address is None else str(address))
        for text in allowed:
            authority = read_authority(text.encode("utf-8", "replace"))
            if authority is None:
                raise InvalidInput("allow-host", f"must be a name or address, with or without a port, not {text!r:.80}")
            if authority.port is None:
                self._names.add(authority.name)
            else:
                self._exact.add(authority)

    def check(self, raw: bytes | None, server: str | None = None) -> ProblemError | None:
        """What is wrong with a Host header; `server` is the address that the client has reached."""
        if raw in self._known:
            return None
        if not raw:
            return bad_host("a request must have one")
        authority = read_authority(raw)
        if authority is None:
            return bad_host("must be one name or address, with or without a port")
        if self._by_connection and server is not None and authority.name == str(_address(server) or server):
            return None
        if not (authority.name in self._names or authority in self._exact or is_loopback(authority.name)):
            return foreign_host(raw.decode("latin-1"))
        if len(self._known) < _MOST_KNOWN:  # ports make many of one name: a bound
            self._known.add(raw)
        return None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
