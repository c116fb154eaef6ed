"""`ServiceRunner`: the HTTP service on a free port of loopback, with a real uvicorn in a thread. For tests.

with ServiceRunner(App("memory://")) as service:
    reply = service.post("/api/v1/jobs", {"queue": "emails", "payload": {"to": "anna@example.com"}})
    assert reply.status == 201
"""

from __future__ import annotations

import http.client
import socket
import threading
from types import TracebackType
from typing import Any, Self

import msgspec

from accoda.app import App
from accoda.http.options import ServiceOptions


class Reply(msgspec.Struct, frozen=True):
    """What came back. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class ServiceRunner:
    """Serves an app while its `with` block runs. `system_jobs` is off unless the options say otherwise."""

    def __init__(self, app: App, options: ServiceOptions | None = None, *, port: int = 0) -> None:
        self.app = app
        self.options = ServiceOptions(system_jobs=False) if options is None else options
        self._wanted = port
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._local = threading.local()
        self._opened: list[http.client.HTTPConnection] = []

    def __enter__(self) -> Self:
        from accoda.http.server import Server, configuration, leave_of
        from accoda.service import create_service

        # With its protocol named: asyncio switches Nagle's algorithm off only for sockets that say they are TCP.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self._wanted))
        self._socket.listen(128)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.service = create_service(self.app, self.options)
        self.server = Server(configuration(self.service), leave=leave_of(self.service), started=self._ready.set)
        self._thread = threading.Thread(target=self._run, name="accoda-service", daemon=True)
        self._thread.start()
        self._ready.wait(30)
        if not self.server.started:
            self._thread.join(5)
            self._socket.close()
            raise RuntimeError("the service did not start; its log says why") from self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._opened:
            connection.close()
        self.stop()

    def stop(self) -> None:
        """What SIGTERM does. Returns when the service is gone."""
        self.server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        if self._thread.is_alive():
            raise RuntimeError("the service does not end")

    def _run(self) -> None:
        try:
            self.server.run(sockets=[self._socket])
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    # -- requests, over one connection for each thread that is kept alive

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self.request("POST", path, body, headers=headers)

    def request(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Reply:
        """Bytes are sent as they are, any other body as JSON. `_` in the name of a header stands for `-`."""
        sent = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
        if body is not None and "content-type" not in {name.lower() for name in sent}:
            sent["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            data = answer.read()
        except (http.client.HTTPException, OSError):
            self.disconnect()
            raise
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, data)

    def _connection(self) -> http.client.HTTPConnection:
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self._opened.append(found)
        return found

    def disconnect(self) -> None:
        """Close this thread's connection; the next request opens another."""
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
            self._local.connection = None
