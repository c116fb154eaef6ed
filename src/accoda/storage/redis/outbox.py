"""Cluster only: jobs on their way to another shard.

A script reaches one shard. Jobs for others are written into an outbox in the shard that the script does reach, in the
same atomic step, and moved on from there: first delivered, then deleted from the outbox. A run that is delivered again
(its mover died in between, or two moved it at once) finds its mark and changes nothing. Whoever takes, waits or counts
moves on what others left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from msgspec import MsgspecError

from accoda.errors import StorageError, StorageUnavailable
from accoda.model import Enqueued, Job, JobInfo, NewJob
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.encode import Sealed, enqueued, seal, sealed_arguments, unseal
from accoda.storage.redis.keys import CLUSTER_STEP, Keys, Shard
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_COLLECT, _DELIVER, _POST = script("collect"), script("deliver"), script("post")
log = logging.getLogger("accoda.storage.redis")
SWEEP_EACH = 10.0  # seconds between looks for runs that were left behind
LEFT_AFTER = 30_000  # ms after which a run counts as left behind
GIVE_UP_AFTER = 300.0  # seconds: half of the time for which a mark stays, see lua/deliver.lua


class Run:
    """Neighbouring jobs of one call that go from one shard to one other."""

    def __init__(self, name: str, tag: str) -> None:
        self.name = name
        self.tag = tag
        self.jobs: list[NewJob] = []

    def sealed(self) -> bytes:
        return b"".join(seal(self.tag, job) for job in self.jobs)


class Outbox:
    def __init__(self, keys: Keys, caller: Caller, shards: Shards) -> None:
        self._keys = keys
        self._caller = caller
        self._shards = shards
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
                runs.append(Run(self._caller.new_name(), tag))
            runs[-1].jobs.append(job)
        posted = [text for run in runs for text in (run.name, run.sealed())]
        await self._caller.once(_POST, home, [home.outbox], *posted)
        answers = []
        try:
            for run in runs:
                answers += await self.deliver(run.name, unseal(run.sealed()))
            await self.clear(home, [run.name for run in runs])
        except StorageError as error:
            raise StorageUnavailable(
                f"the jobs are stored and will be moved on to their queues, but a node is away ({error}); do not "
                "enqueue them again"
            ) from error
        return answers

    async def deliver(self, run: str, jobs: Sequence[Sealed]) -> list[Enqueued]:
        shard = await self._shards.registered(jobs[0].tag)
        names, args = sealed_arguments(jobs)
        bases = [self._keys.base(name, shard.partition) for name in names]
        keys = [shard.moved(run), shard.ids, shard.queues, *bases]
        head = (shard.step, shard.number, self.floor, len(jobs), ",".join(names))
        answer = await self._caller.run(_DELIVER, shard, keys, *head, *args, writes=True)
        answers = enqueued(answer, len(jobs), shard.step)
        self.saw(answers)
        return answers

    async def clear(self, home: Shard, runs: Sequence[str]) -> None:
        await self._caller.command(home.slot, "HDEL", home.outbox, *runs)

    def saw(self, found: Sequence[Enqueued | Job | JobInfo]) -> None:
        """Raise the floor to what came back from a shard: follow-ups, and the jobs of others, are first seen so."""
        self.floor = max(self.floor, max((each.id for each in found), default=0) // CLUSTER_STEP)

    # -- what others left behind

    def tick(self) -> None:
        """Now and then, look in all outboxes, beside whatever goes on."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._sweep_at and (self._sweeping is None or self._sweeping.done()):
            self._sweep_at = loop.time() + SWEEP_EACH
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
                cursor, *runs = await self._caller.run(_COLLECT, shard, [shard.outbox], left_after, cursor)
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
            jobs, run = unseal(sealed), name.decode()
        except (ValueError, MsgspecError) as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                log.warning("%s has a run of jobs, %r, that cannot be read (%s): it stays", shard.outbox, name, error)
            return 0
        if jobs:
            await self.deliver(run, jobs)
        await self.clear(shard, [run])
        return 1
