"""The verbs of `Inspector`, over shards."""

from __future__ import annotations

from collections.abc import Sequence

from accoda.model import JobInfo, Place, State
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.encode import described, id_text, rank_text
from accoda.storage.redis.keys import LAST_ID, Keys, Shard
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.scripts import Script, script
from accoda.storage.redis.shards import Shards

_FIND, _BROWSE, _REMOVE, _REVIVE = script("find"), script("browse"), script("remove"), script("revive")
_START_NOW, _PAUSE, _PURGE, _INDEX = script("start_now"), script("pause"), script("purge"), script("index")
_PLACE, _STAND = script("place"), script("stand")
_AT_ONCE = 500  # jobs in one step, so that the server is never busy for long


class People:
    def __init__(self, keys: Keys, caller: Caller, shards: Shards, outbox: Outbox) -> None:
        self._keys = keys
        self._caller = caller
        self._shards = shards
        self._outbox = outbox

    async def find(self, id: int) -> JobInfo | None:
        shard = await self._shards.of_id(id) if id <= LAST_ID else None
        names = await self._shards.names(shard) if shard is not None else []
        if shard is None or not names:
            return None
        reply = await self._caller.run(_FIND, shard, [shard.queues, *self._bases(shard, names)], id_text(id))
        return self._seen([described(names[reply[0]], reply[1:])])[0] if reply else None

    async def place(self, id: int) -> Place | None:
        shard = await self._shards.of_id(id) if id <= LAST_ID else None
        names = await self._shards.names(shard) if shard is not None else []
        if shard is None or not names:
            return None
        reply = await self._caller.run(_PLACE, shard, [shard.queues, *self._bases(shard, names)], id_text(id))
        if not reply:
            return None
        moment, place, ahead, newer, *told = reply
        (job,) = self._seen([described(names[place], told)])
        if job.state in ("ready", "delayed"):
            others = [each for each in self._shards.of_queue(job.queue) if each.root != shard.root]
            for more in [await self._stand(each, job) for each in others]:
                ahead, newer = ahead + more[0], newer + more[1]
        return Place(int(moment), job, ahead, newer)

    async def _stand(self, shard: Shard, job: JobInfo) -> tuple[int, int]:
        """How many of another partition come before a job: by rank, then by the partition's own count, with which each
        of its ids begins."""
        keys = [shard.queues, self._keys.base(job.queue, shard.partition)]
        ahead, newer = await self._caller.run(_STAND, shard, keys, rank_text(job.rank), id_text(job.id))
        return ahead, newer

    async def browse(self, queue: str, state: State, after: int | None, limit: int) -> list[JobInfo]:
        if after is not None and after >= LAST_ID:
            return []
        found: list[JobInfo] = []
        for shard in self._shards.of_queue(queue):
            found += await self._browse(shard, queue, state, "" if after is None else id_text(after), limit)
        found.sort(key=lambda info: info.id)
        return self._seen(found[:limit])

    def _seen(self, found: list[JobInfo]) -> list[JobInfo]:
        if self._shards.single is None:
            self._outbox.saw(found)
        return found

    async def _browse(self, shard: Shard, queue: str, state: State, after: str | bytes, limit: int) -> list[JobInfo]:
        found: list[JobInfo] = []
        keys = [shard.queues, self._keys.base(queue, shard.partition)]
        while True:
            size = min(limit - len(found), _AT_ONCE)
            after, *page = await self._caller.run(_BROWSE, shard, keys, state, after, size)
            found += [described(queue, each) for each in page]
            if not after or len(found) >= limit:
                return found

    async def remove(self, ids: Sequence[int]) -> int:
        return await self._each(_REMOVE, ids)

    async def revive(self, ids: Sequence[int]) -> int:
        return await self._each(_REVIVE, ids)

    async def start_now(self, ids: Sequence[int]) -> int:
        return await self._each(_START_NOW, ids)

    async def _each(self, script: Script, ids: Sequence[int]) -> int:
        groups: dict[str, tuple[Shard, list[str]]] = {}
        for id in ids:
            shard = await self._shards.of_id(id) if id <= LAST_ID else None
            if shard is not None:
                groups.setdefault(shard.root, (shard, []))[1].append(id_text(id))
        done = 0
        for shard, texts in groups.values():
            keys = [shard.queues, *self._bases(shard, await self._shards.names(shard))]
            for start in range(0, len(texts), _AT_ONCE):
                done += int(await self._caller.once(script, shard, keys, *texts[start : start + _AT_ONCE]))
        return done

    async def pause(self, queue: str, until: int | None) -> None:
        for shard in self._shards.of_queue(queue):
            if self._shards.single is None:
                shard = await self._shards.registered(shard.root.partition("{")[2][:-1])
            await self._set_pause(shard, queue, "pause", "" if until is None else until)

    async def resume(self, queue: str) -> None:
        for shard in self._shards.of_queue(queue):
            await self._set_pause(shard, queue, "resume", "")

    async def _set_pause(self, shard: Shard, queue: str, what: str, until: int | str) -> None:
        keys = [shard.queues, self._keys.base(queue, shard.partition)]
        await self._caller.run(_PAUSE, shard, keys, queue, what, until, writes=True)

    async def purge(self, queue: str, state: State, before: int | None, limit: int | None) -> int:
        purged = 0
        for shard in self._shards.of_queue(queue):
            left = None if limit is None else limit - purged
            purged += await self._purge(shard, queue, (state, before), left)
        return purged

    async def _purge(self, shard: Shard, queue: str, which: tuple[State, int | None], limit: int | None) -> int:
        """In pieces: each is one step, between them others have their turn."""
        state, before = which
        keys = [shard.queues, self._keys.base(queue, shard.partition)]
        ordered = "" if before is None and limit is None else "1"
        moment = "" if before is None else before
        purged, more, indexed = 0, b"1", False
        while more == b"1" and (limit is None or purged < limit):
            most = _AT_ONCE * 2 if limit is None else min(_AT_ONCE * 2, limit - purged)
            answer: bytes = await self._caller.once(_PURGE, shard, keys, state, moment, most, ordered)
            if answer == b"index":
                await self._index(shard, keys, state)
                if indexed:  # older clients change it as fast as we put it right
                    return purged
                indexed = True
                continue
            count, _, more = answer.partition(b",")
            purged += int(count)
        return purged

    async def _index(self, shard: Shard, keys: list[str], state: State) -> None:
        after: bytes | str = ""
        while after := await self._caller.run(_INDEX, shard, keys, state, after, writes=True):
            pass

    def _bases(self, shard: Shard, names: Sequence[str]) -> list[str]:
        return [self._keys.base(name, shard.partition) for name in names]
