"""Storages whose burials go wrong: what follows a Bury is lost, or comes too early, or comes though it was refused."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from accoda.model import Bury, Outcome, Refused
from accoda.storage.memory import MemoryStorage
from accoda.testing.mutant import Mutant


class BuryDropsFollowUps(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return await super().settle([_bare(each) for each in outcomes])


class FollowUpsOfARefusedBury(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        refused = await super().settle(outcomes)
        lost = {each.lease for each in refused}
        for outcome in outcomes:
            if outcome.lease in lost and isinstance(outcome, Bury):
                await self.enqueue(outcome.then)
        return refused


class FollowUpsBeforeTheBurial(MemoryStorage):
    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        for outcome in outcomes:
            if isinstance(outcome, Bury) and self._current(outcome.lease, self._now()) is not None:
                await self.enqueue(outcome.then)
        return await super().settle([_bare(each) for each in outcomes])


def _bare(outcome: Outcome) -> Outcome:
    return replace(outcome, then=()) if isinstance(outcome, Bury) else outcome


BURY: dict[str, Mutant] = {
    "bury-drops-follow-ups": Mutant(
        6,
        "Bury forgets what follows",
        "TestBury::test_enqueues_what_follows",
        BuryDropsFollowUps,
    ),
    "follow-ups-of-a-refused-bury": Mutant(
        6,
        "a refused Bury enqueues what follows all the same",
        "TestBury::test_that_is_refused_enqueues_nothing",
        FollowUpsOfARefusedBury,
    ),
    "follow-ups-before-the-burial": Mutant(
        6,
        "what follows is enqueued while the job that is buried still holds its key",
        "TestBury::test_lets_a_job_follow_itself_under_its_own_key",
        FollowUpsBeforeTheBurial,
    ),
}
