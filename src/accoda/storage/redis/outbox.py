"""Cluster only: jobs and reports on their way to another shard.

A script reaches one shard. Jobs for others are written into an outbox in the shard that the script does reach, in the
same atomic step, and moved on from there: first delivered, then deleted from the outbox. So are reports, which only the
script knows: the client reads them in the outbox when it is told that there are some. A run that is delivered again
(the client died in between, or two clients moved it at once) finds its mark and changes nothing. Clients that take,
wait or count move on what others left behind.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter

from msgspec import MsgspecError, Struct, field, msgpack
from msgspec.structs import force_setattr

from accoda.errors import StorageError, StorageUnavailable
from accoda.limits import KEY
from accoda.model import REPORTS, Enqueued, Job, JobInfo, NewJob
from accoda.storage.redis.client import Client
from accoda.storage.redis.keys import CLUSTER_STEP, Shard, family
from accoda.storage.redis.scripts import script
from accoda.storage.redis.shards import Shards

_COLLECT, _POST = script("collect"), script("post")
log = logging.getLogger("accoda.storage.redis")
SWEEP_EVERY = 10.0  # seconds between looks for runs that were left behind
LEFT_AFTER = 30_000  # ms after which a run counts as left behind
GIVE_UP_AFTER = 300.0  # seconds after which a run that was read is not delivered; its mark stays for an hour

_PART = re.compile(rb"(\d{1,10})(?:,(\d{1,10}))?:")
FLOWS = family(REPORTS)

Store = Callable[[Shard, Sequence[NewJob], str | None], Awaitable[list[Enqueued]]]
"""Stores jobs in a shard, once for all clients that give the same mark."""


class Run(Struct):
    """Jobs of one call that leave a shard together, by the tags of the shards that they go to."""

    name: str
    jobs: dict[str, list[NewJob]] = field(default_factory=dict)

    def add(self, tag: str, jobs: Sequence[NewJob]) -> None:
        self.jobs.setdefault(tag, []).extend(jobs)


class _Sealed(Struct, array_like=True, frozen=True):
    tag: str
    jobs: list[NewJob]


def seal(tag: str, jobs: Sequence[NewJob]) -> bytes:
    """Jobs as they lie in an outbox. Those of several outcomes that leave with one run are joined by the script.

    A report that the script adds is the sizes of its flow's key and of its text, and these: "6,30:flow-1done 7 ...".
    """
    packed = msgpack.encode(_Sealed(tag, list(jobs)))
    return b"%d:%b" % (len(packed), packed)


def unseal(name: str, text: bytes, tags_of_jobs: Callable[[Sequence[NewJob]], list[str]]) -> Run:
    """What `seal` and lua/parts/report.lua have sealed. `tags_of_jobs` tells where reports go."""
    run = Run(name)
    reports: list[NewJob] = []
    at = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError("not a part of a run")
        middle = part.end() + int(part[1])
        at = middle + int(part[2] or 0)
        if at > len(text):
            raise ValueError("a part of a run is cut off")
        if part[2] is None:
            sealed = msgpack.decode(text[part.end() : middle], type=_Sealed)
            run.add(sealed.tag, sealed.jobs)
        else:
            reports.append(_report(text[part.end() : middle], text[middle:at]))
    for job, tag in zip(reports, tags_of_jobs(reports), strict=True):
        run.add(tag, [job])
    return run


def _report(flow: bytes, text: bytes) -> NewJob:
    """What adds a report to its flow. One whose key was damaged must not keep the others of its run from arriving."""
    job = NewJob(REPORTS, key=flow.decode(errors="replace")[:KEY], on_duplicate="attach")
    force_setattr(job, "waiter", text)  # no limit on what comes in holds for it: it is the store's own
    return job


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
        posted: list[str | bytes] = []
        for tag, pairs in groupby(zip(jobs, tags, strict=True), itemgetter(1)):
            runs.append(Run(self._client.new_name(), {tag: [job for job, _ in pairs]}))
            posted += (runs[-1].name, seal(tag, runs[-1].jobs[tag]))
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
        answers = []
        for tag, jobs in run.jobs.items():
            shard = await self._shards.registered(tag)
            answers += await self._store(shard, jobs, shard.moved(run.name))
        return answers

    async def clear(self, home: Shard, runs: Sequence[str]) -> None:
        await self._client.command(home.slot, "HDEL", home.outbox, *runs)

    # -- reports

    async def way_of_reports(self, shard: Shard) -> tuple[Shard, str]:
        """The run with which reports leave a shard. It has no name if they stay; then the shard has its number."""
        if self._shards.single is not None:
            return shard, ""
        if shard.tag == FLOWS:
            return await self._shards.registered(FLOWS), ""
        return shard, self._client.new_name()

    async def move_on(self, home: Shard, names: Sequence[str]) -> None:
        """Deliver runs that have reports, as they are in the outbox. If a node is away, others do it later."""
        for name in names:
            with suppress(StorageError):
                posted = await self._client.command(home.slot, "HGET", home.outbox, name)
                if posted is not None:  # else another client was faster
                    await self._move(home, name.encode(), posted.partition(b" ")[2])

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
            run = unseal(name.decode(), sealed, self._shards.tags_of_jobs)
        except (ValueError, MsgspecError) as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                log.warning("%s has a run of jobs, %r, that cannot be read (%s): it stays", shard.outbox, name, error)
            return 0
        await self.deliver(run)
        await self.clear(shard, [run.name])
        return 1
