"""Damages records inside a store, behind the storage's back, as a bad disk or another program would.

    damaged = await damage(store, random.Random(1), 1000)

The jobs are first enqueued through the storage, so that its counters know them, and brought into every state; then each
is changed in the engine itself, by whatever the engine allows. What it refuses is not counted.
"""

from __future__ import annotations

from importlib import import_module
from random import Random
from typing import Any

from accoda.model import Bury, Done, NewJob
from accoda.storage.protocol import Store

QUEUE = "damaged"
_KINDS = {
    "SqliteStorage": "proof.damage.sqlite",
    "PostgresStorage": "proof.damage.postgres",
    "RedisStorage": "proof.damage.redis",
    "TarantoolStorage": "proof.damage.tarantool",
}


async def damage(store: Store, rng: Random, count: int, queue: str = QUEUE) -> int:
    """Enqueue `count` jobs and damage them, and some documents; tell how many jobs were damaged."""
    engine: Any = store
    while hasattr(engine, "_store"):  # a wrapper
        engine = engine._store
    kind = _KINDS.get(type(engine).__name__)
    if kind is None:
        raise ValueError(f"no other program can damage the records of a {type(engine).__name__}")
    damaged: int = await import_module(kind).damage(engine, rng, count, queue)
    return damaged


async def prepare(store: Store, rng: Random, count: int, queue: str) -> list[int]:
    """Good jobs in every state, and their ids. They carry `bad-N`, so that they can be told from others."""
    ids: list[int] = []
    first = rng.randrange(1 << 40)  # so that the keys of a second call are others
    for begin in range(0, count, 1000):
        jobs = [_job(rng, queue, first + begin + n) for n in range(min(1000, count - begin))]
        ids += [answer.id for answer in await store.enqueue(jobs)]
    mine = set(ids)
    for lease in (3600.0, 0.001):
        taken = [job for job in await store.take(queue, count // 4, lease=lease) if job.id in mine]
        await store.settle([Bury(job.lease, "broken") for job in taken[::3]])
        await store.settle([Done(job.lease, result=b"x") for job in taken[1::3] if job.attempts == 0])
    return ids


def _job(rng: Random, queue: str, n: int) -> NewJob:
    keyed = rng.random() < 0.3
    return NewJob(
        queue,
        f"bad-{n}".encode(),
        rank=-1e6 + rng.randrange(5),  # at the head, so that a take meets them first
        delay=rng.choice((None, None, 0.001, 3600.0)),
        cost=rng.randrange(3),
        key=f"bad-{n}" if keyed else None,
        waiter=b"w" if keyed and rng.random() < 0.5 else None,
        keep_for=rng.choice((0.0, 3600.0)),
    )
