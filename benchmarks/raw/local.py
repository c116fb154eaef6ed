"""The bare engines of this process: a heap and SQLite."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import apsw

from accoda.storage.sqlite.connection import SCHEMA, wait_for_lock
from benchmarks.raw.shape import PAYLOAD, Leases


class RawHeap:
    """A heap of (rank, id), a dict of jobs, a dict of leases."""

    def __init__(self, levels: int) -> None:
        self.levels = levels
        self.heap: list[tuple[float, int]] = []
        self.jobs: dict[int, tuple[float, bytes, int, int]] = {}
        self.leases: dict[int, tuple[int, int, int]] = {}
        self.last = 0
        self.done = 0

    async def enqueue(self, count: int) -> None:
        now = time.time_ns() // 1_000_000
        for _ in range(count):
            self.last += 1
            rank = float(self.last % self.levels)
            self.jobs[self.last] = (rank, PAYLOAD, 0, now)
            heappush(self.heap, (rank, self.last))

    async def take(self, count: int) -> Leases:
        now = time.time_ns() // 1_000_000
        leases: Leases = []
        while self.heap and len(leases) < count:
            _, id = heappop(self.heap)
            attempts = self.jobs[id][2]
            self.leases[id] = (attempts, now, now + 60_000)
            leases.append((id, attempts, now))
        return leases

    async def settle(self, leases: Leases) -> None:
        now = time.time_ns() // 1_000_000
        for id, attempts, taken_at in leases:
            held = self.leases.get(id)
            if held is not None and held[:2] == (attempts, taken_at) and held[2] > now:
                del self.leases[id], self.jobs[id]
                self.done += 1

    async def close(self) -> None:
        self.heap.clear()
        self.jobs.clear()


class RawSqlite:
    """apsw in one thread on the same tables, a transaction for each call."""

    def __init__(self, path: Path, levels: int) -> None:
        self.levels = levels
        self.connection = apsw.Connection(str(path))
        self.connection.set_busy_handler(wait_for_lock())
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self.connection.execute("PRAGMA cache_size = -65536; PRAGMA wal_autocheckpoint = 4000")
        if not self.connection.execute("SELECT count(*) FROM sqlite_schema").get:
            self.connection.execute(SCHEMA)
        self.connection.execute("INSERT OR IGNORE INTO queues (no, name) VALUES (1, 'q')")
        self.run = self.connection.cursor().execute
        self.run_many = self.connection.cursor().executemany
        self.records: list[bytes] = []  # the data that the last take gave

    async def enqueue(self, count: int) -> None:
        self.put([PAYLOAD] * count)

    def put(self, payloads: Sequence[bytes]) -> None:
        now = time.time_ns() // 1_000_000
        self.run("BEGIN IMMEDIATE")
        first: int = self.run("SELECT value FROM counters WHERE name = 'last_id'").get + 1
        self.run_many(
            "INSERT INTO jobs (id, queue, state, sort, rank, cost, created_at, start_time, keep_for, data) "
            "VALUES (?, 1, 0, ?, ?, 0, ?, ?, 0, ?)",
            [(id, rank := float(id % self.levels), rank, now, now, data) for id, data in enumerate(payloads, first)],
        )
        self.run("UPDATE counters SET value = ? WHERE name = 'last_id'", (first + len(payloads) - 1,))
        self.run("UPDATE queues SET ready = ready + ? WHERE no = 1", (len(payloads),))
        self.run("COMMIT")

    async def take(self, count: int) -> Leases:
        now = time.time_ns() // 1_000_000
        self.run("BEGIN IMMEDIATE")
        rows: list[Any] = self.run(
            "SELECT id, attempts, data, rank, cost, key, created_at, start_time, prev_start_time, waiters FROM jobs "
            "WHERE queue = 1 AND state = 0 ORDER BY sort, id LIMIT ?",
            (count,),
        ).fetchall()
        if not rows:
            self.run("ROLLBACK")
            return []
        self.run(
            "UPDATE jobs SET state = 2, sort = ?, worker = 'raw', taken_at = ? WHERE id IN carray(?)",
            (now + 60_000, now, _ids(row[0] for row in rows)),
        )
        self.run("UPDATE queues SET ready = ready - ?1, taken = taken + ?1 WHERE no = 1", (len(rows),))
        self.run("COMMIT")
        self.records = [row[2] for row in rows]
        return [(row[0], row[1], now) for row in rows]

    async def settle(self, leases: Leases) -> None:
        now = time.time_ns() // 1_000_000
        self.run("BEGIN IMMEDIATE")
        ids = _ids(id for id, _, _ in leases)
        held = set(
            self.run(
                "SELECT id, attempts, taken_at FROM jobs WHERE id IN carray(?) AND state = 2 AND sort > ?", (ids, now)
            )
        )
        good = [lease[0] for lease in leases if lease in held]
        self.run("DELETE FROM jobs WHERE id IN carray(?)", (_ids(good),))
        self.run("UPDATE queues SET taken = taken - ?1, done = done + ?1 WHERE no = 1", (len(good),))
        self.run("COMMIT")

    async def close(self) -> None:
        self.connection.close()


def _ids(ids: Any) -> Any:
    return apsw.carray(array("q", ids))
