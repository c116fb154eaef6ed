"""Who is measured at what, and in which setting.

`fan`: each queue in its fastest usual setting. `kills`: in the one that its documentation gives against lost workers,
with times as short as it allows, as in benchmarks/peers/fire.py; four jobs at once, Accoda by default. SAQ, arq and
taskiq have no join.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.peer import Peer

STORAGES = ("redis", "postgres", "sqlite")
FAN, KILLS = ("fan",), ("kills",)
PARTS = {"fan": FAN, "kills": KILLS, "scale": ("wide", "many")}
ONCE = ("kills", "wide", "many")
"""Measures of one round, however many there are: they are long, and count or compare with nothing."""
IN_HAND = "the jobs in hand when the worker is killed: taking a job removes it"


def _peer(name: str, storage: str, title: str, setting: str, measures: Sequence[str], **more: object) -> Peer:
    return Peer(name, storage, title, setting, 0, measures=tuple(measures), script="flow", **more)  # type: ignore[arg-type]


def _accoda(storage: str) -> tuple[Peer, Peer]:
    lease = {"handler": {"lease": 2}}
    by_default = (*FAN, *PARTS["scale"])
    return (
        _peer("accoda", storage, "Accoda", "10 slots: its default, uvloop", by_default),
        _peer("accoda-lease", storage, "Accoda", "10 slots, leases of 2 s, uvloop", KILLS, options=lease),
    )


ENTRIES: tuple[Peer, ...] = (
    *(entry for storage in STORAGES for entry in _accoda(storage)),
    _peer(
        "celery", "redis", "Celery", "chord, solo pool", FAN, options={"arguments": ["--pool=solo"]},
        safe=False, loses="the job in hand when the worker is killed: it is acknowledged before it is run",
    ),
    _peer(
        "celery-threads", "redis", "Celery", "chord, 10 threads", FAN,
        options={"arguments": ["--pool=threads", "--concurrency=10"]},
        safe=False, loses="the jobs in hand when the worker is killed: they are acknowledged before they are run",
    ),
    _peer(
        "celery-late", "redis", "Celery",
        "chord, acks_late, reject_on_worker_lost, prefetch 1, visibility timeout 10 s looked at each second",
        (*FAN, *KILLS),
        options={
            "arguments": ["--concurrency=4"],
            "conf": {
                "task_acks_late": True, "task_reject_on_worker_lost": True, "worker_prefetch_multiplier": 1,
                "broker_transport_options": {
                    "visibility_timeout": 10, "unacked_restore_interval": 1, "unacked_restore_throttle": 1,
                },
            },
        },
    ),
    _peer(
        "dramatiq", "redis", "Dramatiq", "group with a completion callback, 8 threads, polls each 10 ms", FAN,
        options={"worker": {"worker_threads": 8, "worker_timeout": 10}},
    ),
    _peer(
        "dramatiq-fire", "redis", "Dramatiq",
        "group with a completion callback, 4 threads, heartbeat timeout 3 s, maintenance in one of ten commands", KILLS,
        options={
            "worker": {"worker_threads": 4}, "broker": {"heartbeat_timeout": 3000, "maintenance_chance": 100_000},
        },
    ),
    *(
        _peer(
            "huey", storage, "Huey", "chord, 4 threads", (*FAN, *KILLS),
            options={"consumer": {"workers": 4}, "quiet": 10.0}, safe=False, loses=IN_HAND,
        )
        for storage in ("redis", "sqlite")
    ),
    _peer(
        "rq", "redis", "RQ", "depends_on, 1 SimpleWorker, no alarm for each job", FAN, options={"workers": 1},
        safe=False, loses="the job in hand when the worker is killed: it is kept, but as failed, and not run again",
    ),
    _peer(
        "rq-retry", "redis", "RQ",
        "depends_on, 4 SimpleWorkers, timeout 2 s, 100 retries, maintenance each second, worker TTL 20 s", KILLS,
        options={
            "workers": 4, "timeout": 2, "retries": 100, "quiet": 90.0,  # a heartbeat ends a minute after the timeout
            "worker": {"maintenance_interval": 1, "worker_ttl": 20},
        },
    ),
    _peer(
        "bullmq", "redis", "BullMQ (Node)", "flow, 100 at once, ioredis", FAN,
        options={"worker": {"concurrency": 100}}, python=False,
    ),
    _peer(
        "bullmq-fire", "redis", "BullMQ (Node)",
        "flow, 4 at once, locks of 2 s, stalled jobs looked for each second, 100 times, ioredis", KILLS,
        options={"worker": {"concurrency": 4, "lockDuration": 2000, "stalledInterval": 1000, "maxStalledCount": 100}},
        python=False,
    ),
)  # fmt: skip
