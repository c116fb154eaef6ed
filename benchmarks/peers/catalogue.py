"""Who is measured, and in which setting: for each peer the fastest of the few that were tried.

`setting` is what the table prints, and it must say all that `options` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

STORAGES = ("redis", "postgres", "sqlite")
OURS = "accoda"

# What is installed for each adapter, into an environment of its own. Accoda runs in the one that runs the benchmark.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "accoda": (),
    "arq": ("arq", "hiredis", "uvloop"),
    "celery": ("celery[redis]", "hiredis"),
    "chancy": ("chancy", "psycopg[binary]", "uvloop"),
    "dramatiq": ("dramatiq[redis]", "hiredis"),
    "huey": ("huey", "redis[hiredis]", "psycopg[binary]", "cysqlite"),
    "litequeue": ("litequeue",),
    "pgqueuer": ("pgqueuer[asyncpg]", "uvloop"),
    "pq": ("pq", "psycopg2-binary"),
    "procrastinate": ("procrastinate", "psycopg[binary]", "uvloop"),
    "repid": ("repid[redis]", "hiredis", "uvloop", "typing_extensions"),  # redis-py 7 imports the last undeclared
    "rq": ("rq", "hiredis"),
    "saq": ("saq[redis,postgres,hiredis]", "psycopg[binary]", "uvloop"),
    "streaq": ("streaq", "uvloop"),
    "taskiq": ("taskiq[orjson]", "taskiq-redis", "hiredis", "uvloop"),
}
# The distributions whose versions the report names. The first is the peer itself.
DISTRIBUTIONS = {"taskiq": ("taskiq", "taskiq-redis")}


@dataclass(frozen=True)
class Peer:
    """One row: an adapter on a storage in a setting. `jobs` is enough for about three seconds."""

    name: str
    storage: str
    title: str
    setting: str
    jobs: int
    options: dict[str, Any] = field(default_factory=dict)
    durable: bool = True  # SQLite: whether a power cut can take back what was acknowledged

    @property
    def adapter(self) -> str:
        """The name of the adapter and of its environment: `taskiq` for `taskiq-list`."""
        return self.name.partition("-")[0]

    @property
    def ours(self) -> bool:
        return self.adapter == OURS


def _accoda(storage: str, jobs: int, batch: int = 500, processors: int = 4) -> Peer:
    name = "accoda" if processors > 1 else "accoda-one"
    setting = f"{processors} processor{'s' if processors > 1 else ''}, batches of {batch:,}, uvloop"
    return Peer(name, storage, "Accoda", setting, jobs, {"batch": batch, "processors": processors})


REDIS = (
    Peer("huey", "redis", "Huey", "1 thread, hiredis", 8000, {"workers": 1}),
    _accoda("redis", 100_000),
    _accoda("redis", 60_000, 100, 1),
    Peer("repid", "redis", "repid", "100 at once, hiredis, uvloop", 8000, {"tasks_limit": 100}),
    Peer("huey-threads", "redis", "Huey", "4 threads, hiredis", 8000, {"workers": 4}),
    Peer("dramatiq", "redis", "Dramatiq", "16 threads, hiredis", 6000, {"threads": 16}),
    Peer("saq", "redis", "SAQ", "100 at once, hiredis, uvloop", 5000, {"concurrency": 100}),
    Peer(
        "taskiq-stream", "redis", "taskiq, stream", "100 at once, hiredis, orjson, uvloop", 4000,
        {"broker": "stream", "receiver": {"max_async_tasks": 100}},
    ),
    Peer(
        "taskiq-list", "redis", "taskiq, list", "100 at once, hiredis, orjson, uvloop", 4000,
        {"broker": "list", "receiver": {"max_async_tasks": 100}},
    ),
    Peer(
        "arq", "redis", "arq", "100 at once, polls each 10 ms, hiredis, uvloop", 3000,
        {"max_jobs": 100, "poll_delay": 0.01},
    ),
    Peer("streaq", "redis", "streaq", "16 at once (its default), uvloop", 2500, {"concurrency": 16}),
    Peer(
        "celery", "redis", "Celery", "solo pool, no gossip, mingle, heartbeat or control, hiredis", 1500,
        {"conf": {}, "arguments": ["--pool=solo"]},
    ),
    Peer("rq", "redis", "RQ", "SimpleWorker, no timeouts, hiredis", 500),
)  # fmt: skip

POSTGRES = (
    Peer("pgqueuer", "postgres", "PgQueuer", "batches of 100, asyncpg, uvloop", 12_000, {"batch_size": 100}),
    _accoda("postgres", 40_000, 100, 1),
    Peer("pgqueuer-1000", "postgres", "PgQueuer", "batches of 1,000, asyncpg, uvloop", 15_000, {"batch_size": 1000}),
    _accoda("postgres", 60_000),
    Peer(
        "chancy", "postgres", "Chancy", "500 at once, asyncio, eager polling, uvloop", 8000,
        {"queue": {"concurrency": 500, "eager_polling": True}},
    ),
    Peer("huey", "postgres", "Huey", "4 threads, psycopg 3", 1500, {"workers": 4}),
    Peer("pq", "postgres", "pq", "plain loop, psycopg 2", 1500),
    Peer("saq", "postgres", "SAQ", "50 at once, psycopg 3, uvloop", 800, {"concurrency": 50}),
    Peer(
        "procrastinate", "postgres", "Procrastinate", "10 at once, psycopg 3, uvloop", 600,
        {"worker": {"concurrency": 10}},
    ),
)  # fmt: skip

SQLITE = (
    Peer("huey", "sqlite", "Huey", "1 thread", 3000, {"workers": 1}),
    _accoda("sqlite", 60_000),
    _accoda("sqlite", 40_000, 100, 1),
    Peer(
        "huey-nosync", "sqlite", "Huey", "fsync=False, 1 thread", 10_000,
        {"workers": 1, "huey": {"fsync": False}}, durable=False,
    ),
    Peer(
        "accoda-fast", "sqlite", "Accoda", "durability=fast, 4 processors, batches of 500, uvloop", 60_000,
        {"batch": 500, "processors": 4, "query": "?durability=fast"}, durable=False,
    ),
    Peer("litequeue", "sqlite", "litequeue", "synchronous=NORMAL, plain loop", 4000, durable=False),
    Peer("litequeue-full", "sqlite", "litequeue", "synchronous=FULL, plain loop", 2000, {"durable": True}),
)  # fmt: skip

PEERS = (*REDIS, *POSTGRES, *SQLITE)


def chosen(storages: Sequence[str], names: Sequence[str]) -> list[Peer]:
    """The peers of these storages, all or those named (by entry or by adapter); Accoda is always among them."""
    return [
        peer
        for peer in PEERS
        if peer.storage in storages and (not names or peer.ours or {peer.name, peer.adapter} & set(names))
    ]
