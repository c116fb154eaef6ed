"""Storages that enqueue wrongly, or mistake which job holds a key and what a duplicate does to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from accoda.model import Bury, Enqueued, NewJob, Outcome, Refused
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import MemoryQueue, Record
from proof.mutants.mutant import BrokenQueue, mutant


@mutant("first in, first out, whatever the rank", "TestOrder::test_the_lowest_rank_goes_first_and_equal_ranks_by_id")
class RankIgnored(MemoryStorage):
    def _add(self, job: NewJob, now: int) -> Enqueued:
        return super()._add(replace(job, rank=0.0), now)


@mutant("every job is ready at once", "TestStartTime::test_a_delayed_job_is_not_handed_out_before_its_time")
class DelayIgnored(MemoryStorage):
    def _add(self, job: NewJob, now: int) -> Enqueued:
        return super()._add(replace(job, delay=None, start_at=None), now)


@mutant(
    "enqueue stores the jobs before the one that is wrong",
    "TestEnqueue::test_stores_none_of_the_jobs_if_one_is_no_job",
    by_machine=False,
)
class HalfABatch(MemoryStorage):
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [answer for job in jobs for answer in await super(HalfABatch, self).enqueue([job])]


class Ghosts(BrokenQueue):
    """A key may be held by a record that is gone; nothing happens to that any more."""

    class Queue(MemoryQueue):
        def join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
            if held.id not in self.states[held.state]:
                return Enqueued(held.id, "kept", 0)
            return super().join(held, job, start_time, now)

    def _current(self, record: Record | None, now: int) -> Record | None:
        gone = record is not None and record.id not in self._jobs
        return record if gone else super()._current(record, now)


@mutant("a finished job holds its key for ever", "TestKeys::test_a_job_that_ended_holds_its_key_no_longer")
class KeyLeakedByDone(Ghosts):
    def _finish(self, record: Record, state: Literal["done", "cancelled"], now: int) -> None:
        super()._finish(record, state, now)
        if record.key is not None:
            record.queue.keys[record.key] = record


@mutant("a dead job holds its key", "TestKeys::test_a_job_that_ended_holds_its_key_no_longer")
class KeyLeakedByBury(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        record = self._leased(outcome.lease, now)
        refused = super()._settle(outcome, now)
        if record is not None and record.key is not None and isinstance(outcome, Bury):
            record.queue.keys[record.key] = record
        return refused


@mutant("the run of the old data may settle the new data", "TestKeys::test_replace_ends_the_lease_of_a_running_job")
class ReplaceKeepsTheLease(BrokenQueue):
    class Queue(MemoryQueue):
        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            if record.state != "taken":
                super().replace(record, job, start_time, now)
            else:
                record.data, record.rank, record.cost, record.keep_for = job.data, job.rank, job.cost, job.keep_for


@mutant("a replaced job has its old crashes", "TestBeginningAgain::test_replace_sets_both_to_zero")
class ReplaceKeepsCrashes(BrokenQueue):
    class Queue(MemoryQueue):
        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            crashes = record.crashes
            super().replace(record, job, start_time, now)
            record.crashes = crashes


@mutant("a replaced job has its old tries", "TestBeginningAgain::test_replace_sets_both_to_zero")
class ReplaceKeepsTries(BrokenQueue):
    class Queue(MemoryQueue):
        def replace(self, record: Record, job: NewJob, start_time: int, now: int) -> None:
            tries = record.tries
            super().replace(record, job, start_time, now)
            record.tries = tries


@mutant(
    "a waiter that joins makes the job begin again",
    "TestCrashes::test_an_attached_waiter_or_a_new_rank_changes_neither",
)
class AttachBeginsAgain(BrokenQueue):
    class Queue(MemoryQueue):
        def join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
            held.begin_again()
            return super().join(held, job, start_time, now)


@mutant(
    "a duplicate that reranks leaves the job where it is",
    "TestKeys::test_rerank_moves_a_job_in_the_line_and_changes_nothing_else",
)
class RerankIgnored(BrokenQueue):
    class Queue(MemoryQueue):
        def join(self, held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
            return super().join(
                held, replace(job, on_duplicate="keep") if job.on_duplicate == "rerank" else job, start_time, now
            )


@mutant(
    "a duplicate that reranks does not reach a job that runs",
    "TestKeys::test_rerank_holds_when_a_running_job_comes_back",
)
class RerankMissesARun(BrokenQueue):
    class Queue(MemoryQueue):
        def rerank(self, record: Record, rank: float) -> None:
            if record.state != "taken":
                super().rerank(record, rank)
