"""A private PgBouncer in front of a private PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from proof.servers.postgres import PostgresServer, takes_clients, unprivileged_user
from proof.servers.postgres_data import USER
from proof.servers.process import Process, find_program


class PgBouncer(Process):
    """With PgBouncer's default settings, which pool by session, and those given, such as "pool_mode = transaction"."""

    def __init__(self, server: PostgresServer, *settings: str) -> None:
        self._pgbouncer = find_program("pgbouncer", "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin")
        self.user = unprivileged_user()
        super().__init__()
        self._server = server
        self._settings = settings

    @property
    def url(self) -> str:
        return self._server.url_at(self.port)

    def command(self) -> Sequence[str]:
        return [self._pgbouncer, str(self.folder / "pgbouncer.ini")]

    def start(self) -> Self:
        users = self.folder / "users.txt"
        users.write_text(f'"{USER}" ""\n')
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={self._server.port}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = trust",
            f"auth_file = {users}",
            *self._settings,
        ]
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        return super().start()

    def stop(self) -> None:
        """Ends it without waiting for clients."""
        self.kill()

    def is_up(self) -> bool:
        return takes_clients(self.port)
