"""Outcomes that handlers gave their jobs themselves, through `app.storage.settle`.

The worker's own outcome of such a job is refused, since the lease has ended. It is then counted as what the handler
said, and not as a lost lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accoda.model import Job, Lease, Outcome, Refused

MOST = 10_000
"""Outcomes that are remembered; those of leases that were not this worker's are never asked for."""


class SettledByHandlers:
    """Those of one worker. `note` is for any thread: to set and to remove an entry of a dict are atomic steps."""

    def __init__(self) -> None:
        self._outcomes: dict[Lease, Outcome] = {}

    def note(self, outcomes: Sequence[Outcome], refused: Sequence[Refused]) -> None:
        """A handler settled these, but for those that were refused."""
        gone = {refusal.lease for refusal in refused}
        for outcome in outcomes:
            if outcome.lease not in gone:
                self._outcomes[outcome.lease] = outcome
        while len(self._outcomes) > MOST:
            self._outcomes.pop(next(iter(self._outcomes)), None)

    def said_of(self, jobs: Iterable[Job]) -> list[Outcome]:
        """The outcomes that handlers gave to those of the jobs of which the worker itself has none."""
        found = (self._outcomes.pop(job.lease, None) for job in jobs)
        return [outcome for outcome in found if outcome is not None]

    def kept(self, outcomes: Sequence[Outcome], refused: Sequence[Refused]) -> list[Outcome]:
        """The outcomes that count: the worker's own, and in place of those that were refused the handler's."""
        gone = {refusal.lease for refusal in refused}
        found = (self._outcomes.pop(one.lease, None) if one.lease in gone else one for one in outcomes)
        return [outcome for outcome in found if outcome is not None]
