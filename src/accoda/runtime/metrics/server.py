"""A small HTTP server in a thread: `/metrics`, `/health/live`, `/health/ready`. It needs no extra.

A thread, because it must answer while a handler blocks the event loop: that is when it is most wanted.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct

from accoda.errors import CannotListen, InvalidInput
from accoda.runtime.metrics.lanes import MOST_LANES
from accoda.runtime.metrics.text import PAGE_TYPE

log = logging.getLogger("accoda.metrics")

LOOPBACK = "127.0.0.1"
TEXT_TYPE = "text/plain; charset=utf-8"

Collect = Callable[[], bytes]
CollectLanes = Callable[[int], bytes]
Ready = Callable[[], tuple[bool, str]]


class Response(Struct, frozen=True):
    """What is sent back to a probe."""

    status: int
    body: bytes
    type: str = TEXT_TYPE


def always_ready() -> tuple[bool, str]:
    return True, ""


def serve(
    port: int,
    host: str = LOOPBACK,
    collect: Collect | None = None,
    ready: Ready = always_ready,
    lanes: CollectLanes | None = None,
) -> Server:
    """Listen and answer until `close`. Port 0 picks a free one: `server.port` tells it.

    `collect`, `ready` and `lanes` are called in threads of the server. Without `collect` there is only health. `lanes`
    gives what `/metrics?lanes=10` adds to the page.
    """
    if type(port) is not int or not 0 <= port <= 65535:
        raise InvalidInput("port", f"must be an integer from 0 to 65535, not {port!r}")
    return Server(_listen(host, port, lambda path: answer(path, collect, ready, lanes)))


def answer(path: str, collect: Collect | None, ready: Ready, lanes: CollectLanes | None = None) -> Response:
    """What belongs to a path. What the callbacks raise is an answer too: a probe must not be left without one."""
    path, _, query = path.partition("?")
    match path:
        case "/metrics" if collect is not None:
            return _metrics(query, collect, lanes)
        case "/health/live":
            return Response(200, b"alive\n")
        case "/health/ready":
            return _readiness(ready)
    return Response(404, b"not found; there is /metrics, /health/live, /health/ready\n")


def _metrics(query: str, collect: Collect, lanes: CollectLanes | None) -> Response:
    asked = parse_qs(query, keep_blank_values=True).get("lanes", ["0"])[-1]
    most = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 4 else -1
    if not 0 <= most <= MOST_LANES:
        return Response(400, f"lanes: must be an integer from 0 to {MOST_LANES}\n".encode())
    if most and lanes is None:
        return Response(400, b"lanes: not with several processes; a service has them (accoda serve)\n")
    try:
        page = collect()
    except Exception as error:
        log.warning("the metrics page failed: %s: %s", type(error).__name__, error, exc_info=True)
        return Response(500, b"the metrics page failed; the log says why\n")
    if most and lanes is not None:
        try:
            page += lanes(most)
        except Exception as error:  # the event loop is blocked, or the store is away: the rest is wanted all the more
            log.warning("the lanes are not on the metrics page: %s: %s", type(error).__name__, error)
    return Response(200, page, PAGE_TYPE)


def _readiness(ready: Ready) -> Response:
    try:
        good, reason = ready()
    except Exception as error:
        good, reason = False, f"the check failed: {type(error).__name__}: {error}"
    if good:
        return Response(200, b"ready\n")
    return Response(503, f"{reason or 'not ready'}\n".encode("utf-8", "replace"))


class Server:
    """A server that runs. `close` it, or leave its `with` block; a second close does no harm."""

    def __init__(self, http: _Http) -> None:
        self._http = http
        self.host: str = http.server_address[0]  # type: ignore[assignment]  # no Unix socket: always a text
        self.port: int = http.server_address[1]
        self._thread: threading.Thread | None = threading.Thread(
            target=http.serve_forever, kwargs={"poll_interval": 0.1}, name="accoda-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._http.shutdown()
            thread.join()
            self._http.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that reads slowly does not hold up the end of the worker
    allow_reuse_address = os.name != "nt"  # there it would let two programs share a port

    def __init__(self, family: socket.AddressFamily, address: Any, respond: Callable[[str], Response]) -> None:
        self.address_family = family
        self.respond = respond
        super().__init__(address, _Request)

    def server_bind(self) -> None:
        # The parent asks the name service for this machine's name, which can take seconds and is not used here.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request from %s broke off", client_address, exc_info=True)


class _Request(BaseHTTPRequestHandler):
    timeout = 10  # seconds for a client that sends nothing, so that it does not keep a thread
    server: _Http

    def do_GET(self) -> None:
        found = self.server.respond(self.path)
        self.send_response(found.status)
        self.send_header("Content-Type", found.type)
        self.send_header("Content-Length", str(len(found.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "accoda"

    def log_message(self, format: str, *args: object) -> None:
        log.debug("%s %s", self.client_address[0], format % args)


def _listen(host: str, port: int, respond: Callable[[str], Response]) -> _Http:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Http(family, address, respond)
    except socket.gaierror as error:
        raise CannotListen(host, port, "there is no such host; give an address of this machine") from error
    except OSError as error:
        raise CannotListen(host, port, _problem(error)) from error


def _problem(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "it is in use, perhaps by another worker; choose another with --metrics-port (0: any free one)"
    if error.errno == errno.EACCES:
        return "not allowed; choose one above 1023 with --metrics-port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "that is no address of this machine; 127.0.0.1 and 0.0.0.0 always are"
    return error.strerror or str(error)
