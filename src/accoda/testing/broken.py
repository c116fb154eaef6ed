"""The broken memory storages of `accoda.testing.mutants`: each changes one verb or one step of MemoryStorage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from accoda.clock import SystemClock
from accoda.model import Bury, Done, Enqueued, Job, Lease, NewJob, Outcome, Peek, Rank, Refused, Retry, State, Stats
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.line import Line, Record, lease_out
from accoda.storage.protocol import DUE_AT_ONCE
from accoda.storage.signal import Signal


class LeasedTwice(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, **options)
        for job in jobs:
            record = self._jobs[job.id]
            record.line.ready[record.id] = record
            record.line.make_ready(record)
        return jobs


class TakeInTwoSteps(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        line = self._lines[queue]
        seen = sorted(line.ready.values(), key=lambda record: (record.rank, record.id))[:count]
        await asyncio.sleep(0)
        return lease_out(line, seen, self._now(), self._now() + 60_000, "") if seen else []


class AttemptsStay(MemoryStorage):
    def _move_on(self, record: Record, now: int) -> None:
        attempts = record.attempts
        super()._move_on(record, now)
        record.attempts = attempts


class LateDone(MemoryStorage):
    def _current(self, lease: Lease, now: int) -> Record | None:
        record = self._jobs.get(lease.id)
        return record if record is not None and record.state == "taken" and record.due > now else None


class LeaseLastsTooLong(MemoryStorage):
    def _current(self, lease: Lease, now: int) -> Record | None:
        return super()._current(lease, -1)


class QueueUnchecked(MemoryStorage):
    def _current(self, lease: Lease, now: int) -> Record | None:
        record = self._jobs.get(lease.id)
        return super()._current(replace(lease, queue=record.line.name), now) if record else None


class RankIgnored(MemoryStorage):
    def _add(self, job: NewJob, now: int) -> Enqueued:
        return super()._add(replace(job, rank=0.0), now)


class RetryToTheBack(MemoryStorage):
    def _apply(self, outcome: Outcome, now: int) -> Refused | None:
        record = self._current(outcome.lease, now)
        if record is not None and isinstance(outcome, Retry):
            record.rank += 1
        return super()._apply(outcome, now)


class DelayIgnored(MemoryStorage):
    def _add(self, job: NewJob, now: int) -> Enqueued:
        return super()._add(replace(job, delay=None, start_at=None), now)


class Deaf(MemoryStorage):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._signal = _Deaf()


class _Deaf(Signal):
    def ring(self, queues: object = None) -> None:
        pass


class OwnClock(MemoryStorage):
    def _now(self) -> int:
        super()._now()
        return SystemClock().now()


class HalfABatch(MemoryStorage):
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [answer for job in jobs for answer in await super(HalfABatch, self).enqueue([job])]


class FollowUpsDropped(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([_without(each, then=()) for each in outcomes])


class FollowUpsOfRefused(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        lost = {each.lease for each in refused}
        for outcome in outcomes:
            if outcome.lease in lost and isinstance(outcome, Done):
                await self.enqueue(outcome.then)
        return refused


class FollowUpsFirst(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused: list[Refused] = []
        for outcome in outcomes:
            refused += await super().settle([outcome])
        return refused


class HeadSkipped(MemoryStorage):
    async def take(self, queue: str, count: int, *, max_cost: int | None = None, **options: Any) -> list[Job]:
        jobs = await super().take(queue, count, max_cost=max_cost, **options)
        line = self._lines.get(queue)
        if max_cost is None or line is None or line.paused:
            return jobs
        for record in sorted(line.ready.values(), key=lambda record: (record.rank, record.id)):
            if len(jobs) < count and record.cost + sum(job.cost for job in jobs) <= max_cost:
                del line.ready[record.id]
                jobs += lease_out(line, [record], self._now(), self._now() + 60_000, "")
        return jobs


class WaiterForgotten(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([_without(each, waiters=None) for each in outcomes])


class _Ghosts(MemoryStorage):
    """A key may be held by a record that is gone, with which nothing happens any more."""

    def _bring_up_to_date(self, record: Record, now: int) -> None:
        if record.id in self._jobs:
            super()._bring_up_to_date(record, now)

    def _join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        if held.id not in self._jobs:
            return Enqueued(held.id, "kept", 0)
        return super()._join(held, job, start_time, now)


class KeyLeakedByDone(_Ghosts):
    def _finish(self, record: Record, result: bytes | None, now: int) -> None:
        super()._finish(record, result, now)
        if record.key is not None:
            record.line.keys[record.key] = record


class KeyLeakedByBury(MemoryStorage):
    def _apply(self, outcome: Outcome, now: int) -> Refused | None:
        record = self._current(outcome.lease, now)
        refused = super()._apply(outcome, now)
        if record is not None and record.key is not None and isinstance(outcome, Bury):
            record.line.keys[record.key] = record
        return refused


class RerankUnguarded(MemoryStorage):
    async def rerank(self, ranks: Sequence[Rank]) -> int:
        return await super().rerank([replace(rank, waiters=None) for rank in ranks])


class ReplaceKeepsTheLease(MemoryStorage):
    def _join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        if held.state != "taken" or job.on_duplicate != "replace":
            return super()._join(held, job, start_time, now)
        held.data, held.rank, held.cost, held.keep_for = job.data, float(job.rank), job.cost, job.keep_for
        return Enqueued(held.id, "replaced", len(held.waiters or ()))


class PeekPassesThePause(MemoryStorage):
    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        line = self._lines.get(queue)
        if line is None or not line.paused:
            return await super().peek(queue, key, after=after)
        line.paused = False
        seen = await super().peek(queue, key, after=after)
        line.paused = True
        return seen


class PeekAppliesNothing(MemoryStorage):
    def _look_at(self, queue: str, key: str | None, now: int) -> Record | None:
        return super()._look_at(queue, key, -1)


class PeekAtTheFirstWaiters(MemoryStorage):
    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        seen = await super().peek(queue, key, after=after and 0)
        return replace(seen, waiters=seen.waiters[:after])


class DropUnguarded(MemoryStorage):
    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        return await super().drop(queue, id, 1 << 31)


class DropInTwoSteps(MemoryStorage):
    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        seen = self._jobs.get(id)
        if seen is None or len(seen.waiters or ()) > waiters:
            return False
        await asyncio.sleep(0)
        return await super().drop(queue, id, 1 << 31)


class DropLeaksTheKey(_Ghosts):
    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        record = self._jobs.get(id)
        dropped = await super().drop(queue, id, waiters)
        if dropped and record is not None and record.key is not None:
            record.line.keys[record.key] = record
        return dropped


class DropSparesTheRunning(MemoryStorage):
    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        record = self._jobs.get(id)
        return (record is None or record.state != "taken") and await super().drop(queue, id, waiters)


class DropTakesTheDead(MemoryStorage):
    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        record = self._jobs.get(id)
        if record is not None and record.state == "dead":
            return await self.remove([id]) == 1
        return await super().drop(queue, id, waiters)


class CounterDrift(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        for each in refused:
            if each.lease.queue in self._lines:
                self._lines[each.lease.queue].counts["done"] += 1
        return refused


class StatsScan(MemoryStorage):
    async def stats(self) -> Stats:
        assert all(record.id == id for id, record in self._jobs.items())
        return await super().stats()


class TakeScans(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        line = self._lines.get(queue)
        sorted(line.ready.values(), key=lambda record: record.rank) if line else ()
        return await super().take(queue, count, **options)


class PauseIgnored(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        line = self._lines.get(queue)
        if line is None or not line.paused:
            return await super().take(queue, count, **options)
        line.paused = False
        jobs = await super().take(queue, count, **options)
        line.paused = True
        return jobs


class VersionUnchecked(MemoryStorage):
    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        return await super().write(name, value, ttl=ttl)


class VersionsBeginAgain(MemoryStorage):
    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        if self._documents.read(name, self._now()) is None:
            self._documents.all.pop(name, None)
        return await super().write(name, value, version=version, ttl=ttl)


class CrashesUncounted(MemoryStorage):
    def _move_on(self, record: Record, now: int) -> None:
        crashes = record.crashes
        super()._move_on(record, now)
        record.crashes = crashes


class RetryIsACrash(MemoryStorage):
    def _apply(self, outcome: Outcome, now: int) -> Refused | None:
        refused = super()._apply(outcome, now)
        if refused is None and isinstance(outcome, Retry):
            self._jobs[outcome.lease.id].crashes += 1
        return refused


class ReviveKeepsCrashes(MemoryStorage):
    def _revive(self, id: int, now: int) -> Record | None:
        crashes = self._jobs[id].crashes if id in self._jobs else 0
        record = super()._revive(id, now)
        if record is not None:
            record.crashes = crashes
        return record


class ReviveIsNoStart(MemoryStorage):
    def _revive(self, id: int, now: int) -> Record | None:
        fresh_at = self._jobs[id].fresh_at if id in self._jobs else 0
        record = super()._revive(id, now)
        if record is not None:
            record.fresh_at = fresh_at
        return record


class ReplaceKeepsCrashes(MemoryStorage):
    def _join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        crashes = held.crashes
        answer = super()._join(held, job, start_time, now)
        held.crashes = crashes
        return answer


class ReplaceIsNoStart(MemoryStorage):
    def _join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        fresh_at = held.fresh_at
        answer = super()._join(held, job, start_time, now)
        held.fresh_at = fresh_at
        return answer


class AttachIsAStart(MemoryStorage):
    def _join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
        answer = super()._join(held, job, start_time, now)
        held.fresh_at, held.crashes = held.attempts, 0
        return answer


class TakeTellsNoCrashes(MemoryStorage):
    async def take(self, queue: str, count: int, **options: Any) -> list[Job]:
        return [replace(job, fresh_at=0, crashes=0) for job in await super().take(queue, count, **options)]


class StormForgotten(MemoryStorage):
    def _apply_due(self, line: Line, now: int, most: int = DUE_AT_ONCE) -> int:
        moved = super()._apply_due(line, now, most)
        line.due.apply(now, len(self._jobs), lambda record: setattr(record, "due", now + 10**9))
        return moved


class StormInOneCall(MemoryStorage):
    def _apply_due(self, line: Line, now: int, most: int = DUE_AT_ONCE) -> int:
        return super()._apply_due(line, now, len(self._jobs))


class PendingLeaseAccepted(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        await self.stats()  # applies what is due, as far as one call may
        return await super().settle(outcomes)

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        await self.stats()
        return await super().extend(leases, lease)

    def _current(self, lease: Lease, now: int) -> Record | None:
        return super()._current(lease, -1)


class PurgeIgnoresBefore(MemoryStorage):
    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        return await super().purge(queue, state, limit=limit)


class PurgeIgnoresLimit(MemoryStorage):
    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        return await super().purge(queue, state, before=before)


def _without(outcome: Outcome, **fields: Any) -> Outcome:
    return replace(outcome, **fields) if isinstance(outcome, Done) else outcome
