"""Storages whose outcomes go wrong: retries, follow-ups, waiters, counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from accoda.model import Bury, Done, Outcome, Refused, Retry
from accoda.storage.memory import MemoryStorage
from proof.mutants.mutant import mutant


def without(outcome: Outcome, kind: type[Done | Retry | Bury], **fields: Any) -> Outcome:
    return replace(outcome, **fields) if isinstance(outcome, kind) else outcome


async def enqueue_refused(
    store: MemoryStorage, outcomes: Sequence[Outcome], refused: list[Refused], kind: type[Done | Retry | Bury]
) -> None:
    leases = {each.lease for each in refused}
    for outcome in outcomes:
        if outcome.lease in leases and isinstance(outcome, kind):
            await store.enqueue(outcome.then)


@mutant("a retried job loses its rank", "TestRetry::test_without_a_delay_is_ready_again_at_once")
class RetryToTheBack(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        record = self._leased(outcome.lease, now)
        if record is not None and isinstance(outcome, Retry):
            record.rank += 1
        return super()._settle(outcome, now)


@mutant("the rank of a retry is ignored", "TestRetry::test_with_a_rank_goes_to_its_new_place")
class RetryIgnoresItsRank(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        return super()._settle(without(outcome, Retry, rank=None), now)


@mutant("a retry counts though it says that it does not", "TestTries::test_a_retry_that_does_not_count_is_none")
class RetryAlwaysCounts(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        return super()._settle(without(outcome, Retry, counts=True), now)


@mutant("a retry is a crash", "TestCrashes::test_a_retry_is_none")
class RetryIsACrash(MemoryStorage):
    def _settle(self, outcome: Outcome, now: int) -> Refused | None:
        refused = super()._settle(outcome, now)
        if refused is None and isinstance(outcome, Retry):
            self._jobs[outcome.lease.id].crashes += 1
        return refused


@mutant("Done forgets its follow-ups", "TestDone::test_enqueues_what_follows")
class DoneDropsFollowUps(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([without(each, Done, then=()) for each in outcomes])


@mutant("Bury forgets its follow-ups", "TestBury::test_enqueues_what_follows")
class BuryDropsFollowUps(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([without(each, Bury, then=()) for each in outcomes])


@mutant("Retry forgets its follow-ups", "TestRetryWithFollowUps::test_enqueues_what_follows_and_comes_back")
class RetryDropsFollowUps(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([without(each, Retry, then=()) for each in outcomes])


@mutant("a refused Done enqueues its follow-ups", "TestDone::test_that_is_refused_enqueues_nothing")
class FollowUpsOfARefusedDone(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        await enqueue_refused(self, outcomes, refused, Done)
        return refused


@mutant("a refused Bury enqueues its follow-ups", "TestBury::test_that_is_refused_enqueues_nothing")
class FollowUpsOfARefusedBury(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        await enqueue_refused(self, outcomes, refused, Bury)
        return refused


@mutant("a refused Retry enqueues its follow-ups", "TestRetryWithFollowUps::test_a_refused_one_enqueues_nothing")
class FollowUpsOfARefusedRetry(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        await enqueue_refused(self, outcomes, refused, Retry)
        return refused


@mutant(
    "follow-ups are enqueued before all outcomes are applied",
    "TestDone::test_applies_all_outcomes_before_any_follow_up",
)
class FollowUpsFirst(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return [refused for outcome in outcomes for refused in await super(FollowUpsFirst, self).settle([outcome])]


@mutant(
    "follow-ups are enqueued while the buried job still holds its key",
    "TestBury::test_lets_a_job_follow_itself_under_its_own_key",
)
class FollowUpsBeforeTheBurial(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        for outcome in outcomes:
            if isinstance(outcome, Bury) and self._leased(outcome.lease, self._now()) is not None:
                await self.enqueue(outcome.then)
        return await super().settle([without(each, Bury, then=()) for each in outcomes])


@mutant("Done is accepted though waiters joined", "TestGrown::test_done_is_refused_when_more_wait_than_were_seen")
class WaiterForgotten(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([without(each, Done, waiters=None) for each in outcomes])


@mutant("a refused outcome is counted as done", "TestSettle::test_refuses_leases_that_are_not_current")
class CounterDrift(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        for each in refused:
            if each.lease.queue in self._queues:
                self._queues[each.lease.queue].counts["done"] += 1
        return refused
