"""One try of one call: read the URL, judge, connect, send, read a little of the answer. Limited in time and in size."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time

import aiohttp
from msgspec import Struct
from yarl import URL

from accoda.errors import AccodaError, InvalidInput
from accoda.retry import describe
from accoda.webhooks.connect import open_session, target_of_call
from accoda.webhooks.decide import Answer, Attempt, NoAnswer, Refusal
from accoda.webhooks.guard import AddressRefused, Policy, Resolve, SystemResolver, Target, Unresolved, locate
from accoda.webhooks.records import ANSWER
from accoda.webhooks.urls import read_url

log = logging.getLogger("accoda.webhooks")

READ = 64 * 1024
"""Bytes of an answer that are read at most."""
READ_FOR = 5.0
"""Seconds for that: the status is known by then, and it alone decides."""
CHUNK = 4096


class Limits(Struct, frozen=True, kw_only=True):
    """Seconds: for the name, and again for the connection; for a try as a whole."""

    connect: float = 5.0
    total: float = 15.0


class Sender:
    """One HTTP session, from its making (on a running event loop) to `close`."""

    def __init__(
        self,
        policy: Policy,
        limits: Limits,
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        threads: int = 20,
    ) -> None:
        self._policy = policy
        self._limits = limits
        self._own = SystemResolver(threads) if resolve is None else None
        self._resolve: Resolve = resolve or self._own  # type: ignore[assignment]  # one of them is there
        self._session = open_session(tls)

    async def close(self) -> None:
        """Let go of every connection. A second close does no harm."""
        await self._session.close()
        if self._own is not None:
            self._own.close()

    async def send(self, url: str, body: bytes, headers: dict[str, str]) -> Attempt:
        """Try once. Whatever the receiver does, there is an answer in time, and nothing is raised but cancellation."""
        try:
            async with asyncio.timeout(self._limits.total):
                place = read_url(url)
                async with asyncio.timeout(self._limits.connect):
                    target = await locate(place, self._policy, self._resolve)
                return await self._post(target, body, headers)
        except AddressRefused as error:
            log.warning("a call to %s is refused: %s, %s", error.host, error.address, error.why)
            return Refusal(str(error))
        except InvalidInput as error:
            return Refusal(str(error))
        except Unresolved as error:
            return NoAnswer(str(error))
        except TimeoutError:
            return NoAnswer(f"no answer within {self._limits.total:g} s (and {self._limits.connect:g} s to connect)")
        except (aiohttp.ClientError, OSError, ValueError, AccodaError) as error:
            return NoAnswer(_trouble(error))

    async def _post(self, target: Target, body: bytes, headers: dict[str, str]) -> Attempt:
        target_of_call.set(
            target
        )  # seen by the steps of this call alone: every call has a task, or a `with`, of its own
        began = time.monotonic()
        async with self._session.post(
            _url(target),
            data=body,
            headers={**HEADERS, **headers},
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect),
        ) as response:
            ms = round((time.monotonic() - began) * 1000)
            text = await _beginning(response)
            found = response.headers
            return Answer(
                response.status,
                ms,
                text,
                reason=tidy(response.reason or "", 60),
                retry_after=found.get("Retry-After"),
                location=tidy(found["Location"], 200) if "Location" in found else None,
            )


def tidy(text: str, length: int) -> str:
    """A stranger's text in one line: no control characters, no more blanks than one, cut.

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
    # Whoever leaves the response before its end closes the connection: nobody reads what is still to come.
    return tidy(read.decode("utf-8", "replace"), ANSWER)


def _url(target: Target) -> URL:
    """The URL for aiohttp. A host that is an address, in whatever form, is put down as the address that was judged: of
    such hosts aiohttp asks no resolver."""
    place = target.place
    address = _looks_like_address(place.host)
    host = target.addresses[0] if address else place.host
    path, _, query = place.target.partition("?")
    return URL.build(scheme=place.scheme, host=host, port=place.port, path=path, query_string=query, encoded=True)


def _looks_like_address(host: str) -> bool:
    # As WHATWG has it: a host whose last part is a number is an IPv4 address in some form. No top domain is a number.
    last = host.removesuffix(".").rpartition(".")[2]
    return ":" in host or last.isdigit() or last.startswith("0x")


def _trouble(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return tidy(f"its certificate is not accepted: {error.certificate_error}", 300)
    if isinstance(error, aiohttp.ClientConnectorError):
        return tidy(f"no connection: {error.os_error.strerror or error.os_error}", 300)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    return tidy(f"no proper answer: {describe(error)}", 300)


HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "accoda-webhooks",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
}
