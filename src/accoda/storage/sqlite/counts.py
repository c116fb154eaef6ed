"""`stats` as a step inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accoda.model import QueueStats, Stats
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.sqlite.aside import gather_strays
from accoda.storage.sqlite.jobs import apply_due, forget_kept
from accoda.storage.sqlite.transaction import FAR, Transaction


def stats(tx: Transaction) -> Stats:
    left = gather_strays(tx, DUE_AT_ONCE)
    for (queue,) in tx.rows("all_queues"):
        _, left = apply_due(tx, queue, left)
        left = forget_kept(tx, queue, left)
    tx.finish()
    queues = {}
    for row in tx.rows("stats", tx.now):
        queue, name, *counts = row[0], row[1].decode("utf-8", "replace"), *row[2:6]
        if min(counts) < 0 or max(counts) > FAR:
            tx.recount(queue)
            return stats(tx)
        queues[name] = _stats_of(tx, row[2:])
    return Stats(queues)


def _stats_of(tx: Transaction, row: Sequence[Any]) -> QueueStats:
    ready, taken, delayed, dead, done, retried, buried, expired, paused, until, oldest = row
    return QueueStats(
        total=ready + taken + delayed + dead,
        ready=ready,
        taken=taken,
        delayed=delayed,
        dead=dead,
        oldest_age=0.0 if oldest is None else max(0, tx.now - oldest) / 1000,
        done=done,
        retried=retried,
        buried=buried,
        expired=expired,
        paused=bool(paused),
        paused_until=until if paused else None,
    )
