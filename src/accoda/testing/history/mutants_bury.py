"""Toy queues that are wrong about what follows a burial."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from accoda.model import Bury, Outcome, Refused
from accoda.testing.reference import Reference


class LosesFollowUpsOfTheDead(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        return super().settle([replace(each, then=()) if isinstance(each, Bury) else each for each in outcomes])


class EnqueuesThoughRefused(Reference):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        """A Bury whose lease is lost leaves its job alone, but what follows is enqueued."""
        refused = super().settle(outcomes)
        lost = {each.lease for each in refused}
        self.enqueue([job for each in outcomes if isinstance(each, Bury) and each.lease in lost for job in each.then])
        return refused
