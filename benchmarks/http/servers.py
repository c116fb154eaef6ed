"""The servers that are measured, each in a process of its own: `python -m benchmarks.http.servers bare|URL [token]`.

Prints its port, and its token if it was asked for one. All run under the settings of `accoda serve`: uvicorn with
httptools, uvloop where it is installed, no access log.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXED = b'{"id":1234567,"what":"created","waiters":0}'


@dataclass(frozen=True)
class Address:
    """Where a server listens, and what it wants to be shown."""

    port: int
    pid: int
    token: str | None = None

    def seconds_used(self) -> float:
        """Processor time of the server so far: what a request costs, whatever else runs on the machine."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bare() -> Any:
    """Starlette with endpoints that do nothing: one never looks at the body, the other reads it."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def ignore(request: Request) -> Response:
        return Response(FIXED, 201, media_type="application/json")

    async def read(request: Request) -> Response:
        await request.body()
        return Response(FIXED, 201, media_type="application/json")

    return Starlette(routes=[Route("/ignore", ignore, methods=["POST"]), Route("/read", read, methods=["POST"])])


def service(url: str, with_token: bool) -> tuple[Any, str]:
    """Accoda's service as it comes, guard included, but for the limit of the rate: that is not what is measured."""
    import asyncio

    from accoda import App
    from accoda.http import ServiceOptions
    from accoda.http.security.policy import Security
    from accoda.http.security.tokens import create
    from accoda.service import create_service

    async def make_token() -> str:
        token = await create(app.storage, "bench", ["enqueue", "work"], now=0)
        await app.close()
        return token[1]

    app = App(url)
    token = asyncio.run(make_token()) if with_token else ""
    return create_service(app, ServiceOptions(policy=Security(rate=1e9, burst=1e9))), token


def main() -> None:
    from accoda.http.server import Server, configuration, leave_of, spare_the_collector

    if sys.argv[1] == "bare":
        application, token = bare(), ""
        server = Server(configuration(application, http="httptools", proxy_headers=False), leave=lambda: None)
    else:
        application, token = service(sys.argv[1], "token" in sys.argv[2:])
        config = configuration(application, proxy_headers=False)
        server = Server(config, leave=leave_of(application), started=spare_the_collector)
    # TCP by name: asyncio sets TCP_NODELAY only then, and without it every answer waits 40 ms to be acknowledged.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        print(listener.getsockname()[1], token, flush=True)
        server.run([listener])


@contextmanager
def running(*arguments: str) -> Iterator[Address]:
    """A server in another process."""
    command = [sys.executable, "-m", "benchmarks.http.servers", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port, *token = process.stdout.readline().split()
            yield Address(int(port), process.pid, token[0] if token else None)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
