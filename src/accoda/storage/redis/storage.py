"""`Store` on Redis. Each verb is a step of the modules beside this one; `caller.py` gets it to the server."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import cast

from accoda.clock import Clock, SystemClock
from accoda.model import (
    Document,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    Place,
    Rank,
    Refused,
    State,
    Stats,
    check_document_name,
    check_queue,
)
from accoda.storage import inputs
from accoda.storage.closing import Closing
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.documents import Documents
from accoda.storage.redis.home import Home
from accoda.storage.redis.jobs import Jobs
from accoda.storage.redis.keys import Keys, Shard
from accoda.storage.redis.looks import Looks
from accoda.storage.redis.outbox import Outbox
from accoda.storage.redis.people import People
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards
from accoda.storage.redis.together import Shared
from accoda.storage.redis.types import expected
from accoda.storage.redis.wakes import LOOK_EACH, Wakes
from accoda.storage.signal import Signal

_LOOK = script("look")


class RedisStorage(Closing):
    """Safe to share between threads and event loops; other processes open their own."""

    def __init__(self, keys: Keys, caller: Caller, clock: Clock | None, partitions: int, patience: float) -> None:
        self._keys = keys
        self._caller = caller
        self._given = clock
        self._clock = clock or SystemClock()
        self._home = Home()
        self._signal = Signal()
        self._shards = Shards(keys, caller, partitions)
        self._outbox = Outbox(keys, caller, self._shards)
        together = Shared(caller.in_trouble)
        self._jobs = Jobs(keys, caller, self._shards, self._outbox, together)
        self._looks = Looks(keys, caller, self._shards, self._outbox, together)
        self._people = People(keys, caller, self._shards, self._outbox)
        self._documents = Documents(keys, caller)
        self._wakes = Wakes(caller, self._signal, patience)
        self._asked: tuple[object, ...] = (None, None, None, self)  # by the last take that was in order

    async def close(self) -> None:
        if not self._home.closed:
            await self._home.run(self._close())

    async def _close(self) -> None:
        self._home.closed = True
        await self._jobs.finish()
        self._caller.closed = True
        await self._outbox.close()
        self._signal.ring()
        await self._wakes.close()
        for connection in self._caller.topology.close():
            await connection.wait_closed()
        await self._jobs.finish()  # whoever waited for a lost server learns now that it is over

    # -- the hot path

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not (type(jobs) is list and len(jobs) == 1 and type(jobs[0]) is NewJob):  # the usual call has passed
            inputs.check_jobs(jobs)
        work = self._jobs.enqueue(jobs)
        return await (work if self._home.is_here() else self._home.run(work))

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        asked = self._asked
        if not (queue is asked[0] and count is asked[1] and lease is asked[2] and max_cost is asked[3]):
            inputs.check_take(queue, count, lease, max_cost)
            self._asked = (queue, count, lease, max_cost)  # the very same objects need no second check
        work = self._jobs.take(queue, count, lease, max_cost, worker)
        return await (work if self._home.is_here() else self._home.run(work))

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        here = self._home.is_here()
        if here and type(outcomes) is list and (batches := self._jobs.wholes.ended_by(outcomes)):
            return await self._jobs.wholes.finish(batches)  # with our own leases: nothing in them needs a check
        inputs.check_outcomes(outcomes)
        work = self._jobs.settle(outcomes)
        return await (work if here else self._home.run(work))

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        inputs.check_leases(leases, lease)
        return await self._home.run(self._jobs.extend(leases, lease))

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        inputs.check_ranks(ranks)
        return await self._home.run(self._jobs.rerank(ranks))

    async def waiters(self, lease: Lease) -> list[bytes]:
        inputs.check_leases((lease,), 1.0)
        return await self._home.run(self._jobs.waiters(lease))

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        inputs.check_peek(queue, key, after)
        return await self._home.run(self._looks.peek(queue, key, after))

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        inputs.check_drop(queue, id, waiters)
        return await self._home.run(self._looks.drop(queue, id, waiters))

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        inputs.check_wait(queues, timeout)
        work = self._wait(queues, timeout)
        return await (work if self._home.is_here() else self._home.run(work))

    async def _wait(self, queues: Sequence[str], timeout: float) -> bool:
        # A dot in a channel's name means nothing to Redis: each queue and partition has one of its own.
        places = [(queue, shard) for queue in dict.fromkeys(queues) for shard in self._shards.of_queue(queue)]
        bases = [self._keys.base(queue, shard.partition) for queue, shard in places]
        channels = {f"{base}:wake".encode(): queue for base, (queue, _) in zip(bases, places, strict=True)}
        groups: dict[str, tuple[Shard, list[str]]] = {}
        for base, (_, shard) in zip(bases, places, strict=True):
            groups.setdefault(shard.root, (shard, [shard.queues]))[1].append(base)
        roots = {f"{base}:wake".encode(): shard.root for base, (_, shard) in zip(bases, places, strict=True)}
        last: dict[bytes, float] = {}  # by channel, the last sequence number of its shard at the last look
        hints, starts_at = 0, math.inf

        async def look() -> tuple[bool, int | None]:
            nonlocal last, hints, starts_at
            # Neither needs a look: something was ready after the last one, or the start of a job that it told of has
            # come. If another taker was faster, a look could be too late as well: a take decides, not this.
            if self._wakes.told_of_more(hints, last) or self._now() >= starts_at:
                return True, None
            if self._shards.single is None:
                self._outbox.tick()
            if channels:
                await self._wakes.want(channels)
            replies = await asyncio.gather(*(self._caller.run(_LOOK, *group) for group in groups.values()))
            answers = [reply[0] for reply in replies]
            if b"now" in answers:
                return True, None
            for (shard, keys), (_, _, *broken) in zip(groups.values(), replies, strict=True):
                if broken:
                    await self._pass_over(shard, [keys[1 + place] for place in broken], len(bases))
            # Lengths of time by the server's clock, so that this machine's clock may be as wrong as it likes.
            numbers = {root: float(reply[1] or math.inf) for root, reply in zip(groups, replies, strict=True)}
            last = {channel: numbers[root] for channel, root in roots.items()}
            now, hints = self._now(), self._wakes.hints
            starts_at = min((now + float(answer[1:]) for answer in answers if answer[:1] == b"s"), default=math.inf)
            moments = [now + float(answer.lstrip(b"s")) for answer in answers if answer]
            return False, cast(int, min([now + LOOK_EACH, *moments]))  # the clock takes fractions as well

        return await self._signal.wait(self._clock, queues, timeout, look)

    def _now(self) -> float:
        """The present moment, not rounded."""
        return time.time() * 1000 if self._given is None else self._given.now()

    async def _pass_over(self, shard: Shard, broken: list[str], all_bases: int) -> None:
        """Queues that cannot be looked at: whoever waits for others too goes on with those."""
        if len(broken) == all_bases:
            raise await self._caller.name_wrong_type(shard.slot, expected(("EVAL", "", len(broken), *broken)))
        await self._caller.warn_of_wrong_types(shard, broken)

    async def stats(self) -> Stats:
        return await self._home.run(self._jobs.stats())

    # -- documents

    async def read(self, name: str) -> Document | None:
        check_document_name(name)
        return await self._home.run(self._documents.read(name))

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        inputs.check_write(name, value, version, ttl)
        return await self._home.run(self._documents.write(name, value, version, ttl))

    async def documents(self, prefix: str) -> list[Document]:
        inputs.check_prefix(prefix)
        return await self._home.run(self._documents.documents(prefix))

    # -- for people

    async def find(self, id: int) -> JobInfo | None:
        inputs.check_id(id)
        return await self._home.run(self._people.find(id))

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        inputs.check_browse(queue, state, after, limit)
        return await self._home.run(self._people.browse(queue, state, after, limit))

    async def place(self, id: int, most: int = 1000) -> Place | None:
        inputs.check_place(id, most)
        return await self._home.run(self._people.place(id))  # exact: a sorted set knows how many are before a place

    async def remove(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        return await self._home.run(self._people.remove(ids))

    async def revive(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        return await self._home.run(self._people.revive(ids))

    async def start_now(self, ids: Sequence[int]) -> int:
        inputs.check_ids(ids)
        return await self._home.run(self._people.start_now(ids))

    async def pause(self, queue: str, until: int | None = None) -> None:
        inputs.check_pause(queue, until)
        await self._home.run(self._people.pause(queue, until))

    async def resume(self, queue: str) -> None:
        check_queue(queue)
        await self._home.run(self._people.resume(queue))

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        inputs.check_purge(queue, state, before, limit)
        return await self._home.run(self._people.purge(queue, state, before, limit))
