"""Who is measured at what.

The peers are those that can say "at most n at once of each key", each in the way that its documentation gives, and with
no longer waits than it allows. Hatchet has it, too, and needs the image of its server; the groups of BullMQ Pro need a
paid registry. Celery, RQ, SAQ, arq, taskiq, streaq and Chancy have no such limit. Huey's lock raises like Dramatiq's
limiter, which is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.peer import Peer

STORAGES = ("redis", "postgres", "sqlite", "tarantool", "memory")
SMALL = ("plain", "one", "full", "thousand")
LARGE = ("plain-large", "each")
FAIR = ("fair-one", "fair-four")
TURNS = (*FAIR, "fifo")
LIMIT = ("limit",)
PARTS = {"rates": (*SMALL, *LARGE), "turns": TURNS, "limit": LIMIT}
MEASURES = tuple(measure for part in PARTS.values() for measure in part)
ONCE = (*LARGE, "fifo")
"""Measures of one round, however many there are: they are long."""


def _accoda(storage: str) -> Peer:
    """On the memory storage, producer and worker are one process, and the limit is measured with two."""
    measures = MEASURES if storage != "memory" else (*PARTS["rates"], *TURNS)
    setting = "rates: 1 processor, batches of 100; turns: 10 slots; limit: `lanes=2`, 50 slots; uvloop"
    return Peer("accoda", storage, "Accoda", setting, 0, measures=measures)


def _peer(name: str, storage: str, title: str, setting: str, measures: Sequence[str], **options: object) -> Peer:
    return Peer(name, storage, title, setting, 0, options, measures=tuple(measures))


ENTRIES: tuple[Peer, ...] = (
    *(_accoda(storage) for storage in STORAGES),
    _peer(
        "dbos", "postgres", "DBOS",
        "partition_concurrency, worker_concurrency as many as slots, polls each 10 ms, async workflows",
        (*LIMIT, "fair-one"), queue={"polling_interval_sec": 0.01},
    ),
    _peer(
        "pgqueuer", "postgres", "PgQueuer",
        "an entrypoint for each customer with concurrency_limit, 50 slots, batches of 50, durable, asyncpg, uvloop",
        LIMIT, batch_size=50,
    ),
    _peer(
        "procrastinate", "postgres", "Procrastinate",
        "two locks for each customer, whose jobs take them in turn, 50 slots, pool of 20, polls each 10 ms, uvloop",
        LIMIT, worker={"fetch_job_polling_interval": 0.01}, pool={"min_size": 4, "max_size": 20},
    ),
    _peer(
        "dramatiq", "redis", "Dramatiq",
        "ConcurrentRateLimiter for each customer, retried without end after 20 ms to 0.5 s, 50 threads,"
        " polls each 10 ms, hiredis",
        (*LIMIT, "fifo"), worker={"worker_timeout": 10},
        actor={"min_backoff": 20, "max_backoff": 500, "max_retries": None},
    ),
)  # fmt: skip
