"""enqueue, take and settle as they are sent: small calls of many tasks go together (`accoda.storage.joining`).

The server carries out one call after the other, none of them waits for another, and one call is one transaction. So:
- enqueue: jobs of several callers are stored in one step as if one call after the other had come.
- take: from one queue, for the same worker and the same time, without a budget. The first caller gets the first jobs.
- settle: outcomes without follow-ups. Follow-ups are enqueued when all outcomes of a call are applied, which the
  follow-ups of another caller's call must not wait for: his key may be free then that was held before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from accoda.errors import StorageFull
from accoda.model import Enqueued, Job, NewJob, Outcome, Refused, follow_ups
from accoda.storage.joining import Joining
from accoda.storage.tarantool import rows
from accoda.storage.tarantool.client import Client

MOST_JOBS = 1_000_000  # in one take

Taking = tuple[str, int, str]
"""The queue, the ms of the lease, and the worker."""


class Calls:
    """Belongs to the client's home loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._storing: Joining[None, Sequence[NewJob], list[Enqueued]] = Joining(self._store, self._store_all)
        self._taking: Joining[Taking, int, list[Job]] = Joining(self._lease, self._lease_all, self._nobody_takes)
        self._settling: Joining[None, Sequence[Outcome], list[Refused]] = Joining(self._settle, self._settle_all)
        self._undone: set[asyncio.Task[Any]] = set()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._storing.call(None, jobs, len(jobs))

    async def take(self, taking: Taking, count: int, max_cost: int | None) -> list[Job]:
        if max_cost is not None:
            return await self._lease(taking, count, max_cost)
        return await self._taking.call(taking, count, count)

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        if any(follow_ups(outcome) for outcome in outcomes):
            return await self._settle(None, outcomes)
        return await self._settling.call(None, outcomes, len(outcomes))

    async def set_aside(self, ids: Sequence[int]) -> None:
        """These cannot be read: they are dead letters from now on, and stop nobody any more."""
        await self._client.call("aside", (ids,), rows.INT)

    # -- enqueue

    async def _store(self, _: None, jobs: Sequence[NewJob]) -> list[Enqueued]:
        names = rows.Names()
        news = rows.rows_of_jobs(names, jobs)
        first, joined = await self._client.once("enqueue", (names.list(), news), rows.ENQUEUED)
        return rows.enqueued(jobs, first, joined)

    async def _store_all(self, _: None, calls: list[Sequence[NewJob]]) -> list[list[Enqueued]]:
        answers = iter(await self._store(None, [job for jobs in calls for job in jobs]))
        return [[next(answers) for _ in jobs] for jobs in calls]

    # -- take

    async def _lease(self, taking: Taking, count: int, max_cost: int | None = None) -> list[Job]:
        queue, lease, worker = taking
        found = await self._find(queue, min(count, MOST_JOBS), (lease, max_cost, worker))
        jobs, damaged = rows.taken(queue, found)
        if damaged:
            await self.set_aside(damaged)
        return jobs

    async def _lease_all(self, taking: Taking, counts: list[int]) -> list[list[Job]]:
        jobs = await self._lease(taking, sum(counts))
        shares, start = [], 0
        for count in counts:
            shares.append(jobs[start : start + count])
            start += count
        return shares

    async def _find(self, queue: str, count: int, rest: tuple[Any, ...]) -> rows.Found:
        def late(found: rows.Found) -> None:
            self._give_back(queue, [(row.id, row.attempts) for row in found.rows])

        while True:
            try:
                found: rows.Found = await self._client.once("take", (queue, count, *rest), rows.JOBS, late)
                return found
            except StorageFull:
                if count <= 1:
                    raise
                count //= 2  # for fewer there may be room, and when they are done there is more

    def _nobody_takes(self, taking: Taking, jobs: list[Job]) -> None:
        self._give_back(taking[0], [(job.id, job.attempts) for job in jobs])

    def _give_back(self, queue: str, leases: list[tuple[int, int]]) -> None:
        """A take was cancelled, and then its answer came: nobody will run these jobs."""
        if not leases:
            return
        task = asyncio.get_running_loop().create_task(self._client.call("give_back", (queue, leases), rows.INT))
        self._undone.add(task)  # so that it is not collected while it runs

        def forget(task: asyncio.Task[Any]) -> None:
            self._undone.discard(task)
            if not task.cancelled():
                task.exception()  # if the server cannot be reached, they come back when their lease ends

        task.add_done_callback(forget)

    # -- settle

    async def _settle(self, _: None, outcomes: Sequence[Outcome]) -> list[Refused]:
        names = rows.Names()
        outcome_rows, follow_ups = rows.rows_of_outcomes(names, outcomes)
        answer = await self._client.once("settle", (names.list(), outcome_rows, follow_ups), rows.REFUSED)
        return rows.refused(outcomes, answer)

    async def _settle_all(self, _: None, calls: list[Sequence[Outcome]]) -> list[list[Refused]]:
        names = rows.Names()
        outcome_rows, _none = rows.rows_of_outcomes(names, (outcome for call in calls for outcome in call))
        answer = dict(await self._client.once("settle", (names.list(), outcome_rows, []), rows.REFUSED))
        answers, start = [], 0
        for outcomes in calls:
            places = range(start + 1, start + len(outcomes) + 1)
            own = [(place - start, answer[place]) for place in places if place in answer] if answer else []
            answers.append(rows.refused(outcomes, own))
            start += len(outcomes)
        return answers
