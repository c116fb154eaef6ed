"""The entries on PostgreSQL, SQLite, Tarantool: for each peer its fastest setting, and the one that survives kill -9.

PostgreSQL syncs each commit for all, and none of these peers turns `synchronous_commit` off. An empty queue is
watched by NOTIFY where the peer has it. Where it polls and lets its user say how often, it is told each 10 ms: that
costs nothing while there is work, and is the best for its latency.
"""

from __future__ import annotations

from benchmarks.peers.peer import Peer
from benchmarks.peers.settings_redis import accoda

# What is installed for each adapter, into an environment of its own.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "chancy": ("chancy", "psycopg[binary]", "uvloop"),
    "dbos": ("dbos",),
    "django_tasks_db": ("django-tasks-db[compat]", "psycopg[binary]"),
    "litequeue": ("litequeue",),
    "persistqueue": ("persist-queue",),
    "pgqueuer": ("pgqueuer[asyncpg]", "uvloop"),
    "pq": ("pq", "psycopg2-binary"),
    "procrastinate": ("procrastinate", "psycopg[binary]", "uvloop"),
}
# The distributions whose versions the report names, where it is not the adapter's own name alone. The peer comes first.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "django_tasks_db": ("django-tasks-db", "django"),
    "persistqueue": ("persist-queue",),
}

IN_HAND = "the jobs in hand when the worker is killed: taking a job deletes it"
LATELY = "the last commits, in a power cut"

POSTGRES: tuple[Peer, ...] = (
    Peer(
        "pgqueuer", "postgres", "PgQueuer", "durability durable, autovac, batches of 1,000, asyncpg, uvloop", 15_000,
        {"batch_size": 1000, "durability": "durable"},
    ),
    accoda("postgres", 40_000, 100, 1),
    Peer(  # its jobs are as durable as with "durable"; what a crash of the server takes is the log of finished ones
        "pgqueuer-balanced", "postgres", "PgQueuer", "durability balanced, autovac, batches of 100, asyncpg, uvloop",
        12_000, {"batch_size": 100, "durability": "balanced"},
    ),
    accoda("postgres", 60_000),
    Peer(
        "chancy", "postgres", "Chancy", "500 at once, asyncio, eager polling, polls each second, uvloop", 8000,
        {"queue": {"concurrency": 500, "eager_polling": True, "polling_interval": 1}},
    ),
    Peer(
        "huey", "postgres", "Huey", "4 threads, psycopg 3", 1500, {"workers": 4},
        safe=False, loses=IN_HAND,
    ),
    Peer(
        "pq", "postgres", "pq", "loop of its README, psycopg 2", 1500,
        safe=False, loses="the job in hand when the worker is killed: taking a job marks it as done",
    ),
    Peer(
        "pq-transaction", "postgres", "pq", "get and run in one transaction, polls each 10 ms, psycopg 2", 1200,
        {"transaction": True},
    ),
    Peer(
        "saq", "postgres", "SAQ",
        "100 at once, retries=3, swept each 60 s, looks for delayed jobs each 10 ms, orjson, psycopg 3, uvloop", 800,
        {"concurrency": 100, "retries": 3, "orjson": True, "timers": {"schedule": 0.01}},
    ),
    Peer(
        "procrastinate", "postgres", "Procrastinate",
        "20 at once, pool of 20, done jobs deleted, task for stalled jobs, polls each 10 ms, psycopg 3, uvloop",
        600,
        {
            "worker": {"concurrency": 20, "delete_jobs": "successful", "fetch_job_polling_interval": 0.01},
            "pool": {"min_size": 4, "max_size": 20},
        },
    ),
)  # fmt: skip

SQLITE: tuple[Peer, ...] = (
    Peer(
        "huey", "sqlite", "Huey", "1 thread, polls each 10 ms", 3000,
        {"workers": 1, "consumer": {"initial_delay": 0.01, "max_delay": 0.01}}, safe=False, loses=IN_HAND,
    ),
    accoda("sqlite", 60_000),
    accoda("sqlite", 40_000, 100, 1),
    Peer(
        "huey-nosync", "sqlite", "Huey", "fsync=False, 1 thread, polls each 10 ms", 10_000,
        {"workers": 1, "huey": {"fsync": False}, "consumer": {"initial_delay": 0.01, "max_delay": 0.01}},
        durable=False, safe=False, loses=f"{IN_HAND}; {LATELY}",
    ),
    Peer(
        "accoda-fast", "sqlite", "Accoda", "durability=fast, 4 processors, batches of 500, uvloop", 60_000,
        {"batch": 500, "processors": 4, "query": "?durability=fast"}, durable=False, loses=LATELY,
    ),
    Peer(
        "persistqueue", "sqlite", "persist-queue",
        "SQLiteQueue, auto_commit=False, task_done for 100 jobs, polls each 10 ms, one consuming process only", 40_000,
        {"ack": False, "processes": 1},
    ),
    Peer(
        "persistqueue-ack", "sqlite", "persist-queue",
        "SQLiteAckQueue, cleared each 100 jobs, polls each 10 ms, one consuming process only", 1000,
        {"ack": True, "processes": 1},
    ),
    Peer(
        "litequeue", "sqlite", "litequeue",
        "synchronous=NORMAL, loop of its README, locked ones retried after 30 s, polls each 10 ms", 4000,
        durable=False, loses=LATELY,
    ),
    Peer(
        "litequeue-full", "sqlite", "litequeue",
        "synchronous=FULL, loop of its README, locked ones retried after 30 s, polls each 10 ms", 2000,
        {"durable": True},
    ),
)  # fmt: skip

# No other Python queue runs on it: only to know what Accoda reaches there.
TARANTOOL: tuple[Peer, ...] = (accoda("tarantool", 40_000), accoda("tarantool", 30_000, 100, 1))
