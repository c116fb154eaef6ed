"""Damages records of a Redis store, one server or Cluster, by plain commands: single members, fields and scores."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from accoda.storage.redis.keys import Shard
from accoda.storage.redis.storage import RedisStorage
from proof.damage import prepare

_PLACED = ("ready", "delayed", "dead", "done", "cancelled")
_PAST = ("-inf", "-5", "0.5")
_SCORES = (*_PAST, "1e300")
_NOT_IDS = (b"", b"x", b"0" * 16, b"9" * 40, b"\xff\xfe", b"0000000000000x01", b"            0042")
_NOT_NUMBERS = (b"x", b"", b"1e5", b"9" * 30, b"nan", b"0x1p4")


async def damage(store: RedisStorage, rng: Random, count: int, queue: str) -> int:
    ids = {b"%016d" % id for id in await prepare(store, rng, count, queue)}
    damaged = 0
    for shard in store._shards.of_queue(queue):
        vandal = _Vandal(store, rng, shard, queue)
        for state in _PLACED:
            damaged += await vandal.damage_placed(state, ids)
        damaged += await vandal.damage_taken(ids)
        await vandal.damage_the_rest()
    for shard in store._documents._shards[:3]:
        await _damage_documents(store, rng, shard, max(2, count // 60))
    return damaged


class _Vandal:
    def __init__(self, store: RedisStorage, rng: Random, shard: Shard, queue: str) -> None:
        self._store = store
        self._rng = rng
        self._shard = shard
        self._base = store._keys.bases[queue, shard.partition]

    async def _run(self, *command: Any) -> Any:
        return await self._store._client.command(self._shard.slot, *command)

    def _record(self, record: bytes) -> bytes:
        """What is no record, or one with a field that cannot be."""
        rng = self._rng
        head, _, rest = record.partition(b"\0")
        changes: tuple[Callable[[], bytes], ...] = (
            lambda: rng.randbytes(rng.randrange(1, 80)),
            lambda: record[: rng.randrange(1, min(len(record), 40))],
            lambda: head[:16] + rng.randbytes(20),
            lambda: b"\x93\x01\xa3abc\xc0" + record[:20],
            lambda: head + rest,
            lambda: head[:17] + b"9" * rng.choice((20, 400, 5000)) + record[18:],
            lambda: record[:20] + b"Z" + record[21:],
            lambda: b"x" + record[1:],
            lambda: record.replace(b",", b";", rng.randrange(1, 9)),
            lambda: head + b"\0" + rest.replace(b",", b",nan", 2),
            lambda: head[:18] + b",1e999,\xff\0" + rest,
            lambda: b"0x" + record[2:],
        )
        return rng.choice(changes)()

    async def damage_placed(self, state: str, ids: set[bytes]) -> int:
        """Jobs that are not taken: their records, their scores, or their entries in the index by id."""
        damaged, rng, key = 0, self._rng, f"{self._base}:{state}"
        found = await self._run("ZRANGE", key, 0, -1, "WITHSCORES")
        for record, score in zip(found[::2], found[1::2], strict=True):
            id = record[:16]
            if id not in ids:
                continue
            damaged += 1
            kind = rng.randrange(9)
            if kind < 5:
                await self._run("ZADD", key, score, self._record(record))
                await self._run("ZREM", key, record)
            elif kind == 5:
                await self._run("ZADD", key, rng.choice(_SCORES), record)
            elif kind == 6:
                await self._run("ZREM", key, record)
            else:
                bucket = f"{key}:ids:{id[: self._shard.width].decode()}"
                await self._run("HSET", bucket, id[self._shard.width :], rng.choice(_NOT_NUMBERS))
        return damaged

    async def damage_taken(self, ids: set[bytes]) -> int:
        """Taken jobs: what is stored for each, or for its batch."""
        damaged, rng, base = 0, self._rng, self._base
        found = await self._run("HGETALL", f"{base}:taken")
        for id, value in zip(found[::2], found[1::2], strict=True):
            if id not in ids:
                continue
            damaged += 1
            batch, _, record = value.partition(b",")
            kind = rng.randrange(7)
            if kind < 3:
                await self._run("HSET", f"{base}:taken", id, batch + b"," + self._record(record))
            elif kind == 3:
                await self._run("HSET", f"{base}:taken", id, rng.choice((b"", b",,", rng.randbytes(30), b"other,x,y")))
            elif kind == 4:
                await self._run("HSET", f"{base}:batches", batch, rng.choice((b"", b"1,2,3", b"x", rng.randbytes(50))))
            elif kind == 5:
                await self._run("HSET", f"{base}:batches", batch + b"#", rng.choice((b"x", b"", b"99")))
            else:
                await self._run("ZADD", f"{base}:ends", rng.choice(_PAST), batch)  # else its jobs run for years
        return damaged

    async def damage_the_rest(self) -> None:
        base, rng = self._base, self._rng
        for name in ("done", "retried", "buried", "expired"):
            await self._run("HSET", f"{base}:meta", name, rng.choice(_NOT_NUMBERS))
        await self._run("HSET", f"{base}:meta", "paused", b"soon")
        for n in range(20):
            await self._run("HSET", f"{base}:keys", f"held-by-none-{n}", rng.choice(_NOT_IDS))
            await self._run("ZADD", f"{base}:kept", rng.choice((*_SCORES, "1")), rng.randbytes(8))
            await self._run("ZADD", f"{base}:ends", rng.choice(("1", "0.5")), f"no batch {n}")
            await self._run("SADD", self._shard.queues, rng.choice((b"\xff\xfe", b"no such name!", b"")))


async def _damage_documents(store: RedisStorage, rng: Random, shard: Shard, count: int) -> None:
    async def run(*command: Any) -> None:
        await store._client.command(shard.slot, *command)

    for n in range(count):
        name = f"damaged/{n}".encode() + rng.choice((b"", b"", b"\xff"))
        texts = (b"", b"x", b"1,2", b"1,\0good", b"9" * 5000 + b",\0", b"-1,\0x", b"1,x\0x", rng.randbytes(20))
        await run("HSET", f"{shard.root}:values", name, rng.choice(texts))
        await run("ZADD", f"{shard.root}:names", rng.choice(("0", "0", "inf")), name)
        await run("ZADD", f"{shard.root}:ends", rng.choice(("1", "inf", "5")), rng.choice((name, rng.randbytes(5))))
    await run("HSET", f"{shard.root}:values", "", rng.choice((b"x", b"-3", b"9" * 40)))
