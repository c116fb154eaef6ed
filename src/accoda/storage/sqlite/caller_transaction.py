"""`enqueue` in a transaction that is open on a caller's own apsw connection to the store's file.

The step is that of the writer, on the caller's connection and in the caller's thread. SQLite has one writer at a time:
while the transaction is open, the store's writers wait for its end, in this process and in others.

Only apsw will do: it is the copy of the library that the store uses. With another copy in the same process, neither
would be kept out by the locks of the other: see docs/decisions/0002-sqlite.md.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import apsw

from accoda.clock import Clock
from accoda.errors import InvalidInput
from accoda.model import Enqueued, NewJob
from accoda.storage.sqlite import jobs as job_steps
from accoda.storage.sqlite.clock_steps import HostClock, apply_step
from accoda.storage.sqlite.connection import APPLICATION_ID, LAYOUT
from accoda.storage.sqlite.transaction import Transaction
from accoda.storage.sqlite.watch import shared_file

PAUSES = (0.001, 0.005, 0.03, 0.2)
"""Seconds between the hints that follow the begin of a commit: most last about a millisecond, on a slow disk longer."""
_HOOK = "accoda"


def enqueue_on(connection: apsw.Connection, path: Path, clock: Clock | None, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Store all of them or none, in the transaction that is open, or in one of their own."""
    _check_file(connection, path)
    if not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
        try:
            answers = _enqueue(connection, path, clock, jobs)
            connection.execute("COMMIT")
        except BaseException:
            if not connection.get_autocommit():  # some errors end the whole transaction
                connection.execute("ROLLBACK")
            raise
        _touch(shared_file(path))
        return answers
    with _savepoint(connection):
        answers = _enqueue(connection, path, clock, jobs)
    connection.set_commit_hook(_Announcement(shared_file(path)), id=_HOOK)
    return answers


def _enqueue(connection: apsw.Connection, path: Path, clock: Clock | None, jobs: Sequence[NewJob]) -> list[Enqueued]:
    # Nothing is known of the queues before the transaction: whoever wrote last may have been another process.
    host = HostClock() if clock is None else None
    cursor = connection.cursor()
    cursor.row_trace = _as_it_is  # whatever the caller makes of rows
    tx = Transaction(cursor, (host or clock or HostClock()).now(), {}, writes=True)
    if host is not None and host.boot_id:
        apply_step(tx, host, path)
    answers = job_steps.enqueue(tx, jobs)
    tx.finish()
    return answers


@contextmanager
def _savepoint(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("SAVEPOINT accoda")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO accoda; RELEASE accoda")
        raise
    connection.execute("RELEASE accoda")


def _check_file(connection: apsw.Connection, path: Path) -> None:
    file = connection.db_filename("main")
    if not file or not path.exists() or not path.samefile(file):
        raise InvalidInput("connection", f"is to {file or 'a database in memory'}, but the app's store is {path}")
    if (connection.pragma("application_id"), connection.pragma("user_version")) != (APPLICATION_ID, LAYOUT):
        raise InvalidInput("connection", f"{path} has no store yet; run once: accoda migrate sqlite:///{path}")


class _Announcement:
    """Called before each commit. After the first, it wakes those who wait for jobs: a hint, see `watch.py`.

    It stays where it is, and the next call replaces it: to take it away when it has been called could take away that
    of a transaction which has begun meanwhile.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._called = False

    def __call__(self) -> bool:
        if not self._called:
            self._called = True
            _announcer(self._file).announce()
        return False  # let it go on


class _Announcer:
    """Tells of the commits of this process: in one thread, which ends when there is nothing more to tell.

    SQLite has no way to be told of the end of a commit that leaves its checkpoints alone, so it is told of more than
    once: who looks too early looks again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._another = threading.Event()
        self._runs = False

    def announce(self) -> None:
        """A commit begins."""
        with self._lock:
            self._another.set()
            if self._runs:
                return
            self._runs = True
        threading.Thread(target=self._run, name="accoda-commit", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._another.clear()
            self._hint()
            with self._lock:
                if not self._another.is_set():
                    self._runs = False
                    return

    def _hint(self) -> None:
        """All hints of a commit, or fewer if another begins: its hints are for both. The first one is always given."""
        time.sleep(PAUSES[0])
        _touch(self._file)
        for pause in PAUSES[1:]:
            if self._another.wait(pause):
                return
            _touch(self._file)


@cache
def _announcer(file: Path) -> _Announcer:
    return _Announcer(file)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_announcer.cache_clear)  # a forked process has no thread but its own


def _as_it_is(cursor: apsw.Cursor, row: tuple[apsw.SQLiteValue, ...]) -> tuple[apsw.SQLiteValue, ...]:
    return row


def _touch(file: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(file)
