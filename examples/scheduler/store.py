"""Where the example keeps its jobs: a Redis server of its own, looked at with `redis-cli`, or an SQLite file."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

PREFIX = "scheduler"
KEY = PREFIX + ":queue:"
"""What the keys of the queue named `queue` begin with. The braces keep a queue's keys on one node of a Cluster."""


class Store:
    """A store's URL. `look` answers a command of `redis-cli`, where there is one."""

    def __init__(self, url: str, look: Callable[[list[str]], str] | None = None) -> None:
        self.url = url
        self._look = look

    def show(self, command: str, key: str, *rest: str) -> None:
        """Show what is stored under a key of the queue; nothing without Redis."""
        if self._look is not None:
            words = [command, KEY + key, *rest]
            print(f"$ redis-cli --no-raw {command} '{KEY}{key}' {' '.join(rest)}".rstrip())
            print(self._look(words), end="")


def sqlite_store(folder: str) -> Store:
    print("There is no redis-server or redis-cli here, so the jobs are in an SQLite file.")
    return Store(f"sqlite:///{Path(folder) / 'scheduler.db'}")


def redis_store(folder: str, stack: ExitStack) -> Store | None:
    """A server that ends with `stack`; None: there is none to start, or no driver for it."""
    server, client = shutil.which("redis-server"), shutil.which("redis-cli")
    if server is None or client is None or importlib.util.find_spec("hiredis") is None:
        return None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [server, "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "yes"]
    print(f"$ {shlex.join(['redis-server', *command[1:]])} &")
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    stack.callback(process.terminate)

    def look(words: list[str]) -> str:
        asked = [client, "-p", port, "--no-raw", *words]
        return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False).stdout

    while "PONG" not in look(["PING"]):
        if process.poll() is not None:
            return None
        time.sleep(0.02)
    return Store(f"redis://127.0.0.1:{port}/0?prefix={PREFIX}", look)
