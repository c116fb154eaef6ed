"""A client of the deals API: persistent connections, and the tokens that each answer reports."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from .catalogue import Deal
from .messages import BadMessage, Response, read_response

TIMEOUT = 30.0
"""Seconds for one call."""


class ApiError(Exception):
    """The API did not answer as it should: an error of its own, or JSON that cannot be read. Try again later."""


class Reply(Struct, frozen=True):
    """What every answer has: tokens left, and seconds to the next refill. None: the answer could not be read."""

    status: int
    left: int | None = None
    refill_in: float | None = None
    retry_after: float | None = None
    fields: dict[str, Any] = {}


class DealsClient:
    """Asks the API at `url`. Any number of calls at once; each has a connection to itself meanwhile."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def deals(self, category: str) -> Reply:
        return await self.get("/deals", category=category)

    async def products(self, asins: list[str]) -> Reply:
        return await self.get("/products", asins=",".join(asins))

    async def get(self, path: str, **query: str) -> Reply:
        """One call. An answer of any status is a `Reply`; no answer at all is an `ApiError`."""
        target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        try:
            async with asyncio.timeout(TIMEOUT):
                return read_reply(await self._exchange(target))
        except (OSError, BadMessage, TimeoutError) as error:
            raise ApiError(f"{path}: no answer: {error!r}") from error

    async def close(self) -> None:
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            await writer.wait_closed()

    async def _exchange(self, target: str) -> Response:
        while True:
            fresh = not self._idle
            reader, writer = await self._connect() if fresh else self._idle.pop()
            response = None
            try:
                writer.write(f"GET {target} HTTP/1.1\r\nhost: {self._host}\r\n\r\n".encode())
                await writer.drain()
                response = await read_response(reader)
            except ConnectionError:
                if fresh:
                    raise
            finally:
                # Not even if we were cancelled may a connection be used again on which an answer is still to come.
                if response is not None and response.stays:
                    self._idle.append((reader, writer))
                else:
                    writer.close()
            if response is not None:
                return response
            if fresh:
                raise BadMessage("the server closed the connection without an answer")
            # It was closed while it was idle: nothing was answered, so nothing was charged. Once more, on another.

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)


def read_reply(response: Response) -> Reply:
    """What an answer says. JSON that cannot be read leaves a `Reply` without tokens."""
    after = response.headers.get("retry-after", "")
    retry_after = float(after) if after.isdigit() else None
    try:
        fields = msgspec.json.decode(response.body, type=dict[str, Any])
        left, refill_in = int(fields["tokensLeft"]), int(fields["refillIn"]) / 1000
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return Reply(response.status, retry_after=retry_after)
    return Reply(response.status, left, refill_in, retry_after, fields)


def read_deals(reply: Reply) -> list[Deal]:
    """The deals of an answer that was paid for."""
    if reply.status != 200 or "deals" not in reply.fields:
        said = reply.fields.get("error", "an answer that cannot be read")
        raise ApiError(f"status {reply.status}: {said}")
    try:
        return msgspec.convert(reply.fields["deals"], list[Deal])
    except msgspec.ValidationError as error:
        raise ApiError(f"deals that are none: {error}") from error
