"""Storages whose `look` goes wrong."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from accoda.model import AHEAD_AT_MOST, ById, Head, Look, Target
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import MemoryQueue, Record
from proof.mutants.mutant import BrokenQueue, mutant

_ORDER = "TestAhead::test_goes_by_rank_then_id_as_take_does"
_LONG = "TestAheadInALongLine::test_is_exact_up_to_ten_thousand_and_more_beyond"


@mutant("a paused queue shows a head", "TestLookAtTheHead::test_a_paused_queue_has_no_head_but_its_keys_are_held")
class HeadOfAPausedQueue(MemoryStorage):
    def _find(self, target: Target, now: int) -> Record | None:
        found = self._queues.get(target.queue) if isinstance(target, Head) else None
        return found.head() if found is not None else super()._find(target, now)


@mutant(
    "a look overlooks what is due",
    "TestLookAtTheHead::test_a_delayed_job_is_the_head_once_its_time_has_come",
    by_machine=False,  # it looks after every command
)
class LookAppliesNothing(MemoryStorage):
    def _find(self, target: Target, now: int) -> Record | None:
        return super()._find(target, -1)


@mutant(
    "where much is due, a job whose time has come still waits for it",
    "TestLook::test_is_up_to_date_however_much_else_is_due",
    by_machine=False,  # there is never so much
)
class LookForgetsItsOwnMoment(MemoryStorage):
    def _find(self, target: Target, now: int) -> Record | None:
        if not isinstance(target, ById) or (record := self._jobs.get(target.id)) is None:
            return super()._find(target, now)
        self._apply_due(record.queue, now)
        return self._jobs.get(target.id)


@mutant(
    "the first waiters are shown instead of the rest",
    "TestLookAtWaiters::test_gives_the_rest_in_the_order_in_which_they_joined",
)
class LookAtTheFirstWaiters(MemoryStorage):
    async def look(self, target: Target, *, waiters_after: int | None = None, **options: Any) -> Look:
        seen = await super().look(target, waiters_after=waiters_after and 0, **options)
        return replace(seen, waiters=seen.waiters[:waiters_after])


@mutant("waiters are shown unasked", "TestLookAtWaiters::test_gives_none_unless_asked")
class LookAlwaysShowsWaiters(MemoryStorage):
    async def look(self, target: Target, *, waiters_after: int | None = None, **options: Any) -> Look:
        return await super().look(target, waiters_after=waiters_after or 0, **options)


@mutant("the jobs ahead are counted by id alone", _ORDER)
class AheadByIdOnly(BrokenQueue):
    class Queue(MemoryQueue):
        def ahead_of(self, record: Record) -> tuple[int, int]:
            return sum(id < record.id for id in self.ready), 0


@mutant("a job is ahead of itself", _ORDER)
class AheadCountsItself(BrokenQueue):
    class Queue(MemoryQueue):
        def ahead_of(self, record: Record) -> tuple[int, int]:
            ahead, newer = super().ahead_of(record)
            return ahead + (record.state == "ready"), newer


@mutant("`newer` counts all jobs ahead", _ORDER)
class NewerAreAllAhead(BrokenQueue):
    class Queue(MemoryQueue):
        def ahead_of(self, record: Record) -> tuple[int, int]:
            ahead, _ = super().ahead_of(record)
            return ahead, ahead


@mutant("a delayed job has none ahead", "TestAhead::test_of_a_delayed_job_is_as_if_it_were_ready_now")
class AheadOfADelayedJobIsNone(BrokenQueue):
    class Queue(MemoryQueue):
        def ahead_of(self, record: Record) -> tuple[int, int]:
            return (0, 0) if record.state == "delayed" else super().ahead_of(record)


@mutant("the limit of the count is one too low", _LONG, by_machine=False)  # its lines are short
class AheadStopsEarly(BrokenQueue):
    class Queue(MemoryQueue):
        def ahead_of(self, record: Record) -> tuple[int, int]:
            ahead, newer = super().ahead_of(record)
            return (AHEAD_AT_MOST + 1 if ahead == AHEAD_AT_MOST else ahead), newer


@mutant("the count has no limit", _LONG, by_machine=False)  # its lines are short
class AheadIsEndless(BrokenQueue):
    class Queue(MemoryQueue):
        def ahead_of(self, record: Record) -> tuple[int, int]:
            own = (record.rank, record.id)
            ids = [id for id, each in self.ready.items() if (each.rank, id) < own]
            return len(ids), sum(id > record.id for id in ids)
