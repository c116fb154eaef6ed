"""A private Tarantool server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from accoda.storage.tarantool.address import address_of
from accoda.storage.tarantool.open import connect
from proof.servers.disk import Disk
from proof.servers.process import Process, find_program

PASSWORD = "secret"
WORKER = "worker"

_SCRIPT = """
box.cfg{{
    listen = '127.0.0.1:{port}', wal_mode = '{wal_mode}', memtx_memory = {memory}, log = 'tarantool.log',
    checkpoint_interval = 0, readahead = 1024 * 1024,
}}
box.schema.user.passwd('admin', '{password}')
box.schema.user.create('{worker}', {{password = '{password}', if_not_exists = true}})
{new_log}
local ready = require('fio').open('ready', {{'O_CREAT', 'O_WRONLY', 'O_TRUNC'}}, tonumber('644', 8))
ready:write(tostring(require('tarantool').pid()))
ready:close()
"""

# After a clean stop, Tarantool 2.6 opens its last log again without O_SYNC, whatever `wal_mode` says. A new log has it.
_NEW_LOG = "if box.cfg.wal_mode == 'fsync' then box.snapshot() end"


class TarantoolServer(Process):
    """Its log is written with `wal_mode`: "write" survives a crash of the process, "fsync" one of the machine.

    `url` is the administrator's; `worker_url` that of a user without rights until some are granted.
    """

    def __init__(self, wal_mode: str = "write", memory: int = 256 * 1024 * 1024, disk: Disk | None = None) -> None:
        self._program = find_program("tarantool")
        super().__init__(disk)
        script = _SCRIPT.format(
            port=self.port, wal_mode=wal_mode, memory=memory, password=PASSWORD, worker=WORKER, new_log=_NEW_LOG
        )  # fmt: skip
        (self.folder / "init.lua").write_text(script)

    @property
    def url(self) -> str:
        return self.url_at(self.port)

    def url_at(self, port: int) -> str:
        """The administrator's, through another port that leads here."""
        return f"tarantool://admin:{PASSWORD}@127.0.0.1:{port}"

    @property
    def worker_url(self) -> str:
        return f"tarantool://{WORKER}:{PASSWORD}@127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return [self._program, "init.lua"]

    def is_up(self) -> bool:
        """The script writes its pid when all data is loaded and the port is open."""
        ready = self.folder / "ready"
        return ready.exists() and ready.read_text() == str(self.pid)


async def administer(url: str, script: str) -> Any:
    """Run a Lua script in the server, as the user of the URL; what it returns first."""
    connection = await connect(address_of(urlsplit(url)))
    try:
        return await connection.eval(script, ())
    finally:
        connection.close()


async def empty(url: str) -> None:
    """Make the store as new, without a restart."""
    spaces = ("jobs", "keys", "waiters", "kept", "lanes", "rules", "queues", "documents", "tombstones")
    spaces += ("numbers", "answers")
    await administer(url, "".join(f"box.space.accoda_{space}:truncate() " for space in spaces) + "return true")
