"""The health of a queue: one word for every interface."""

import pytest

from accoda import App, ManualClock
from accoda.budget import Ask
from accoda.cli.top.loop import read
from accoda.model import Bury, Done, NewJob, QueueStats, Retry
from accoda.operations import overview, queues
from accoda.operations.health import RecentRuns, judge
from accoda.operations.history.recorder import Recorder, ensure_job
from accoda.operations.history.sparks import Spark
from accoda.runtime.heartbeat import Heartbeat, encode


async def served(app: App, clock: ManualClock, *names: str) -> None:
    """A worker that serves these queues."""
    beat = Heartbeat("w", "w", "host", 7, clock.now() - 60_000, clock.now(), names, 2)
    await app.storage.write("worker/w", encode(beat))


@pytest.mark.parametrize(
    ("word", "stats", "recent"),
    [
        ("paused", QueueStats(ready=9, paused=True), RecentRuns()),
        ("stuck", QueueStats(ready=9), RecentRuns()),
        ("stuck", QueueStats(ready=9, oldest_age=900), RecentRuns(over=900, workers=1)),
        ("failing", QueueStats(), RecentRuns(done=95, failed=5, over=900, workers=1)),
        ("healthy", QueueStats(), RecentRuns(done=96, failed=5, over=900, workers=1)),
        ("healthy", QueueStats(), RecentRuns(done=4, failed=4, over=900, workers=1)),
        ("failing", QueueStats(ready=9), RecentRuns(done=5, failed=8, over=900, workers=1, budget="keepa")),
        ("waiting for budget", QueueStats(ready=9, oldest_age=900), RecentRuns(over=900, workers=1, budget="keepa")),
        ("behind", QueueStats(ready=1000), RecentRuns(done=900, over=900, busy=900, workers=1)),
        ("healthy", QueueStats(ready=10), RecentRuns(done=900, failed=1, over=900, workers=1)),
        ("healthy", QueueStats(taken=1), RecentRuns(workers=1)),
        ("healthy", QueueStats(ready=1, taken=1), RecentRuns()),  # clients of the HTTP API run it
        ("healthy", QueueStats(dead=500, taken=1), RecentRuns(done=900, over=900, workers=1)),
        ("idle", QueueStats(dead=2), RecentRuns(workers=1)),
    ],
)
def test_it_is_the_worst_that_is_known(word: str, stats: QueueStats, recent: RecentRuns) -> None:
    assert judge(stats, recent).word == word


def test_a_young_queue_is_judged_by_the_time_that_it_has_lived() -> None:
    young = RecentRuns.of(Spark([0.0] * 56 + [3.0] * 4, [0.0] * 60), workers=1)
    assert (young.over, young.busy) == (900.0, 60.0)
    assert judge(QueueStats(ready=600), young).word == "healthy"  # 200 s of work, not 50 minutes
    assert judge(QueueStats(ready=1200), young).reason == "6 min 40 s of work at this pace"


async def test_every_interface_has_the_same_word(app: App, clock: ManualClock) -> None:
    store = await app.connections.get()
    app.budget("keepa", capacity=20, refill=20, per=60)
    await served(app, clock, "calls", "deals", "emails")
    await ensure_job(store)
    await Recorder().run_once(store)
    await store.enqueue([NewJob(queue) for queue in ("calls", "deals", "emails") for _ in range(20)])
    jobs = await store.take("emails", 20)
    await store.settle([Done(job.lease) for job in jobs[:14]] + [Retry(job.lease, delay=60) for job in jobs[14:]])
    await store.settle([Bury(job.lease, "no") for job in await store.take("calls", 1)])
    clock.advance(15)
    await Recorder().run_once(store)
    await app.books.reserve(Ask("other", ("keepa",), head_cost=20))
    await app.books.reserve(Ask("deals", ("keepa",), head_cost=5))
    expected = {"calls": "healthy", "deals": "waiting for budget", "emails": "failing"}
    assert {queue.name: queue.health.word for queue in await queues.list(app)} == expected
    assert {queue.name: queue.health.word for queue in (await overview.overview(app)).queues} == expected
    assert {queue.name: queue.health.word for queue in (await read(app)).overview.queues} == expected
    assert {name: (await queues.get(app, name)).health.word for name in expected} == expected
    assert (await queues.get(app, "emails")).health.reason == "30 % of runs failed in 15 min"
    assert (await queues.get(app, "deals")).health.reason == "keepa is short of tokens"
