"""Storages whose `change` goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from accoda.model import Change, Lease, Remove, Rerank, StartNow, Why
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import MemoryQueue, Record
from proof.mutants.enqueue import Ghosts
from proof.mutants.mutant import BrokenQueue, mutant

_TOLD = "TestLateHolderOfACancelledJob::test_is_told_and_changes_nothing"
_FENCE = "TestChange::test_is_applied_only_if_no_more_wait_than_were_seen"


@mutant("a change overlooks waiters that joined", _FENCE)
class FenceIgnored(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        return super()._change(change if change.waiters is None else replace(change, waiters=1 << 31), now)


@mutant("rerank overlooks waiters that joined", _FENCE)
class FenceOfRerankIgnored(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        return super()._change(replace(change, waiters=None) if isinstance(change, Rerank) else change, now)


@mutant("the fence allows one waiter more", _FENCE)
class FenceOffByOne(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        return super()._change(change if change.waiters is None else replace(change, waiters=change.waiters + 1), now)


@mutant("a change is applied to a job of another queue", "TestChange::test_is_applied_only_in_the_queue_that_it_names")
class ChangeInAnotherQueue(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        return super()._change(replace(change, queue=None), now)


@mutant(
    "remove counts the waiters, lets others join, then removes",
    "TestRemoveRaces::test_an_attach_at_the_same_moment_is_never_lost",
    by_machine=False,  # one call at a time
)
class RemoveInTwoSteps(MemoryStorage):
    async def change(self, changes: Sequence[Change]) -> int:
        for each in changes:
            record = self._jobs.get(each.id)
            if record is None or (each.waiters is not None and record.waiting > each.waiters):
                return 0
        await asyncio.sleep(0)
        return await super().change([replace(each, waiters=1 << 31) for each in changes])


@mutant("a removed job still holds its key", "TestRemove::test_frees_the_key_and_leaves_no_waiter")
class RemoveLeaksTheKey(Ghosts):
    def _remove(self, record: Record, now: int) -> None:
        super()._remove(record, now)
        if record.key is not None:
            record.queue.keys[record.key] = record


@mutant("a running job cannot be removed", "TestRemove::test_takes_the_lease_of_a_running_job")
class RemoveSparesTheRunning(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        record = self._current(self._jobs.get(change.id), now)
        running = record is not None and record.state == "taken"
        return None if running and isinstance(change, Remove) else super()._change(change, now)


@mutant("a late Done of a cancelled job is accepted", _TOLD)
class CancelledJobIsDone(MemoryStorage):
    def _leased(self, lease: Lease, now: int) -> Record | None:
        return super()._leased(lease, now) or self._leased_in("cancelled", lease, now)


@mutant("the late holder of a cancelled job is not told", _TOLD)
class CancelledIsLost(MemoryStorage):
    def _why_lost(self, lease: Lease, now: int) -> Why:
        return "lost"


@mutant(
    "remove with a fence takes a dead job",
    "TestRemove::test_with_a_fence_leaves_jobs_alone_that_have_ended",
)
class FencedRemoveTakesTheDead(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        record = self._jobs.get(change.id)
        dead = record is not None and record.state == "dead"
        return super()._change(replace(change, waiters=None) if dead and isinstance(change, Remove) else change, now)


@mutant("a revived job has its old crashes", "TestBeginningAgain::test_revive_sets_both_to_zero")
class ReviveKeepsCrashes(BrokenQueue):
    class Queue(MemoryQueue):
        def revive(self, record: Record, now: int) -> bool:
            crashes = record.crashes
            revived = super().revive(record, now)
            record.crashes = crashes
            return revived


@mutant("a revived job has its old tries", "TestBeginningAgain::test_revive_sets_both_to_zero")
class ReviveKeepsTries(BrokenQueue):
    class Queue(MemoryQueue):
        def revive(self, record: Record, now: int) -> bool:
            tries = record.tries
            revived = super().revive(record, now)
            record.tries = tries
            return revived


@mutant(
    "a job that is started early has another token",
    "TestStartNow::test_ends_the_pause_of_a_retry_and_is_no_return",
)
class StartNowIsAReturn(BrokenQueue):
    class Queue(MemoryQueue):
        def start_now(self, record: Record, now: int) -> None:
            super().start_now(record, now)
            record.attempts += 1


@mutant(
    "a job that is started early counts as promoted by its time",
    "TestPromoted::test_does_not_count_what_was_started_or_ended_before_its_time",
)
class StartNowPromotes(BrokenQueue):
    class Queue(MemoryQueue):
        def start_now(self, record: Record, now: int) -> None:
            record.start_time = now
            self.promote(record)


@mutant(
    "a job that is started early says that it starts later",
    "TestStartNow::test_makes_a_delayed_job_ready_from_now_on",
)
class StartNowKeepsTheStartTime(BrokenQueue):
    class Queue(MemoryQueue):
        def start_now(self, record: Record, now: int) -> None:
            self.start(record)


@mutant("StartNow makes dead jobs ready too", "TestStartNow::test_leaves_a_job_in_any_other_state_alone")
class StartNowRaisesTheDead(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        record = self._jobs.get(change.id)
        if isinstance(change, StartNow) and record is not None and record.state == "dead":
            record.queue.start_now(record, now)
            return record.queue.name
        return super()._change(change, now)


@mutant(
    "a job whose time has come by itself is counted",
    "TestStartNow::test_a_job_whose_time_has_come_is_ready_by_itself",
    by_machine=False,  # it looks after every command
)
class ChangeAppliesNothing(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        record = self._jobs.get(change.id)
        if isinstance(change, StartNow) and record is not None and record.state == "delayed":
            record.queue.start_now(record, now)
            return record.queue.name
        return super()._change(change, now)


@mutant(
    "a wait sleeps on beside a job that was started early",
    "TestStartNow::test_wakes_a_wait",
    by_machine=False,  # nothing sleeps there
)
class ChangeWakesNothing(MemoryStorage):
    async def change(self, changes: Sequence[Change]) -> int:
        with self._lock:
            now = self._now()
            return sum(self._change(change, now) is not None for change in changes)


@mutant("a job that is started early no longer holds its key", "TestStartNow::test_keeps_the_key_and_the_waiters")
class StartNowForgetsTheKey(BrokenQueue):
    class Queue(MemoryQueue):
        def start_now(self, record: Record, now: int) -> None:
            super().start_now(record, now)
            self.release_key(record)
