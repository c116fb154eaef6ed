"""The entries on Redis: for each peer its fastest setting, and the one that survives kill -9.

A peer has two entries where these differ. Whether a setting is safe was tried: a worker was killed by SIGKILL in the
middle of a hundred jobs, another was started, and all had to be run, with shorter timeouts than here to see it soon. It
is told generously: taskiq's stream did so only after one more job had come, and SAQ was tried with ten jobs at once.
No results are kept and no job is logged. A peer that polls, and lets its user say how often, is told each 10 ms.
"""

from __future__ import annotations

from benchmarks.peers.peer import Peer

# What is installed for each adapter, into an environment of its own. Accoda runs in the one that runs the benchmark.
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "accoda": (),
    "arq": ("arq", "hiredis", "uvloop"),
    "celery": ("celery[redis]", "hiredis"),
    "dramatiq": ("dramatiq[redis]", "hiredis"),
    "huey": ("huey", "redis[hiredis]", "psycopg[binary]", "cysqlite"),
    "repid": ("repid[redis]", "hiredis", "uvloop", "typing_extensions"),  # redis-py 7 imports the last undeclared
    "rq": ("rq", "hiredis"),
    "saq": ("saq[redis,postgres,hiredis]", "psycopg[binary]", "uvloop", "orjson"),
    "streaq": ("streaq", "uvloop"),
    "taskiq": ("taskiq[orjson]", "taskiq-redis", "hiredis", "uvloop"),
}
# What is installed from npm, into a folder of its own among the environments; run by node.
PACKAGES: dict[str, tuple[str, ...]] = {"bullmq": ("bullmq", "ioredis")}
# The distributions whose versions the report names, where it is not the adapter's own name alone. The peer comes first.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {"taskiq": ("taskiq", "taskiq-redis")}


def accoda(storage: str, jobs: int, batch: int = 500, processors: int = 4) -> Peer:
    name = "accoda" if processors > 1 else "accoda-one"
    setting = f"{processors} processor{'s' if processors > 1 else ''}, batches of {batch:,}, uvloop"
    return Peer(name, storage, "Accoda", setting, jobs, {"batch": batch, "processors": processors})


IN_HAND = "the jobs in hand when the worker is killed: taking a job removes it"

REDIS: tuple[Peer, ...] = (
    Peer("huey", "redis", "Huey", "1 thread, hiredis", 6000, {"workers": 1}, safe=False, loses=IN_HAND),
    accoda("redis", 150_000),
    accoda("redis", 90_000, 100, 1),
    Peer(
        "accoda-sync", "redis", "Accoda, sync face",
        "enqueued through app.sync, uvloop", 150_000, {"batch": 500, "processors": 4, "face": "sync"},
        measures=("enqueue", "callers", "bulk"),
    ),
    Peer(
        "bullmq", "redis", "BullMQ (Node)", "100 at once, stalled jobs looked for each 30 s, ioredis", 15_000,
        {"worker": {"concurrency": 100}}, python=False,
    ),
    Peer(  # acknowledged messages stay in its stream: it trims only by a length, which could take waiting ones
        "repid", "redis", "repid", "100 at once, reads 100, reclaims after 60 s of silence, hiredis, uvloop", 7000,
        {"tasks_limit": 100, "server": {"batch_size": 100, "claim_interval": 10.0, "min_idle_ms": 60_000}},
    ),
    Peer("huey-threads", "redis", "Huey", "4 threads, hiredis", 6000, {"workers": 4}, safe=False, loses=IN_HAND),
    Peer(
        "dramatiq", "redis", "Dramatiq", "16 threads, heartbeat 60 s, polls each 10 ms, hiredis", 7000,
        {"worker": {"worker_threads": 16, "worker_timeout": 10}},
    ),
    Peer(  # it sweeps one job after the other and waits 5 s for each: a hundred in hand are back after minutes
        "saq", "redis", "SAQ", "100 at once, retries=3, swept each 60 s, orjson, hiredis, uvloop", 4000,
        {"concurrency": 100, "retries": 3, "orjson": True, "queue": {"max_concurrent_ops": 100}},
    ),
    Peer(  # what it reclaims, it reclaims after it has read something new; acknowledged messages stay in the stream
        "taskiq-stream", "redis", "taskiq, stream",
        "100 at once, no parsing, reclaims after 60 s of silence, scheduler each second, hiredis, orjson, uvloop", 3500,
        {
            "broker": "stream", "receiver": {"max_async_tasks": 100, "validate_params": False},
            "stream": {"idle_timeout": 60_000, "unacknowledged_lock_timeout": 10},
        },
    ),
    Peer(
        "taskiq-list", "redis", "taskiq, list",
        "100 at once, no parsing, scheduler each second, hiredis, orjson, uvloop", 3500,
        {"broker": "list", "receiver": {"max_async_tasks": 100, "validate_params": False}},
        safe=False, loses=IN_HAND,
    ),
    Peer(
        "arq", "redis", "arq", "100 at once, job timeout 60 s, polls each 10 ms, hiredis, uvloop", 2500,
        {"max_jobs": 100, "poll_delay": 0.01, "job_timeout": 60},
    ),
    Peer(
        "streaq", "redis", "streaq", "16 at once, idle timeout 60 s (its defaults), silent, uvloop", 2000,
        {"concurrency": 16},
    ),
    Peer(
        "celery", "redis", "Celery", "solo pool, no gossip, mingle, heartbeat or control, hiredis", 1300,
        {"conf": {}, "arguments": ["--pool=solo", "--concurrency=1"]},
        safe=False, loses="the job in hand when the worker is killed: it is acknowledged before it is run",
    ),
    Peer(
        "celery-late", "redis", "Celery",
        "solo pool, acks_late, visibility timeout 60 s looked at each 10 s, no gossip, mingle, heartbeat or control,"
        " hiredis", 1300,
        {
            "conf": {
                "task_acks_late": True,
                "broker_transport_options": {
                    "visibility_timeout": 60, "unacked_restore_interval": 10, "unacked_restore_throttle": 1,
                },
            },
            "arguments": ["--pool=solo", "--concurrency=1"],
        },
    ),
    Peer(
        "rq", "redis", "RQ", "SimpleWorker, no alarm for each job, scheduler each second, hiredis", 500,
        safe=False, loses="the job in hand when the worker is killed: it is kept, but as failed, and not run again",
    ),
    Peer(
        "rq-retry", "redis", "RQ",
        "SimpleWorker, no alarm for each job, Retry(max=3), timeout 30 s, maintenance each 60 s, scheduler each second,"
        " hiredis", 500,
        {"retries": 3, "timeout": 30, "worker": {"worker_ttl": 75, "maintenance_interval": 60}},
    ),
)  # fmt: skip
