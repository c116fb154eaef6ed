"""From what a storage saw of a line to the place that it tells: counted, or estimated from the density of the line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from accoda.model import JobInfo, Place
from accoda.storage import density
from accoda.storage.density import Look, Stretch, Weights


class Survey(NamedTuple):
    """One look at a job and its line.

    `ahead` and `newer` are counts, up to `most` and one more; the rest is told only where there are more than `most`:
    `behind`, counted as far; how many are `ready`; and what `density.Line` needs.
    """

    at: int
    job: JobInfo
    ahead: int = 0
    newer: int = 0
    behind: int = 0
    ready: int = 0
    ranks: Sequence[float] = ()
    last_rank: float = 0.0

    def line(self) -> density.Line:
        return density.Line((self.job.rank, self.job.id), self.ranks, self.last_rank)


def counted(survey: Survey) -> Place:
    return Place(survey.at, survey.job, survey.ahead, survey.newer)


def estimated(survey: Survey, weights: Weights, most: int) -> Place:
    """Where more are ahead than were counted: from what is behind, if that was counted, else from the weights.

    Of a damaged store the number of ready jobs may be anything; what was seen is there all the same.
    """
    others = survey.ready - (survey.job.state == "ready")
    exact = survey.behind <= most
    if exact:
        ahead = max(survey.ahead, others - survey.behind)
    else:
        ahead = density.place_of(weights, others, survey.ahead, survey.behind)
    return Place(survey.at, survey.job, ahead, density.newer_of(weights, ahead), exact)


async def stand(survey: Survey, most: int, look: Callable[[list[Look]], Awaitable[list[Stretch]]]) -> Place:
    """The place, with as many rounds of looks as it takes.

    What is exact comes from the survey, which is one look. The rounds of an estimate follow it within milliseconds:
    what is taken and enqueued meanwhile is far less than an estimate may be off.
    """
    if survey.ahead <= most:
        return counted(survey)
    rounds = density.weigh(survey.line())
    wanted = next(rounds)
    while True:
        found = await look(wanted)
        try:
            wanted = rounds.send(found)
        except StopIteration as end:
            return estimated(survey, end.value, most)
