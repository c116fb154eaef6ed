"""One try of one call: parse the URL, check its addresses, connect, send, read a little of the answer.

Every step is limited in time and size, and a socket is opened only for an address that was checked. The target of a
call is in a context variable, because the resolver and the socket factory serve all calls of a session at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from accoda.errors import AccodaError, InvalidInput
from accoda.retry import describe
from accoda.webhooks.call import ANSWER
from accoda.webhooks.decide import Attempt
from accoda.webhooks.dispatcher import SenderOptions
from accoda.webhooks.guard import AddressRefused, Policy, Resolve, SystemResolver, Target, Unresolved, locate
from accoda.webhooks.urls import read_url

log = logging.getLogger("accoda.webhooks")

READ = 64 * 1024
"""Bytes of an answer that are read at most."""
READ_FOR = 5.0
"""Seconds for that. The status is known by then, and it alone decides."""
CHUNK = 4096
HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "accoda-webhooks",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}

target_of_call: ContextVar[Target] = ContextVar("target_of_call")


class Sender:
    """One HTTP session, created on a running event loop and used until `close`."""

    def __init__(self, policy: Policy, options: SenderOptions) -> None:
        self._policy = policy
        self._options = options
        self._resolver = SystemResolver(options.limits.at_once) if options.resolve is None else None
        self._resolve: Resolve = options.resolve or self._resolver  # type: ignore[assignment]  # one of them is set
        self._session = open_session(options.tls)

    async def close(self) -> None:
        """Close every connection. A second close does no harm."""
        await self._session.close()
        if self._resolver is not None:
            self._resolver.close()

    async def send(self, url: str, body: bytes, headers: dict[str, str]) -> Attempt:
        """Try once. Whatever the receiver does, this answers in time and raises nothing but cancellation."""
        limits = self._options
        try:
            async with asyncio.timeout(limits.total):
                parsed = read_url(url)
                async with asyncio.timeout(limits.connect):
                    target = await locate(parsed, self._policy, self._resolve)
                return await self._post(target, body, headers)
        except AddressRefused as error:
            log.warning("a call to %s is refused: %s, %s", error.host, error.address, error.why)
            return Attempt(reason=str(error), final=True)
        except InvalidInput as error:
            return Attempt(reason=str(error), final=True)
        except Unresolved as error:
            return Attempt(reason=str(error))
        except TimeoutError:
            return Attempt(reason=f"no answer within {limits.total:g} s (and {limits.connect:g} s to connect)")
        except (aiohttp.ClientError, OSError, ValueError, AccodaError) as error:
            return Attempt(reason=_problem(error))

    async def _post(self, target: Target, body: bytes, headers: dict[str, str]) -> Attempt:
        target_of_call.set(target)  # visible to this call alone: every call runs in a task of its own
        began = time.monotonic()
        async with self._session.post(
            _url(target),
            data=body,
            headers={**HEADERS, **headers},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._options.connect),
        ) as response:
            ms = round((time.monotonic() - began) * 1000)
            text = await _beginning(response)
            found = response.headers
            return Attempt(
                status=response.status,
                ms=ms,
                text=text,
                reason=tidy(response.reason or "", 60),
                retry_after=found.get("Retry-After"),
                location=tidy(found["Location"], 200) if "Location" in found else None,
            )


class CheckedResolver(AbstractResolver):
    """Gives aiohttp the addresses that were resolved and checked for this call, and asks no name server."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in target_of_call.get().addresses
        ]

    async def close(self) -> None:
        pass


def open_socket(info: tuple[Any, ...]) -> socket.socket:
    """A socket for an address that was checked for this call; any other address is refused.

    aiohttp does not ask its resolver about a host that looks like an address, but every connection comes through here.
    """
    family, kind, protocol, _, sockaddr = info
    target = target_of_call.get()
    if sockaddr[0] not in target.addresses or sockaddr[1] != target.url.port:
        raise AddressRefused(target.url.host, str(sockaddr[0]), "it is not the one that was checked")
    return socket.socket(family, kind, protocol)


def open_session(tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """A session without redirects, proxies, cookies or decompression.

    No connection is used twice: the next call may have other addresses, which were checked for it alone.
    """
    connector = aiohttp.TCPConnector(
        resolver=CheckedResolver(),
        use_dns_cache=False,
        force_close=True,
        limit=0,  # the dispatcher limits the calls
        ssl=True if tls is None else tls,
        socket_factory=lambda info: open_socket(info),
    )
    return aiohttp.ClientSession(
        connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    )


def tidy(text: str, length: int) -> str:
    """Text from outside as one short line without control characters or repeated blanks.

    >>> tidy("  not\\r\\n now\\x1b[31m ", 80)
    'not now\ufffd[31m'
    """
    line = " ".join(text[: 4 * length].split())
    return "".join(char if char.isprintable() else "\ufffd" for char in line)[:length]


async def _beginning(response: aiohttp.ClientResponse) -> str:
    """How the answer begins. It may be endless, slow or broken: the status has come, and that is what counts."""
    read = bytearray()
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError, ValueError):
        async with asyncio.timeout(READ_FOR):
            while len(read) < READ and (chunk := await response.content.read(CHUNK)):
                read += chunk
    # Leaving the response before its end closes the connection, so the rest is never read.
    return tidy(read.decode("utf-8", "replace"), ANSWER)


def _url(target: Target) -> URL:
    """The URL for aiohttp. A host that is an address, in whatever form, is replaced by the address that was checked,
    because aiohttp asks no resolver about such hosts."""
    parsed = target.url
    # As in the WHATWG standard: a host whose last part is a number is an IPv4 address in some form.
    last = parsed.host.removesuffix(".").rpartition(".")[2]
    is_address = ":" in parsed.host or last.isdigit() or last.startswith("0x")
    host = target.addresses[0] if is_address else parsed.host
    path, _, query = parsed.target.partition("?")
    return URL.build(scheme=parsed.scheme, host=host, port=parsed.port, path=path, query_string=query, encoded=True)


def _problem(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return tidy(f"its certificate is not accepted: {error.certificate_error}", 300)
    if isinstance(error, aiohttp.ClientConnectorError):
        return tidy(f"no connection: {error.os_error.strerror or error.os_error}", 300)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return tidy(f"no proper answer: {describe(error)}", 300)
