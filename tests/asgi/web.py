"""Web applications that a real uvicorn serves, in a thread or a process of its own; and what streams of theirs say."""

import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx2
import msgspec
import uvicorn
from proof.servers.process import Process


class Served:
    """Serves while its `with` block runs. `url` is where."""

    def __init__(self, web: Any) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(web, log_config=None, lifespan="on", ws="none"))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the web application did not start")
            self._thread.join(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()
        assert not self._thread.is_alive(), "the web application does not end"


class WebProcess(Process):
    """`uvicorn package.module:application`."""

    def __init__(self, application: str, environment: Mapping[str, str]) -> None:
        super().__init__()
        self._application = application
        self._environment = environment
        self.url = f"http://127.0.0.1:{self.port}"

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def command(self) -> Sequence[str]:
        return (sys.executable, "-m", "uvicorn", self._application, "--port", str(self.port))

    def is_up(self) -> bool:
        with socket.socket() as probe:  # it listens only when its lifespan has begun
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


Event = tuple[str | None, str, Any]


def events(reply: httpx2.Response) -> Iterator[Event]:
    """Each event of a stream: its id, its name, and what it says. A comment is an event of no name."""
    fields: dict[str, str] = {}
    for line in reply.iter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "retry" not in fields:
                yield fields.get("id"), fields.get("event", ""), msgspec.json.decode(fields.get("data", "null"))
            fields = {}
