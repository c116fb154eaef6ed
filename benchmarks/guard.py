"""What the guard of the HTTP service costs a request, step by step: `python -m benchmarks.guard`.

One request with a valid token and a body of 60 bytes, in this process, without a network. The best of several rounds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from accoda.app import App
from accoda.http.security import LOCAL, Guard, Security, tokens
from accoda.http.security.answers import NO_GUESS, NO_STORE, with_defaults

ROUNDS, REQUESTS = 7, 20_000
ANSWER = [(b"content-type", b"application/json"), (b"content-length", b"2"), NO_STORE, NO_GUESS]


class Nothing:
    """Stands where the service is: reads the body and answers."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 201, "headers": ANSWER})
        await send({"type": "http.response.body", "body": b"{}"})


async def receive() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b"x" * 60, "more_body": False}


async def send(message: MutableMapping[str, Any]) -> None:
    pass


def scope_of(token: str) -> MutableMapping[str, Any]:
    headers = {
        "host": "127.0.0.1:8000",
        "accept": "*/*",
        "accept-encoding": "gzip",
        "user-agent": "bench",
        "connection": "keep-alive",
        "authorization": f"Bearer {token}",
        "content-type": "application/json",
        "content-length": "60",
    }
    return {
        "type": "http",
        "method": "POST",
        "path": "/api/v1/jobs",
        "raw_path": b"/api/v1/jobs",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8000),
    }


async def cost(call: Callable[[], Awaitable[Any] | Any]) -> float:
    """Microseconds of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(REQUESTS):
            answer = call()
            if asyncio.iscoroutine(answer):
                await answer
        best = min(best, time.perf_counter() - began)
    return best / REQUESTS * 1e6


async def _read(guard: Guard, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]) -> bytes:
    guard._check_body(scope, LOCAL, headers)
    return await guard._bodies.read(receive)


async def main() -> None:
    async with App("memory://") as app:
        inner = Nothing(app)
        guard = Guard(inner, Security(rate=1e8))
        _, token = await tokens.create(app.storage, "bench", ["enqueue"], now=0)
        scope = scope_of(token)
        headers: dict[bytes, bytes] = {}
        await guard(scope, receive, send)
        guard._admit(scope, headers)
        steps: dict[str, Callable[[], Any]] = {
            "path, method, Host, Origin": lambda: guard._admit(scope, {}),
            "token and rate": lambda: guard._identify(scope, headers, time.monotonic()),
            "kind, length and reading of the body": lambda: _read(guard, scope, headers),
            "headers of the answer": lambda: with_defaults(ANSWER),
        }
        for name, step in steps.items():
            print(f"{name:40} {await cost(step):6.1f} µs")
        bare, guarded = await cost(lambda: inner(scope, receive, send)), await cost(lambda: guard(scope, receive, send))
        print(f"{'all of it, with the calls between':40} {guarded - bare:6.1f} µs")
        await guard.tokens.close()


if __name__ == "__main__":
    asyncio.run(main())
