"""Spoils records of a Redis store, one server or Cluster, by plain commands."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from accoda.errors import StorageError
from accoda.storage.redis.keys import Shard
from accoda.storage.redis.storage import RedisStorage
from accoda.testing.damage import prepare

_SCORES = ("inf", "-inf", "1e300", "-5", "0.5")
_ENDED = ("dead", "done")
_BAD_ID = (b"", b"x", b"0" * 16, b"9" * 40, b"\xff\xfe", b"0000000000000x01", b"            0042")

Place = tuple[str, bytes, bytes]  # where a job is; its member or its field; the score, or the value of the field


async def damage(store: RedisStorage, rng: Random, count: int, queue: str) -> int:
    ids = await prepare(store, rng, count, queue)
    spoiled = 0
    for shard in store._shards.of_queue(queue):
        spoiler = _Spoiler(store, rng, shard, queue)
        spoiled += await spoiler.spoil_jobs({b"%016d" % id for id in ids})
        await spoiler.spoil_the_rest()
    for shard in store._documents._shards[:3]:
        await _spoil_documents(store, rng, shard, max(2, count // 60))
    return spoiled


class _Spoiler:
    def __init__(self, store: RedisStorage, rng: Random, shard: Shard, queue: str) -> None:
        self._store = store
        self._rng = rng
        self._shard = shard
        self._base = store._keys.base(queue, shard.partition)

    async def spoil_jobs(self, ids: set[bytes]) -> int:
        spoiled = 0
        for id, (where, member, value) in (await self._places()).items():
            if id in ids:
                kinds = self._in_a_hash if where == "taken" else self._in_a_set
                await kinds(id, (where, member, value))
                spoiled += 1
        return spoiled

    async def _run(self, *command: Any) -> Any:
        """What does not fit a key that was spoiled before is left."""
        try:
            return await self._store._caller.command(self._shard.slot, *command)
        except StorageError:
            return None

    async def _places(self) -> dict[bytes, Place]:
        """Where each job is."""
        found: dict[bytes, Place] = {}
        for where in ("ready", "delayed", *_ENDED):
            reply = await self._run("ZRANGE", f"{self._base}:{where}", 0, -1, "WITHSCORES")
            for member, score in zip(reply[::2], reply[1::2], strict=True):
                record = member.partition(b",")[2] if where in _ENDED else member
                found[record[:16]] = (where, member, score)
        reply = await self._run("HGETALL", f"{self._base}:taken")
        found |= {id: ("taken", id, value) for id, value in zip(reply[::2], reply[1::2], strict=True)}
        return found

    def _text(self, text: bytes) -> bytes:
        """A record that is none."""
        rng = self._rng
        changes: tuple[Callable[[], bytes], ...] = (
            lambda: rng.randbytes(rng.randrange(1, 80)),
            lambda: text[: rng.randrange(1, min(len(text), 40))],
            lambda: text[:16] + rng.randbytes(20),
            lambda: b"\x93\x01\xa3abc\xc0" + text[:20],
            lambda: text.replace(b"\0", b"", 1)[:30],
            lambda: text[:17] + b"9" * rng.choice((20, 400, 5000)) + text[17:],
            lambda: text[:20] + b"Z" + text[21:],
            lambda: b"x" + text[1:],
            lambda: text.replace(b",", b";", rng.randrange(1, 4)),
            lambda: text[:16] + b"x0,1,,,,nan,\0",
            lambda: text[:16] + b"x0,1,,,,1e999,k\xff\0",
            lambda: b"0x" + text[2:],
        )
        return rng.choice(changes)()

    async def _in_a_set(self, id: bytes, place: Place) -> None:
        where, member, score = place
        key, rng = f"{self._base}:{where}", self._rng
        bucket = f"{key}:ids:{id[: self._shard.width].decode()}"
        digits = id[self._shard.width :]
        prefix = member[: member.index(b",") + 1] if where in _ENDED else b""
        kind = rng.randrange(10)
        if kind < 5:
            await self._run("ZREM", key, member)
            await self._run("ZADD", key, score, prefix + self._text(member[len(prefix) :]))
        elif kind == 5:
            await self._run("ZADD", key, rng.choice(_SCORES), member)
        elif kind == 6:
            await self._run("ZADD", key, score, prefix + self._text(member[len(prefix) :]))
            await self._run("ZREM", key, member)
        elif where in _ENDED:
            await self._run("HSET", f"{self._base}:notes", id, rng.randbytes(9))
            await self._run("HSET", f"{self._base}:afresh", id, rng.choice((b"x", b"9" * 99 + b",1", b"-1,-1")))
        elif kind == 7:
            await self._run("ZREM", key, member)
        elif kind == 8:
            await self._run("HSET", bucket, digits, rng.choice((b"abc", b"nan", b"", b"1e999", b",,,", b"0x1p4,7")))
        else:
            await self._run("SET", bucket, b"no hash")

    async def _in_a_hash(self, id: bytes, place: Place) -> None:
        _, _, value = place
        base, rng, batch = self._base, self._rng, place[2].partition(b",")[0]
        head, _, record = value.rpartition(b"," + id)
        kind = rng.randrange(9)
        if kind < 3:
            await self._run("HSET", f"{base}:taken", id, head + b"," + self._text(id + record))
        elif kind == 3:
            await self._run("HSET", f"{base}:taken", id, rng.choice((b"", b",,", rng.randbytes(30), b"nobody,x,y")))
        elif kind == 4:
            await self._run("HSET", f"{base}:taken", rng.choice(_BAD_ID), self._text(value))
            await self._run("HDEL", f"{base}:taken", id)
        elif kind == 5:
            await self._run("HSET", f"{base}:batches", batch, rng.choice((b"", b"1,2,3", b"x", rng.randbytes(50))))
        elif kind == 6:
            await self._run("HSET", f"{base}:batches", batch + b"#", rng.choice((b"x", b"-5", b"99999999999999999999")))
        elif kind == 7:
            await self._run("ZADD", f"{base}:ends", rng.choice(_SCORES), batch)
        else:
            await self._run("ZREM", f"{base}:ends", batch)

    async def spoil_the_rest(self) -> None:
        base, rng, root = self._base, self._rng, self._shard.root
        for name in ("done", "retried", "buried", "expired", "looked", "paused"):
            if rng.random() < 0.5:
                await self._run("HSET", f"{base}:meta", name, rng.choice((b"x", b"", b"1e5", b"9" * 30, b"-1"))[:30])
        if await self._run("HGET", f"{base}:meta", "paused") == b"":
            await self._run("HSET", f"{base}:meta", "paused", b"soon")  # the empty text is a pause
        for n in range(20):
            await self._run("HSET", f"{base}:keys", f"held-by-nobody-{n}", rng.choice(_BAD_ID))
            await self._run("ZADD", f"{base}:kept", rng.choice((*_SCORES, "1")), rng.randbytes(8))
            await self._run("ZADD", f"{base}:ends", rng.choice((*_SCORES, "1")), rng.choice((b"?x", b"?", b"ghost")))
            await self._run("ZADD", f"{base}:dead:at", rng.choice(_SCORES), rng.randbytes(8))
            await self._run("HSET", f"{base}:notes", rng.randbytes(8), rng.randbytes(20))
            await self._run("SET", f"{base}:waiters:{n:016d}", "no list")
            await self._run("SADD", f"{root}:queues", rng.choice((b"\xff\xfe", b"no such name!", b"")))
        await self._run("HSET", f"{root}:ids", "last", rng.choice((b"x", b"", b"1e5", b"0")))


async def _spoil_documents(store: RedisStorage, rng: Random, shard: Shard, count: int) -> None:
    async def run(*command: Any) -> None:
        await store._caller.command(shard.slot, *command)

    for n in range(count):
        name = f"damaged/{n}".encode() + rng.choice((b"", b"", b"\xff"))
        texts = (b"", b"x", b"1,2", b"1,\0good", b"9" * 5000 + b",\0", b"-1,\0x", b"1,x\0x", rng.randbytes(20))
        await run("HSET", f"{shard.root}:values", name, rng.choice(texts))
        await run("ZADD", f"{shard.root}:names", rng.choice(("0", "0", "inf")), name)
        await run("ZADD", f"{shard.root}:ends", rng.choice(("1", "inf", "5")), rng.choice((name, rng.randbytes(5))))
    await run("HSET", f"{shard.root}:values", "", rng.choice((b"x", b"-3", b"9" * 40)))
