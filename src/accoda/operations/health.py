"""The health of a queue, in a word with a reason: the same in the dashboard, `accoda top`, `accoda queues`, HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from accoda.model import QueueStats
from accoda.names import is_system
from accoda.operations.history.reading import read_sparks
from accoda.operations.history.ring import STEP
from accoda.operations.history.sparks import LENGTH, Spark
from accoda.operations.host import Host
from accoda.operations.words import length, many
from accoda.runtime.heartbeat import Heartbeat, read_heartbeats

FAILING = 0.05
"""The share of failed runs from which on a queue is failing."""
FEW = 5
"""Fewer failures than these are ignored."""
BEHIND = 300.0
"""Seconds of waiting work from which on a queue is behind."""
TROUBLED = frozenset({"stuck", "failing", "behind"})
FLAT = Spark([0.0] * LENGTH, [0.0] * LENGTH)


class RecentRuns(Struct, frozen=True, kw_only=True):
    """What a queue did lately: jobs done and failed, over so many seconds, of which it was `busy` for some; the number
    of workers that serve it; and the `budget` whose tokens it waits for."""

    done: float = 0.0
    failed: float = 0.0
    over: float = 0.0
    busy: float = 0.0
    workers: int = 0
    budget: str | None = None

    @classmethod
    def of(cls, spark: Spark | None, workers: int, budget: str | None = None) -> RecentRuns:
        """From the last quarter of an hour. A queue is busy from the first slot in which something ran."""
        done, failed = ([], []) if spark is None else (spark.done, spark.failed)
        step = STEP / 1000
        first = next((place for place, runs in enumerate(zip(done, failed, strict=True)) if any(runs)), len(done))
        return cls(
            done=sum(done) * step,
            failed=sum(failed) * step,
            over=len(done) * step,
            busy=(len(done) - first) * step,
            workers=workers,
            budget=budget,
        )


class Health(Struct, frozen=True):
    """A word (healthy, idle, paused, waiting for budget, behind, failing, stuck), and why."""

    word: str
    reason: str = ""

    @property
    def is_trouble(self) -> bool:
        return self.word in TROUBLED


class Activity(Struct, frozen=True):
    """What the health of every queue follows from, beside its counters: the workers that are alive, how many of them
    serve each queue, the budget that it waits for. `sparks` is empty if nothing is recorded."""

    workers: Sequence[Heartbeat] = ()
    sparks: Mapping[str, Spark] = {}
    serving: Mapping[str, int] = {}
    budgets: Mapping[str, str] = {}

    def health(self, queue: str, stats: QueueStats) -> Health:
        if is_system(queue):
            # Every worker runs these and so does every service, which has no heartbeat; and a flow's record or inbox is
            # older than its wait. Whether they are left alone, the doctor finds out.
            return judge(stats, RecentRuns(workers=1))
        # A queue that did nothing lately has no line, if there are any: it is flat.
        spark = self.sparks.get(queue, FLAT if self.sparks else None)
        return judge(stats, RecentRuns.of(spark, self.serving.get(queue, 0), self.budgets.get(queue)))

    def number(self, queue: str) -> int | None:
        """The queue's number, as the code of a worker that is alive has it."""
        return next((beat.numbers[queue] for beat in self.workers if queue in beat.numbers), None)


async def read_activity(host: Host) -> Activity:
    """What queues did in the last quarter of an hour, the workers that serve them, and the budgets they wait for."""
    store = await host.connections.get()
    beats = await read_heartbeats(store)
    accounts = await host.books.views()
    return Activity(
        beats,
        await read_sparks(store),
        Counter(queue for beat in beats for queue in beat.queues),
        {queue: name for name in sorted(accounts, reverse=True) for queue in accounts[name].claims},
    )


def judge(queue: QueueStats, recent: RecentRuns) -> Health:
    """The worst that is known of a queue. Dead letters alone do not make it unhealthy: they may be old.

    >>> judge(QueueStats(ready=3), RecentRuns())
    Health(word='stuck', reason='no worker serves it')
    """
    if queue.paused:
        return Health("paused", "until it is resumed" if queue.paused_until is None else "for a while")
    if queue.ready and not recent.workers and not queue.taken:
        return Health("stuck", "no worker serves it")
    runs = recent.done + recent.failed
    if recent.failed >= FEW and recent.failed / runs >= FAILING:
        return Health("failing", f"{100 * recent.failed / runs:.0f} % of runs failed in {length(recent.over)}")
    if queue.ready and recent.budget is not None:
        return Health("waiting for budget", f"{recent.budget} is short of tokens")
    if queue.ready and recent.over:
        if not runs and not queue.taken and queue.oldest_age >= BEHIND:
            return Health("stuck", f"{queue.ready:,} ready, and nothing ran for {length(recent.over)}")
        if recent.done and (left := queue.ready * recent.busy / recent.done) >= BEHIND:
            return Health("behind", f"{length(left)} of work at this pace")
    if not queue.ready and not queue.taken and not runs:
        if queue.held:  # a lane with a limit of 0, or one whose places are taken in a queue that shares its limits
            return Health("idle", f"{many(queue.held, 'job')} held by paused or full lanes")
        return Health("idle", many(queue.dead, "dead letter") if queue.dead else "")
    return Health("healthy", f"{recent.failed:,.0f} failed in {length(recent.over)}" if recent.failed >= 1 else "")
