"""How a queue is, in a word and a reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from accoda.admin.views import QueueView
from accoda.dashboard.words import count, duration, share

FAILING = 0.5
"""The part of runs that failed lately from which on a queue is called failing."""
FEW = 5
"""Failures of which no judgement is made."""
BEHIND = 300.0
"""Seconds of work that wait, from which on a queue is called behind."""
TROUBLED = frozenset({"stuck", "failing", "behind"})


class Pace(Struct, frozen=True, kw_only=True):
    """What a queue did lately: jobs done and failed, over so many seconds, of which it was at it for `busy`; and the
    workers that serve it."""

    done: float = 0.0
    failed: float = 0.0
    over: float = 0.0
    busy: float = 0.0
    workers: int = 0

    @classmethod
    def of(cls, done: Sequence[float], failed: Sequence[float], step: float, workers: int) -> Pace:
        """From rates in slots of `step` seconds. A queue is at it from the first slot in which something ran."""
        first = next((place for place, runs in enumerate(zip(done, failed, strict=True)) if any(runs)), len(done))
        return cls(
            done=sum(done) * step,
            failed=sum(failed) * step,
            over=len(done) * step,
            busy=(len(done) - first) * step,
            workers=workers,
        )


class Health(Struct, frozen=True):
    """A word for all to see, and why."""

    word: str
    reason: str = ""

    @property
    def is_trouble(self) -> bool:
        return self.word in TROUBLED


def judge(queue: QueueView, pace: Pace) -> Health:
    """The worst that is known of a queue.

    >>> judge(QueueView(name="emails", ready=3), Pace())
    Health(word='stuck', reason='no worker serves it')
    """
    if queue.paused:
        return Health("paused", "until somebody resumes it" if queue.paused_until is None else "for a while")
    if queue.ready and not pace.workers:
        return Health("stuck", "no worker serves it")
    runs = pace.done + pace.failed
    if pace.failed >= FEW and pace.failed / runs >= FAILING:
        return Health("failing", f"{share(pace.failed / runs)} of runs failed in {duration(pace.over)}")
    if queue.ready and pace.over:
        if not runs and not queue.taken and queue.oldest_age >= BEHIND:
            return Health("stuck", f"{count(queue.ready)} wait, and nothing ran for {duration(pace.over)}")
        if pace.done and (left := queue.ready * pace.busy / pace.done) >= BEHIND:
            return Health("behind", f"{duration(left)} of work at this pace")
    if not queue.ready and not queue.taken and not runs:
        return Health("idle", f"{count(queue.dead)} dead letters" if queue.dead else "")
    return Health("healthy", f"{count(pace.failed)} failed in {duration(pace.over)}" if pace.failed >= 1 else "")
