"""Who is measured at what. Each queue has as many slots as its turn says, in the way that its documentation gives.

As in the other comparison: no results are kept, no job is logged, and a peer that polls and lets its user say how often
is told each 10 ms.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.peers import catalogue as peers
from benchmarks.peers.peer import Peer

STORAGES = ("redis", "postgres", "sqlite", "tarantool")
ASYNC, DEF = ("async-10", "async-50"), ("def-10", "def-50")
MIXED = (*ASYNC, *DEF)
SLOW = ("slow", "nine")
BUSY = ("busy",)
TYPED = ("untyped", "one-type", "five-types")
PARTS = {"mixed": MIXED, "slow": SLOW, "busy": BUSY, "typed": TYPED}
MEASURES = tuple(measure for part in PARTS.values() for measure in part)


def _accoda(storage: str) -> Peer:
    """The options are those of the drains; in all other measures it runs by default, or says `concurrency`."""
    drained = next(peer for peer in peers.PEERS if peer.name == peers.OURS and peer.storage == storage)
    setting = "10 slots: its default; 50: concurrency=50"
    measures = TYPED if storage == "tarantool" else MEASURES
    return replace(drained, setting=setting, measures=measures, script="mixed")


def _peer(name: str, storage: str, title: str, setting: str, **more: object) -> Peer:
    given = {"measures": MIXED, "script": "mixed", **more}
    return Peer(name, storage, title, setting, 0, **given)  # type: ignore[arg-type]


ENTRIES: tuple[Peer, ...] = (
    *(_accoda(storage) for storage in STORAGES),
    _peer(
        "saq", "redis", "SAQ", "concurrency=n, its pool has n threads, retries=3, orjson, hiredis, uvloop",
        options={"queue": {"max_concurrent_ops": 100}},
    ),
    _peer(
        "saq", "postgres", "SAQ", "concurrency=n, its pool has n threads, retries=3, orjson, psycopg 3, uvloop",
    ),
    _peer(
        "arq", "redis", "arq", "max_jobs=n, def: in an executor of n threads, polls each 10 ms, hiredis, uvloop",
        options={"poll_delay": 0.01},
    ),
    _peer(
        "taskiq-stream", "redis", "taskiq, stream", "max_async_tasks=n, sync_workers=n, orjson, hiredis, uvloop",
        options={"broker": "stream"},
    ),
    _peer(
        "taskiq-list", "redis", "taskiq, list", "max_async_tasks=n, sync_workers=n, orjson, hiredis, uvloop",
        options={"broker": "list"},
    ),
    _peer(
        "dramatiq", "redis", "Dramatiq", "n threads, async def: its AsyncIO middleware, polls each 10 ms, hiredis",
        options={"worker_timeout": 10},
    ),
    _peer(
        "celery", "redis", "Celery", "--pool=threads --concurrency=n, no async def, hiredis", measures=DEF,
    ),
    _peer(
        "bullmq", "redis", "BullMQ (Node)", "concurrency=n, blocking: a sandbox of worker threads, ioredis",
        options={"warm": 5.0}, python=False,
    ),
)  # fmt: skip
