"""What happens to a WAL file that two copies of the SQLite library write in one process.

    python -m proof.damage.two_libraries

SQLite locks files with fcntl, whose locks belong to a process: two copies of the library in one process are not kept
apart by them. Two threads insert rows, one transaction each, on a connection each: both of apsw, or one of apsw and one
of the standard library. Then the rows that were acknowledged are counted, and the file is checked.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
from pathlib import Path
from typing import Any

import apsw

ROWS = 2000
"""By each of the two threads."""
RUNS = 20


def insert(connection: Any, writer: int, acknowledged: list[int], errors: list[str]) -> None:
    for n in range(ROWS):
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO t (writer, n, filling) VALUES (?, ?, ?)", (writer, n, "x" * 500))
            connection.execute("COMMIT")
            acknowledged[writer] += 1
        except (sqlite3.Error, apsw.Error) as error:
            errors.append(f"{type(error).__name__}: {error}")
            with contextlib.suppress(sqlite3.Error, apsw.Error):
                connection.execute("ROLLBACK")


def ours(path: Path) -> Any:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def theirs(path: Path) -> Any:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def run(folder: Path, second: Any) -> tuple[int, int, list[str]]:
    """Acknowledged rows that are missing, what the check complains of, and the errors."""
    path = folder / "t.db"
    connections = [ours(path)]
    connections[0].pragma("journal_mode", "wal")
    connections[0].execute("CREATE TABLE t (writer, n, filling); CREATE INDEX i ON t (n)")
    connections.append(second(path))
    acknowledged, errors = [0, 0], list[str]()
    threads = [
        threading.Thread(target=insert, args=(connection, writer, acknowledged, errors))
        for writer, connection in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        with contextlib.suppress(sqlite3.Error, apsw.Error):
            connection.close()
    try:
        check = ours(path)
        rows = check.execute("SELECT count(*) FROM t NOT INDEXED").get
        found = [row[0] for row in check.execute("PRAGMA integrity_check")]
    except apsw.Error as error:
        rows, found = 0, [f"{type(error).__name__}: {error}"]
    return sum(acknowledged) - rows, 0 if found == ["ok"] else len(found), errors


def main() -> None:
    for title, second in (("apsw and apsw", ours), ("apsw and sqlite3", theirs)):
        damaged = incomplete = missing = failed = 0
        kinds: dict[str, int] = {}
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                lost, complaints, errors = run(Path(folder), second)
            damaged += complaints > 0
            incomplete += lost > 0
            missing += max(0, lost)
            failed += len(errors)
            for error in errors:
                kinds[error] = kinds.get(error, 0) + 1
        print(f"{title}: {RUNS} runs of 2 x {ROWS} rows; damaged files {damaged}; runs with lost rows {incomplete}")
        print(f"  acknowledged rows that are missing {missing}; errors {failed} {dict(sorted(kinds.items())[:5])}")


if __name__ == "__main__":
    main()
