"""Storages that keep a lease too long, end it wrongly, or mistake another for it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from accoda.model import Change, Lease, NotCrashed, Outcome, Refused
from accoda.storage.memory import MemoryStorage
from accoda.storage.memory.queue import MemoryQueue, Record
from accoda.storage.protocol import DUE_AT_ONCE
from proof.mutants.mutant import mutant


@mutant("a job whose lease ended comes back with the same attempts", "TestLeaseEnd::test_brings_the_job_back")
class AttemptsStay(MemoryStorage):
    def _move_on(self, record: Record, now: int) -> None:
        attempts = record.attempts
        super()._move_on(record, now)
        record.attempts = attempts


@mutant(
    "an old lease may settle the job that another holds now",
    "TestSettle::test_refuses_an_old_lease_while_a_new_one_runs",
)
class LateDone(MemoryStorage):
    def _leased(self, lease: Lease, now: int) -> Record | None:
        record = self._jobs.get(lease.id)
        return record if record is not None and record.state == "taken" and record.due > now else None


@mutant(
    "a lease is good until its end is applied",
    "TestLeaseEnd::test_is_too_late_for_the_holder_even_before_anyone_looks",
    by_machine=False,  # it looks after every command
)
class LeaseLastsTooLong(MemoryStorage):
    def _leased(self, lease: Lease, now: int) -> Record | None:
        return super()._leased(lease, -1)


@mutant(
    "a lease of another moment is accepted",
    "TestPromise03ALateHolderChangesNothing::test_a_lease_of_another_moment_is_lost_though_id_and_attempts_are_right",
)
class MomentUnchecked(MemoryStorage):
    def _leased(self, lease: Lease, now: int) -> Record | None:
        record = self._jobs.get(lease.id)
        return super()._leased(replace(lease, taken_at=record.taken_at or 0), now) if record else None


@mutant("a lease that names another queue is accepted", "TestSettle::test_refuses_leases_that_are_not_current")
class QueueUnchecked(MemoryStorage):
    def _leased(self, lease: Lease, now: int) -> Record | None:
        record = self._jobs.get(lease.id)
        return super()._leased(replace(lease, queue=record.queue.name), now) if record else None


@mutant(
    "a lease that ended is good as long as its return is not applied",
    "TestStorm::test_no_ended_lease_is_good_though_its_return_is_not_applied",
    by_machine=False,  # it has so few jobs that no bound is reached
)
class PendingLeaseAccepted(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        await self.stats()  # applies what is due, as far as one call may
        return await super().settle(outcomes)

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        await self.stats()
        return await super().extend(leases, lease)

    def _leased(self, lease: Lease, now: int) -> Record | None:
        return super()._leased(lease, -1)


@mutant("a lease that ends is not a crash", "TestCrashes::test_each_lease_that_ends_is_one")
class CrashesUncounted(MemoryStorage):
    def _move_on(self, record: Record, now: int) -> None:
        crashes = record.crashes
        super()._move_on(record, now)
        record.crashes = crashes


@mutant("crashes that are taken back go below zero", "TestCrashes::test_is_taken_back_by_a_worker_that_lives")
class CrashesBelowZero(MemoryStorage):
    def _change(self, change: Change, now: int) -> str | None:
        changed = super()._change(change, now)
        record = self._jobs.get(change.id)
        if isinstance(change, NotCrashed) and changed is None and record is not None and record.state == "ready":
            record.crashes -= 1
        return changed


@mutant("a lease that ends is a try", "TestCrashes::test_each_lease_that_ends_is_one")
class CrashIsATry(MemoryStorage):
    def _move_on(self, record: Record, now: int) -> None:
        record.tries += record.state == "taken"
        super()._move_on(record, now)


@mutant(
    "what is due beyond the bound of a call is forgotten",
    "TestStorm::test_of_leases_gives_every_job_back_once",
    by_machine=False,  # it has so few jobs that no bound is reached
)
class StormForgotten(MemoryStorage):
    def _apply_due(self, queue: MemoryQueue, now: int, most: int = DUE_AT_ONCE) -> int:
        moved = super()._apply_due(queue, now, most)
        queue.due.apply(now, len(self._jobs), lambda record: setattr(record, "due", now + 10**9))
        return moved


@mutant(
    "one call applies all that is due",
    "TestStorm::test_one_call_applies_a_bounded_part_over_all_its_queues",
    by_machine=False,
)
class StormInOneCall(MemoryStorage):
    def _apply_due(self, queue: MemoryQueue, now: int, most: int = DUE_AT_ONCE) -> int:
        return super()._apply_due(queue, now, len(self._jobs))
