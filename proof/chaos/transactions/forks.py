"""Makes the processes that are killed: `python -m proof.chaos.transactions.forks`.

It imports every driver once and then forks for each line on its standard input, so that a new process costs
milliseconds. It has no thread and no connection of its own. All of them write lines to the same pipe, short enough to
arrive whole.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module

import msgspec

DRIVERS = (
    "asyncpg",
    "psycopg",
    "psycopg2",
    "aiosqlite",
    "apsw",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "sqlalchemy.ext.asyncio",
    "sqlalchemy.orm",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "accoda.storage.postgres.caller_transaction",
    "accoda.storage.redis.open",
    "accoda.transactions.relay",
)


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to do: `name` begins its lines. `first` is the number of its first order."""

    name: str
    does: str
    driver: str = ""
    database: str = ""
    store: str = ""
    outbox: str | None = None
    first: int = 0
    seed: int = 0
    pause: float = 0.0
    broken: bool = False
    """Enqueue outside of the transaction: the check must notice that."""


def say(role: Role, *words: object) -> None:
    os.write(1, f"{role.name} {' '.join(map(str, words))}\n".encode())


def play(role: Role) -> None:
    """Do it, in the new process, until it is killed."""
    from proof.chaos.transactions import roles

    say(role, "started", os.getpid())
    try:
        asyncio.run(roles.ROLES[role.does](role))
        say(role, "ended")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        say(role, "failed")


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    for name in DRIVERS:
        with suppress(Exception):  # Django wants settings for some; it loads the rest when it is set up
            import_module(name)
    import_module("proof.chaos.transactions.roles")
    os.write(1, b"forks ready\n")
    for line in sys.stdin.buffer:
        role = msgspec.json.decode(line, type=Role)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                play(role)
            finally:
                os._exit(0)
    os.killpg(0, signal.SIGKILL)  # the harness is gone: nobody would end the others


if __name__ == "__main__":
    main()
