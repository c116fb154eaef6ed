"""A paid deals API on a local port, with tokens, refusals, latency and faults as a real one has them.

    GET /deals?category=toys        5 tokens
    GET /products?asins=a,b         1 token for each
    GET /tokens                     free

Every answer has `tokensLeft`, `refillIn` (milliseconds) and `refillRate`. With too few tokens it is a 429 with
Retry-After, and nothing is taken. `python -m examples.deals.api` starts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from accoda.clock import Clock, SystemClock

from .catalogue import CATEGORIES, deals_of, product
from .messages import MOST_HEAD, BadMessage, Request, Response, read_request, write_response
from .tokens import Tokens

DEALS_COST = 5
PRODUCT_COST = 1


class Faults(Struct, frozen=True):
    """What goes wrong, as shares of the calls: answered with 500 (for free), slow by `slow_for` seconds, or with JSON
    that breaks off (paid for all the same)."""

    errors: float = 0.0
    slow: float = 0.0
    broken: float = 0.0
    slow_for: float = 5.0


class Terms(Struct, frozen=True):
    """What the API grants and how it behaves. `latency` is the mean of an answer in seconds; each is half to one and a
    half of it. `start` None: the bucket is full at first."""

    capacity: int = 60
    rate: int = 20
    per: float = 60.0
    start: int | None = None
    latency: float = 0.0
    faults: Faults = Faults()
    seed: int = 0


class Counts(Struct):
    """What was asked of the API since it began. `spent` are tokens; `refused` the 429s, `refused_at` when they were;
    `paid` has the moment and the cost of each call that was paid."""

    calls: int = 0
    answered: int = 0
    refused: int = 0
    errors: int = 0
    slow: int = 0
    broken: int = 0
    spent: int = 0
    refused_at: list[int] = []
    paid: list[tuple[int, int]] = []


class Answer(Struct, frozen=True):
    """An answer without the tokens, which are the same in all."""

    status: int
    fields: dict[str, Any]
    cost: int = 0


class DealsApi:
    """The server: `async with DealsApi(terms, clock) as api:` listens on `api.url` until its end."""

    def __init__(self, terms: Terms | None = None, clock: Clock | None = None) -> None:
        self.terms = terms or Terms()
        self.counts = Counts()
        self.port = 0
        self._clock = clock or SystemClock()
        left = self.terms.capacity if self.terms.start is None else self.terms.start
        self._tokens = Tokens(
            self.terms.capacity, self.terms.rate, left, self._clock.now(), round(self.terms.per * 1000), offered=left
        )
        self._draws = Random(f"api/{self.terms.seed}")
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def tokens(self) -> Tokens:
        """As they are now."""
        self._tokens = self._tokens.at(self._clock.now())
        return self._tokens

    async def start(self, port: int = 0) -> None:
        """Listen on the loopback; port 0: any that is free."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=MOST_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End every connection. A second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await server.wait_closed()

    async def __aenter__(self) -> DealsApi:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # -- one connection

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer. False: the connection ends."""
        try:
            request = await read_request(reader)
        except BadMessage as error:
            answer = self._respond(Answer(error.status, {"error": str(error)}), False)
            writer.write(write_response(answer))
            await writer.drain()
            return False
        if request is None:
            return False
        writer.write(write_response(await self._call(request)))
        await writer.drain()
        return request.stays

    async def _call(self, request: Request) -> Response:
        """Half of the latency is the way there, half the way back: what an answer says is a bit old when it comes, and
        answers overtake each other."""
        self.counts.calls += 1
        there, back = (self.terms.latency * self._draws.uniform(0.5, 1.5) / 2 for _ in range(2))
        await self._sleep(there)
        answer, slow, broken = self._draw_fault(request) or (self._answer(request), False, False)
        response = self._respond(answer, request.stays, broken)
        await self._sleep(back + (self.terms.faults.slow_for if slow else 0.0))
        return response

    def _draw_fault(self, request: Request) -> tuple[Answer, bool, bool] | None:
        """The answer, and whether it is slow or broken; None: all goes well."""
        faults, draw = self.terms.faults, self._draws.random()
        if request.path == "/tokens":
            return None
        if draw < faults.errors:
            self.counts.errors += 1
            return Answer(500, {"error": "something went wrong here; nothing was charged"}), False, False
        if draw < faults.errors + faults.slow:
            self.counts.slow += 1
            return self._answer(request), True, False
        if draw < faults.errors + faults.slow + faults.broken:
            answer = self._answer(request)
            self.counts.broken += answer.status == 200
            return answer, False, answer.status == 200
        return None

    # -- what is asked, and what it costs

    def _answer(self, request: Request) -> Answer:
        if request.method != "GET":
            return Answer(405, {"error": f"{request.method} is not understood; use GET"})
        make = {"/deals": self._deals, "/products": self._products, "/tokens": lambda _: Answer(200, {})}
        asked: Callable[[Request], Answer] | None = make.get(request.path)
        if asked is None:
            return Answer(404, {"error": f"there is no {request.path}; there are {', '.join(make)}"})
        answer = asked(request)
        return self._charge(answer) if answer.cost else answer

    def _deals(self, request: Request) -> Answer:
        category = request.query.get("category", "")
        if category not in CATEGORIES:
            return Answer(400, {"error": f"category: must be one of {', '.join(CATEGORIES)}, not {category!r}"})
        found = deals_of(category, self._clock.now() // 3_600_000, self.terms.seed)
        return Answer(200, {"deals": found}, DEALS_COST)

    def _products(self, request: Request) -> Answer:
        asins = [asin for asin in request.query.get("asins", "").split(",") if asin]
        if not 0 < len(asins) * PRODUCT_COST <= self.terms.capacity:
            return Answer(400, {"error": f"asins: name 1 to {self.terms.capacity} of them, not {len(asins)}"})
        hour = self._clock.now() // 3_600_000
        return Answer(200, {"products": [product(asin, hour, self.terms.seed) for asin in asins]}, len(asins))

    def _charge(self, answer: Answer) -> Answer:
        rest = self.tokens.spend(answer.cost)
        if rest is None:
            self.counts.refused += 1
            self.counts.refused_at.append(self._clock.now())
            return Answer(429, {"error": f"{answer.cost} tokens are needed"}, answer.cost)
        self._tokens = rest
        self.counts.answered += 1
        self.counts.spent += answer.cost
        self.counts.paid.append((self._clock.now(), answer.cost))
        return answer

    def _respond(self, answer: Answer, stays: bool, broken: bool = False) -> Response:
        now, tokens = self._clock.now(), self.tokens
        fields = {"tokensLeft": tokens.left, "refillIn": tokens.refill_in(now), "refillRate": tokens.rate}
        headers = {} if stays else {"connection": "close"}
        if answer.status == 429:
            headers["retry-after"] = str(ceil(tokens.affordable_in(answer.cost, now) / 1000))
        body = msgspec.json.encode(fields | answer.fields)
        return Response(answer.status, body[: len(body) // 2] if broken else body, headers)

    async def _sleep(self, seconds: float) -> None:
        """By the clock of the API, so that a simulated clock moves this, too."""
        if seconds > 0:
            woken = asyncio.Event()
            cancel = self._clock.call_at(self._clock.now() + round(seconds * 1000), woken.set)
            try:
                await woken.wait()
            finally:
                cancel()


async def _main(port: int, terms: Terms) -> None:
    api = DealsApi(terms)
    await api.start(port)
    print(f"the deals API listens on {api.url}: {terms.rate} tokens a minute, at most {terms.capacity}")
    try:
        await asyncio.Event().wait()
    finally:
        await api.close()


def main(arguments: list[str] | None = None) -> None:
    """Serve until interrupted."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m examples.deals.api", description="A paid deals API, to try with.")
    parser.add_argument("--port", type=int, default=8095)
    parser.add_argument("--rate", type=int, default=20, help="tokens a minute (%(default)s)")
    parser.add_argument("--capacity", type=int, default=60, help="tokens that it keeps at most (%(default)s)")
    parser.add_argument("--latency", type=float, default=0.3, help="mean seconds of an answer (%(default)s)")
    parser.add_argument("--errors", type=float, default=0.0, help="share of 500s (%(default)s)")
    given = parser.parse_args(arguments)
    faults = Faults(errors=given.errors)
    terms = Terms(capacity=given.capacity, rate=given.rate, latency=given.latency, faults=faults)
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(given.port, terms))


if __name__ == "__main__":
    main()
