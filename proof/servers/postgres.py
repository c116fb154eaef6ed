"""A private PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from proof.servers.disk import Disk
from proof.servers.postgres_data import DATABASE, USER, Programs, make_data
from proof.servers.process import Process, ServerMissing, find_program, wait_until


class PostgresServer(Process):
    """One cluster in a temporary folder, on a loopback port, where every client is trusted.

    `durable=False` leaves out fsync: what was acknowledged then survives kill -9 of the server, but no power cut.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        settings: Sequence[str] = (),
        connections: int = 100,
        disk: Disk | None = None,
    ) -> None:
        self._initdb = find_postgres("initdb")
        self._postgres = find_postgres("postgres")
        self.user = unprivileged_user()
        super().__init__(disk)
        self._settings = [
            *settings,
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            f"port={self.port}",
            f"fsync={'on' if durable else 'off'}",
            f"full_page_writes={'on' if durable else 'off'}",
            "logging_collector=off",
            f"max_connections={connections}",
        ]

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """The same, through another port that leads here."""
        return f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"

    def command(self) -> Sequence[str]:
        return [self._postgres, "-D", str(self.data), *(part for each in self._settings for part in ("-c", each))]

    def start(self) -> Self:
        if not self.data.exists():
            make_data(self.data, Programs(self._initdb, self._postgres, self.user))
        # Left behind by kill -9; the port and the folder are ours alone.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        return super().start()

    def stop(self) -> None:
        """Ends it without waiting for clients: for PostgreSQL that is SIGINT."""
        self._end(signal.SIGINT)

    def close(self) -> None:
        """Stop it at once, without writing to disk what is removed in the next moment."""
        self._end(signal.SIGQUIT)
        super().close()

    def kill(self) -> None:
        """End it as a power cut would. Its children are in sessions of their own: each is killed by its pid.

        It is stopped first: a child that it made after we had asked for them would keep the port, and the server could
        not come back.
        """
        pid = self.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _state(pid) in "TZX", self._explain)
        children = _children(pid)
        super().kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children), self._explain)

    def is_up(self) -> bool:
        return takes_clients(self.port)


def takes_clients(port: int) -> bool:
    """Whether PostgreSQL, or a pooler in front of it, takes part in the protocol there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            # A start-up packet that names a user; "R" asks for authentication, "E" says that it is starting still.
            body = b"\x00\x03\x00\x00user\x00" + USER.encode() + b"\x00database\x00postgres\x00\x00"
            probe.sendall((len(body) + 4).to_bytes(4, "big") + body)
            return probe.recv(1) == b"R"
    except OSError:
        return False


def _children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(child) for child in tasks.read_text().split()] if tasks.exists() else []


def _state(pid: int) -> str:
    """The letter by which the kernel tells what a process does: T if it is stopped; X, dead, also if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "X"


def find_postgres(name: str) -> str:
    """A program of the newest PostgreSQL: Debian keeps those out of PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return find_program(name, *(str(folder) for folder in folders), "/usr/local/pgsql/bin", "/opt/homebrew/bin")


def unprivileged_user() -> str | None:
    """The user to run as when we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise ServerMissing("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
