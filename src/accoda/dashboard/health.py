"""The health of a queue: a word and a reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from accoda.dashboard.words import count, duration, share
from accoda.operations.views import QueueView

FAILING = 0.5
"""The share of failed runs from which on a queue is failing."""
FEW = 5
"""Fewer failures than these are ignored."""
BEHIND = 300.0
"""Seconds of waiting work from which on a queue is behind."""
TROUBLED = frozenset({"stuck", "failing", "behind"})


class RecentRuns(Struct, frozen=True, kw_only=True):
    """What a queue did lately: jobs done and failed, over so many seconds, of which it was `busy` for some; and the
    number of workers that serve it."""

    done: float = 0.0
    failed: float = 0.0
    over: float = 0.0
    busy: float = 0.0
    workers: int = 0

    @classmethod
    def of(cls, done: Sequence[float], failed: Sequence[float], step: float, workers: int) -> RecentRuns:
        """From rates in slots of `step` seconds. A queue is busy from the first slot in which something ran."""
        first = next((place for place, runs in enumerate(zip(done, failed, strict=True)) if any(runs)), len(done))
        return cls(
            done=sum(done) * step,
            failed=sum(failed) * step,
            over=len(done) * step,
            busy=(len(done) - first) * step,
            workers=workers,
        )


class Health(Struct, frozen=True):
    """A word, and why."""

    word: str
    reason: str = ""

    @property
    def is_trouble(self) -> bool:
        return self.word in TROUBLED


def judge(queue: QueueView, recent: RecentRuns) -> Health:
    """The worst that is known of a queue.

    >>> judge(QueueView(name="emails", ready=3), RecentRuns())
    Health(word='stuck', reason='no worker serves it')
    """
    if queue.paused:
        return Health("paused", "until it is resumed" if queue.paused_until is None else "for a while")
    if queue.ready and not recent.workers:
        return Health("stuck", "no worker serves it")
    runs = recent.done + recent.failed
    if recent.failed >= FEW and recent.failed / runs >= FAILING:
        return Health("failing", f"{share(recent.failed / runs)} of runs failed in {duration(recent.over)}")
    if queue.ready and recent.over:
        if not runs and not queue.taken and queue.oldest_age >= BEHIND:
            return Health("stuck", f"{count(queue.ready)} wait, and nothing ran for {duration(recent.over)}")
        if recent.done and (left := queue.ready * recent.busy / recent.done) >= BEHIND:
            return Health("behind", f"{duration(left)} of work at this pace")
    if not queue.ready and not queue.taken and not runs:
        return Health("idle", f"{count(queue.dead)} dead letters" if queue.dead else "")
    return Health("healthy", f"{count(recent.failed)} failed in {duration(recent.over)}" if recent.failed >= 1 else "")
