"""The last steps before the wire: aiohttp gets the addresses that were judged, and a socket is opened for no other.

A call's target is in a context variable, which every step of that call sees and no other call does: the resolver and
the opener of sockets serve all calls of a session at once.
"""

from __future__ import annotations

import socket
import ssl
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from accoda.webhooks.guard import AddressRefused, Target

target_of_call: ContextVar[Target] = ContextVar("target_of_call")


class JudgedResolver(AbstractResolver):
    """Asks nobody: the name was resolved, and its addresses judged, before aiohttp heard of it."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [_result(host, address, port) for address in target_of_call.get().addresses]

    async def close(self) -> None:
        pass


def open_socket(info: tuple[Any, ...]) -> socket.socket:
    """Every connection of a call begins here: a socket for an address that was judged, or none at all.

    aiohttp does not ask its resolver about a host that looks like an address, so this is where everything passes.
    """
    family, kind, protocol, _, sockaddr = info
    target = target_of_call.get()
    if sockaddr[0] not in target.addresses or sockaddr[1] != target.place.port:
        raise AddressRefused(target.place.host, str(sockaddr[0]), "it is not the one that was judged")
    return socket.socket(family, kind, protocol)


def open_session(tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """A session that calls and does nothing else of what browsers do: no redirects, proxies, cookies, decompression.

    A connection is not used twice: who is called next was judged next, so its connection must be a new one.
    """
    connector = aiohttp.TCPConnector(
        resolver=JudgedResolver(),
        use_dns_cache=False,
        force_close=True,
        limit=0,  # the caller's hands are the limit
        ssl=True if tls is None else tls,
        socket_factory=lambda info: open_socket(info),
    )
    return aiohttp.ClientSession(
        connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    )


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
