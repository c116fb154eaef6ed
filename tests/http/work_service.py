"""A service in a process of its own, to be killed: `python work_service.py URL PORT`. Prints a line when it answers."""

import asyncio
import socket
import sys

from accoda import App
from accoda.http import ServiceOptions
from accoda.http.server import Server, configuration, leave_of
from accoda.service import create_service


def main() -> None:
    url, port = sys.argv[1], int(sys.argv[2])
    service = create_service(App(url), ServiceOptions(system_jobs=False))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        server = Server(
            configuration(service),
            leave=leave_of(service),
            started=lambda: print("ready", flush=True),  # noqa: T201 - the test waits for it
        )
        asyncio.run(server.serve([listener]))


if __name__ == "__main__":
    main()
