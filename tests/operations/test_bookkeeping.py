"""Accoda's own queues are in no list, no total and no advice, unless they are asked for."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from accoda import App, ManualClock
from accoda.budget import Ask
from accoda.model import Bury, NewJob
from accoda.operations import bulk, failure_groups, jobs, overview, queues
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.doctor import life
from accoda.operations.history import reading
from accoda.operations.history.recorder import Recorder, ensure_job
from accoda.operations.job_filter import JobFilter

LINES = 3


@pytest_asyncio.fixture
async def stranger(app: App, clock: ManualClock) -> AsyncIterator[App]:
    """A process that declares nothing, on a store in which a budget pays for `payments`."""
    app.budget("bank", capacity=20, refill=20, per=60)

    @app.handler("payments", budget="bank", cost=5)
    async def pay(amount: int) -> None: ...

    await pay.enqueue_many(range(LINES))
    assert await app.run_until_idle() == LINES
    await pay.enqueue(1)
    await pay.enqueue(2, delay=60)
    async with App("memory://", clock=clock) as other:
        other.connections = app.connections
        yield other


async def test_the_log_of_a_budget_is_in_no_list_and_no_total(stranger: App) -> None:
    assert [queue.name for queue in await queues.list(stranger)] == ["payments"]
    seen = await overview.overview(stranger)
    assert [queue.name for queue in seen.queues] == ["payments"]
    assert (seen.totals.queues, seen.totals.delayed, seen.totals.total) == (1, 1, 2)
    assert {job.queue for job in (await jobs.page(stranger, JobFilter(state="delayed"))).items} == {"payments"}
    assert (await bulk.count(stranger, JobFilter(state="delayed"))).n == 1
    summary = (await life.look(await stranger.connections.get(), stranger))[0]
    assert summary.found == "1 queue, 2 jobs waiting, 0 running workers"


async def test_it_is_shown_when_it_is_asked_for(stranger: App) -> None:
    everything = {queue.name: queue for queue in await queues.list(stranger, system=True)}
    assert everything["payments.spent"].system and not everything["payments"].system
    assert (await queues.get(stranger, "payments.spent")).delayed == LINES
    assert (await overview.overview(stranger, system=True)).totals.delayed == LINES + 1


async def test_the_history_of_all_queues_does_not_count_it(stranger: App, clock: ManualClock) -> None:
    store = await stranger.connections.get()
    await ensure_job(store)
    await Recorder().run_once(store)
    clock.advance(15)
    await Recorder().run_once(store)
    total = await reading.series(stranger)
    assert total.delayed[-1] == 1
    assert (await reading.series(stranger, "payments.spent")).delayed[-1] == LINES


async def test_dead_letters_of_books_are_in_no_group(stranger: App) -> None:
    store = await stranger.connections.get()
    await store.write("demand/deals/counts", b"{}")
    await store.enqueue([NewJob("deals.cache")])
    await store.settle([Bury(job.lease, "no") for job in await store.take("deals.cache", 1)])
    assert (await failure_groups.groups(stranger)).total == 0
    assert (await failure_groups.groups(stranger, system=True)).total == 1


@pytest.mark.parametrize("work", [{"delay": 0.0}, {"delay": 60.0}])
async def test_a_users_queue_of_such_a_name_is_work(app: App, work: dict[str, Any]) -> None:
    """Without budgets there are no logs; and of a log nothing is ever handed out."""
    if not work["delay"]:
        app.budget("bank", capacity=20, refill=20, per=60)
        await app.books.reserve(Ask("web", ("bank",), head_cost=5))
    await app.storage.enqueue([NewJob("web"), NewJob("web.spent", **work)])
    assert await bookkeeping(app.storage, (await app.storage.stats()).queues) == frozenset()
