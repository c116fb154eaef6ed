"""Which batches this client holds whole, so that their end can be told in a word.

A worker mostly settles just what it took: every job of a batch, each done, all of them plain (no key, nothing to keep,
never came back). The server knows the jobs of a batch, so then the batch's name says it all (`lua/finish.lua`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial

from msgspec import Struct

from accoda.model import Done, Job, Lease, Outcome, Refused
from accoda.storage.redis.caller import Caller
from accoda.storage.redis.connection import Argument
from accoda.storage.redis.keys import Keys, Shard
from accoda.storage.redis.scripts import script
from accoda.storage.redis.together import Kind, Shared

_FINISH = script("finish")
Settle = Callable[[Sequence[Outcome]], Awaitable[list[Refused]]]
MOST = 128  # batches; of more at a time, the oldest are settled job by job


class Whole(Struct, frozen=True):
    """A batch of plain jobs, as it was taken."""

    shard: Shard
    queue: str
    name: str
    leases: list[Lease]


class Wholes:
    """`settle` is the way for outcomes one by one."""

    def __init__(self, keys: Keys, caller: Caller, together: Shared, settle: Settle) -> None:
        self._keys = keys
        self._caller = caller
        self._together = together
        self._settle = settle
        self._finishes: Kind[list[Whole], list[Whole]] = Kind(self._finish_joined)
        self._by_first: dict[int, Whole] = {}  # by the id of the first job

    def took(self, shard: Shard, queue: str, name: str, jobs: Sequence[Job]) -> None:
        """A batch of plain jobs was taken, by one taker."""
        by_first = self._by_first
        by_first[jobs[0].id] = Whole(shard, queue, name, [job.lease for job in jobs])
        if len(by_first) > MOST:
            del by_first[next(iter(by_first))]

    def ended_by(self, outcomes: Sequence[Outcome]) -> list[Whole]:
        """The batches that these outcomes end, each as a whole and by nothing but `Done`; none where some job is left.

        They are forgotten: whatever becomes of this call, the next one about them goes job by job.
        """
        found: list[Whole] = []
        at = 0
        while at < len(outcomes):
            lease = getattr(outcomes[at], "lease", None)
            whole = self._by_first.pop(lease.id, None) if type(lease) is Lease else None
            if whole is None or not _ends(outcomes, at, whole.leases):
                return []
            found.append(whole)
            at += len(whole.leases)
        return found

    async def finish(self, batches: list[Whole]) -> list[Refused]:
        """Whole batches are done. Those that are not whole any more on the server are settled job by job."""
        refused: list[Refused] = []
        by_shard: dict[str, list[Whole]] = {}
        for batch in batches:
            by_shard.setdefault(batch.shard.root, []).append(batch)
        for part in by_shard.values():
            alone = partial(self._finish_in, part)
            size = sum(len(batch.leases) for batch in part)
            left = await self._together.to(part[0].shard).call(self._finishes, part[0].shard, part, size, alone)
            if left:
                refused += await self._settle([Done(lease) for batch in left for lease in batch.leases])
        return refused

    async def _finish_joined(
        self, _: Hashable, calls: list[list[Whole]], callers: list[asyncio.Future[list[Whole]]]
    ) -> list[list[Whole]]:
        # Each batch is ended or left for itself, whatever becomes of the others.
        left = {batch.name for batch in await self._finish_in([batch for batches in calls for batch in batches])}
        return [[batch for batch in batches if batch.name in left] for batches in calls]

    async def _finish_in(self, batches: list[Whole]) -> list[Whole]:
        """Batches of one shard; those to which nothing was done."""
        shard = batches[0].shard
        queues: dict[str, int] = {}
        args: list[Argument] = []
        for batch in batches:
            number = queues.setdefault(batch.queue, len(queues) + 1)
            args += (number, batch.name, len(batch.leases))
        bases = [self._keys.base(queue, shard.partition) for queue in queues]
        answer = await self._caller.once(_FINISH, shard, [shard.queues, *bases], *args)
        return [batches[int(place)] for place in answer.decode().split(",")] if answer else []


def _ends(outcomes: Sequence[Outcome], at: int, leases: list[Lease]) -> bool:
    """Whether the outcomes from place `at` on say that just these leases are done, and nothing else.

    The leases are the very ones that were given out, so there is nothing to check in them.
    """
    part = outcomes if at == 0 and len(outcomes) == len(leases) else outcomes[at : at + len(leases)]
    if len(part) != len(leases):
        return False
    for outcome, lease in zip(part, leases, strict=True):
        if type(outcome) is not Done or outcome.lease is not lease:
            return False
        if outcome.then or outcome.result is not None or outcome.waiters is not None:
            return False
    return True
