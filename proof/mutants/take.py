"""Storages whose `take` goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from accoda.model import Job
from accoda.storage.memory import MemoryStorage
from proof.mutants.mutant import mutant


@mutant("a taken job stays in the line", "TestTake::test_gives_at_most_count_jobs")
class LeasedTwice(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, **options)
        for job in jobs:
            record = self._jobs[job.id]
            if record.lane is not None:
                record.queue.lane_of(record).ready[record.id] = record
            record.queue.line_up(record, record.sort)
            record.state = "taken"
        return jobs


@mutant(
    "take looks, lets others run, then leases",
    "TestPromise01AJobIsNeverLeasedToTwoTakers::test_takers_that_come_at_once_share_the_jobs_out",
    by_machine=False,  # one call at a time
)
class TakeInTwoSteps(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        found = self._queues[queue]
        seen = sorted(found.ready.values(), key=lambda record: (record.sort, record.id))[:count]
        await asyncio.sleep(0)
        return found.lease(seen, self._now(), self._now() + 60_000, "")


@mutant(
    "a cheaper job overtakes a head that costs too much",
    "TestCost::test_the_head_is_never_skipped_for_a_cheaper_job",
)
class HeadSkipped(MemoryStorage):
    async def take(self, queue: str, count: int, *, max_cost: int | None = None, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, max_cost=max_cost, **options)
        found = self._queues.get(queue)
        if max_cost is None or found is None or found.paused:
            return jobs
        for record in sorted(found.ready.values(), key=lambda record: (record.sort, record.id)):
            if len(jobs) < count and record.cost + sum(job.cost for job in jobs) <= max_cost:
                del found.ready[record.id]
                if record.lane is not None:
                    del found.lane_of(record).ready[record.id]
                    found.lane_of(record).taken += 1
                jobs += found.lease([record], self._now(), self._now() + 60_000, "")
        return jobs


@mutant(
    "take sorts the whole line",
    "TestPromise10OneOperationCostsAtMostLogN::test_many_waiting_jobs_do_not_make_a_run_slower",
    by_machine=False,
)
class TakeScans(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        found = self._queues.get(queue)
        sorted(found.ready.values(), key=lambda record: record.rank) if found else ()
        return await super().take(queue, count, **options)


@mutant("a paused queue hands out jobs", "TestPause::test_a_paused_queue_gives_nothing_until_it_is_resumed")
class PauseIgnored(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        found = self._queues.get(queue)
        if found is None or not found.paused:
            return await super().take(queue, count, **options)
        until, found.paused, found.paused_until = found.paused_until, False, None
        jobs = await super().take(queue, count, **options)
        found.paused, found.paused_until = True, until
        return jobs


@mutant("take tells no tries and no crashes", "TestCrashes::test_are_told_with_the_jobs_of_a_batch")
class TakeTellsNoFailures(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        return [replace(job, tries=0, crashes=0) for job in await super().take(queue, count, **options)]
