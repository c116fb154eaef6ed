"""Cluster only: jobs on their way to another shard.

A script reaches one shard. Jobs for others are written into an outbox in the shard that the script does reach, in the
same atomic step, and moved on from there: first delivered, then deleted from the outbox. A run that is delivered again
(the client died in between, or two clients moved it at once) finds its mark and changes nothing. Clients that take,
wait or count move on what others left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec import MsgspecError, Struct, field, msgpack

from accoda.errors import StorageError, StorageUnavailable
from accoda.model import Enqueued, Job, JobInfo, NewJob
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import CLUSTER_STEP, Shard
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_COLLECT, _POST = script("collect"), script("post")
log = logging.getLogger("accoda.storage.redis")
SWEEP_EVERY = 10.0  # seconds between looks for runs that were left behind
LEFT_AFTER = 30_000  # ms after which a run counts as left behind
GIVE_UP_AFTER = 300.0  # seconds after which a run that was read is not delivered; its mark stays for an hour

Store = Callable[[Shard, Sequence[NewJob], str | None], Awaitable[list[Enqueued]]]
"""Stores jobs in a shard, once for all clients that give the same mark."""


class Run(Struct):
    """Neighbouring jobs of one call that go from one shard to one other, the one with this tag."""

    name: str
    tag: str
    jobs: list[NewJob] = field(default_factory=list)


class _Sealed(Struct, array_like=True, frozen=True):
    tag: str
    jobs: list[NewJob]


def seal(tag: str, jobs: Sequence[NewJob]) -> bytes:
    """Jobs as they lie in an outbox. Those of several outcomes that leave with one run are joined by the script."""
    packed = msgpack.encode(_Sealed(tag, list(jobs)))
    return b"%d:%b" % (len(packed), packed)


def unseal(name: str, text: bytes) -> Run:
    run = Run(name, "")
    while text:
        size, _, rest = text.partition(b":")
        sealed = msgpack.decode(rest[: int(size)], type=_Sealed)
        run.tag = sealed.tag
        run.jobs += sealed.jobs
        text = rest[int(size) :]
    return run


class Outbox:
    def __init__(self, client: Client, shards: Shards, store: Store) -> None:
        self._client = client
        self._shards = shards
        self._store = store
        self._sweep_at = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        self._unreadable: set[bytes] = set()
        self.floor = 0  # the highest sequence number that this client has seen: later jobs get higher ids

    async def enqueue(self, jobs: Sequence[NewJob], tags: Sequence[str]) -> list[Enqueued]:
        """Jobs for several shards, all or nothing: once the outbox has them, all of them will arrive."""
        home = await self._shards.registered(tags[0])
        runs: list[Run] = []
        for job, tag in zip(jobs, tags, strict=True):
            if not runs or runs[-1].tag != tag:
                runs.append(Run(self._client.new_name(), tag))
            runs[-1].jobs.append(job)
        posted = [text for run in runs for text in (run.name, seal(run.tag, run.jobs))]
        await self._client.once(_POST, home, [home.outbox], *posted)
        answers = []
        try:
            for run in runs:
                answers += await self.deliver(run)
            await self.clear(home, [run.name for run in runs])
        except StorageError as error:
            raise StorageUnavailable(
                f"the jobs are stored and will be moved on to their queues, but a node is away ({error}); do not "
                "enqueue them again"
            ) from error
        return answers

    async def deliver(self, run: Run) -> list[Enqueued]:
        shard = await self._shards.registered(run.tag)
        return await self._store(shard, run.jobs, shard.moved(run.name))

    async def clear(self, home: Shard, runs: Sequence[str]) -> None:
        await self._client.command(home.slot, "HDEL", home.outbox, *runs)

    def saw(self, found: Sequence[Enqueued | Job | JobInfo]) -> None:
        """Raise the floor to what came back from a shard: follow-ups, and the jobs of others, are first seen so."""
        self.floor = max(self.floor, max((each.id for each in found), default=0) // CLUSTER_STEP)

    # -- what others left behind

    def tick(self) -> None:
        """Now and then, look in all outboxes, beside whatever goes on."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._sweep_at and (self._sweeping is None or self._sweeping.done()):
            self._sweep_at = loop.time() + SWEEP_EVERY
            self._sweeping = loop.create_task(self._sweep_quietly())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)

    async def _sweep_quietly(self) -> None:
        try:
            await self.sweep()
        except StorageError:
            return  # the next sweep, of this client or another, tries again

    async def sweep(self, left_after: int = LEFT_AFTER) -> int:
        """Move on all that has been lying for `left_after` milliseconds; how many runs that were."""
        moved = 0
        loop = asyncio.get_running_loop()
        for shard in await self._shards.all():
            cursor = b"0"
            while True:
                read_at = loop.time()
                cursor, *runs = await self._client.run(_COLLECT, shard, [shard.outbox], left_after, cursor)
                for name, sealed in zip(runs[::2], runs[1::2], strict=True):
                    if loop.time() - read_at > GIVE_UP_AFTER:
                        break
                    moved += await self._move(shard, name, sealed)
                if cursor == b"0":
                    break
        return moved

    async def _move(self, shard: Shard, name: bytes, sealed: bytes) -> int:
        """Deliver one run that was left behind. One that cannot be read stays where it is, and stops no other."""
        try:
            run = unseal(name.decode(), sealed)
        except (ValueError, MsgspecError) as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                log.warning("%s has a run of jobs, %r, that cannot be read (%s): it stays", shard.outbox, name, error)
            return 0
        if run.jobs:
            await self.deliver(run)
        await self.clear(shard, [run.name])
        return 1
