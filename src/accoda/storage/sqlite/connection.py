"""Opens the file, makes its tables, and turns SQLite's errors into Accoda's."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import apsw

from accoda.errors import (
    AccodaError,
    MissingDriver,
    NotADatabase,
    SchemaMismatch,
    StorageError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
)

APPLICATION_ID = 0x41636364  # "Accd": tells our files from those of other programs
LAYOUT = 1
SCHEMA = (files("accoda.storage.sqlite") / "schema.sql").read_text(encoding="utf-8")
SAFE_SQLITE = 3_051_003  # before it, several writers could corrupt a WAL file (the "WAL-reset bug")
LOCK_PATIENCE = 60.0  # seconds that a transaction waits for other processes before it gives up
STATEMENTS = 200
"""Places for prepared statements. There are fewer than a hundred, but for each row of an `executemany` apsw takes a
place in turn: of 100 places, as many rows would push all other statements out, and to prepare one takes as long as to
run it a few times. More places take time to search."""
SHORT_NAPS = 200  # of half a millisecond: so many before the longer ones

DURABILITY = ("full", "fast")
"""What was acknowledged survives a power cut; or only kill -9, and a power cut may take the last moments. The file is
never damaged."""


def connect(path: Path) -> apsw.Connection:
    """Open or create the store. Any number of processes may do so at the same moment."""
    if apsw.SQLITE_VERSION_NUMBER < SAFE_SQLITE or _library_version() < SAFE_SQLITE:
        raise MissingDriver(
            f"this apsw uses SQLite {apsw.sqlite_lib_version()}, which can damage a file that several processes write; "
            "install the wheel that brings its own: pip install --force-reinstall 'apsw>=3.51.3'"
        )
    _check_place(path)
    with translated(path):
        connection = apsw.Connection(str(path), statementcachesize=STATEMENTS)
    try:
        with translated(path):
            connection.set_busy_handler(wait_for_lock())
            _make_layout(connection, path)
            # A commit does not wait for the disk; the acknowledgement does: see `log.py`.
            connection.execute("PRAGMA synchronous = NORMAL")
            # The plan of a statement does not depend on its values. Without this SQLite, where it was built to keep
            # samples of columns, makes many statements anew each time that a value is bound: about 10 µs for each.
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
            # 64 MB of pages in memory: measured, see docs/decisions/0002-sqlite.md. Checkpoints are made by `log.py`; a
            # log that a reader made longer than 64 MB is cut off there when it begins anew.
            connection.execute("PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA journal_size_limit = 67108864")
    except BaseException:
        with contextlib.suppress(apsw.Error):  # what went wrong first is what the caller should hear
            connection.close()
        raise
    return connection


def _library_version() -> int:
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    return major * 1_000_000 + minor * 1000 + patch


def _check_place(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise StorageUnavailable(f"there is no folder {folder}; create it, or choose another path for {path.name}")
    if path.is_dir():
        raise NotADatabase(f"{path} is a folder; name a file in it, for example {path / 'accoda.db'}")
    if not os.access(folder, os.W_OK):
        raise StorageReadOnly(
            f"the folder {folder} cannot be written; SQLite keeps its log beside the file, so it must be"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise StorageReadOnly(f"{path} cannot be written by this user; a queue must be")


def wait_for_lock(patience: Callable[[], float] = lambda: LOCK_PATIENCE) -> Callable[[int], bool]:
    """A busy handler: short random naps, so that processes that write all the time take turns. `patience` is asked at
    each nap.

    Longer ones only for a lock that is held for long: eight busy processes wait 10 to 20 ms for their turn, and if all
    of them slept longer, the file would be free and none would write.
    """
    since = 0.0

    def nap(earlier: int) -> bool:
        nonlocal since
        now = time.monotonic()
        if earlier == 0:
            since = now
        time.sleep(random.uniform(0.0001, 0.001 if earlier < SHORT_NAPS else 0.01))
        return now - since < patience()

    return nap


def _make_layout(connection: apsw.Connection, path: Path) -> None:
    _refuse_strangers(connection, path)
    _use_wal(connection)
    if _version(connection) == LAYOUT:
        return
    connection.execute("BEGIN IMMEDIATE")  # of several newcomers one makes it; the others wait here, then see it done
    try:
        _refuse_strangers(connection, path)
        if _version(connection) == 0:
            connection.execute(SCHEMA)
            connection.execute(f"PRAGMA user_version = {LAYOUT}; PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _use_wal(connection: apsw.Connection) -> None:
    # Two newcomers that change the mode at once are a deadlock in SQLite's eyes, for which it asks no busy handler.
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.001, 0.01))


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _refuse_strangers(connection: apsw.Connection, path: Path) -> None:
    # In this order: a new store gets its tables and its mark in one commit, so after the tables the mark is seen too.
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    owner = connection.pragma("application_id")
    if owner == APPLICATION_ID:
        version = _version(connection)
        if version > LAYOUT:
            raise SchemaMismatch(
                f"{path} was written by a newer Accoda (layout {version}; this one knows up to {LAYOUT}); "
                "upgrade with: pip install --upgrade accoda"
            )
    elif owner or tables:
        raise NotADatabase(f"{path} is a database of another program; choose another file for the queue")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into Accoda's."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path) from error


def translate(error: BaseException, path: Path) -> BaseException:
    """The error that a caller should see for one of SQLite's."""
    match error:
        case AccodaError():
            return error
        case apsw.BusyError() | apsw.LockedError():
            return StorageUnavailable(
                f"{path} stayed locked by another process; look for a program that holds a "
                "transaction open, then try again: nothing was changed"
            )
        case apsw.FullError():
            return StorageFull(f"no space left for {path}; free some and try again: nothing was changed")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StorageReadOnly(
                f"{path} cannot be opened for writing ({error}); check the rights of file and folder"
            )
        case apsw.NotADBError():
            return NotADatabase(f"{path} is not an SQLite database; choose another file for the queue")
        case apsw.CorruptError():
            return NotADatabase(f"{path} is damaged ({error}); keep a copy, then try: sqlite3 {path.name} .recover")
        case apsw.IOError():
            return StorageUnavailable(
                f"the disk failed on {path} ({error}); check it and try again: nothing was changed"
            )
        case apsw.Error():
            return StorageError(f"{path}: {error}")
    return error


def unsynced(error: BaseException, path: Path) -> BaseException:
    """What a caller is told whose change was made, but could not be brought to the disk."""
    return StorageUnavailable(
        f"the disk could not keep a change of {path} ({error}); check it and try again: the change was made, and lasts "
        "if the disk recovers, but a power cut before that takes it back",
        unsure=True,
    )
