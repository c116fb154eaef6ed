"""Work in steps: watched, stopped, and never counted twice, through crashes. Shown by bulk changes with a rate."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import pytest

from accoda import App, Bury, ManualClock
from accoda.errors import Conflict, NotFound
from accoda.model import Change, NewJob
from accoda.operations import bulk
from accoda.operations.bulk import BULKS, QUEUE, BulkView, advance, bulk_runner
from accoda.operations.job_filter import JobFilter
from accoda.storage.protocol import Store

DEAD = JobFilter(state="dead")


async def bury(app: App, count: int, queue: str = "a") -> None:
    store = app.storage
    await store.enqueue([NewJob(queue) for _ in range(count)])
    await store.settle([Bury(job.lease, "broken") for job in await store.take(queue, count)])


async def ready(app: App) -> int:
    return (await app.storage.stats()).queues["a"].ready


async def replay(app: App, rate: float | None = None) -> BulkView:
    return await bulk.start(app, "retry", DEAD, rate=rate)


async def finish(app: App, clock: ManualClock, id: str) -> int:
    """Run it to its end; how many seconds that took."""
    seconds = 0
    while (await bulk.get(app, id)).state == "running":
        while await bulk_runner(app).run_once(app.storage):
            pass
        clock.advance(1)
        seconds += 1
    return seconds


async def test_with_a_rate_a_step_is_a_seconds_worth(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await replay(app, rate=10)
    assert (view.state, view.rate) == ("running", 10) and await ready(app) == 0
    seen = []
    for _ in range(5):
        while await bulk_runner(app).run_once(app.storage):
            pass
        seen.append(await ready(app))
        clock.advance(1)
    assert seen == [0, 10, 20, 25, 25]
    ended = await bulk.get(app, view.id)
    assert (ended.state, ended.matched, ended.changed) == ("finished", 25, 25)


async def test_without_a_rate_it_runs_as_fast_as_it_can(app: App, clock: ManualClock) -> None:
    await bury(app, 1200)
    view = await replay(app)
    assert await finish(app, clock, view.id) == 1 and await ready(app) == 1200


async def test_a_very_high_rate_is_kept_in_steps_of_a_thousand(app: App, clock: ManualClock) -> None:
    await bury(app, 2500)
    view = await replay(app, rate=10_000)
    seen = []
    while (await bulk.get(app, view.id)).state == "running":
        await bulk_runner(app).run_once(app.storage)
        seen.append(await ready(app))
        clock.advance(0.1)
    assert seen[-1] == 2500 and max(after - before for before, after in pairwise(seen)) == 1000


async def test_less_than_one_a_second_takes_its_time(app: App, clock: ManualClock) -> None:
    await bury(app, 3)
    view = await replay(app, rate=0.5)
    assert await finish(app, clock, view.id) == 7 and await ready(app) == 3


async def test_nothing_to_do_is_done_at_once(app: App, clock: ManualClock) -> None:
    view = await replay(app)
    assert await finish(app, clock, view.id) == 1
    assert (await bulk.get(app, view.id)).matched == 0


async def test_killed_after_a_change_it_goes_on_and_counts_each_once(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await replay(app, rate=10)
    await bulk_runner(app).run_once(app.storage)
    clock.advance(1)
    # What a process does that is killed between its change and its settlement:
    [job] = await app.storage.take(QUEUE, 1)
    step = BULKS.decode(job.data)
    assert step is not None
    await advance(app, app.storage, step, again=False)
    assert await ready(app) == 10
    clock.advance(61)  # the lease ends
    await finish(app, clock, view.id)
    ended = await bulk.get(app, view.id)
    assert (ended.matched, ended.changed, ended.skipped) == (25, 25, 0) and await ready(app) == 25


async def test_two_runners_do_each_step_once(app: App, clock: ManualClock) -> None:
    await bury(app, 50)
    view = await replay(app, rate=10)
    for _ in range(8):
        await asyncio.gather(*(bulk_runner(app).run_once(app.storage) for _ in range(3)))
        clock.advance(1)
    ended = await bulk.get(app, view.id)
    assert (ended.state, ended.changed) == ("finished", 50)


async def test_a_damaged_step_is_buried_and_stops_no_other(app: App, clock: ManualClock) -> None:
    await bury(app, 1)
    await app.storage.enqueue([NewJob(QUEUE, b"\xc1", key="bad")])
    view = await replay(app)
    await finish(app, clock, view.id)
    assert (await app.storage.stats()).queues[QUEUE].dead == 1 and await ready(app) == 1


async def test_cancelled_in_a_step_it_gives_the_step_back(app: App, clock: ManualClock) -> None:
    await bury(app, 3)
    await replay(app)
    store: Store = await app.connections.get()
    begun = asyncio.Event()
    browse = store.browse

    async def slow(*args: object, **kwargs: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    store.browse = slow  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(bulk_runner(app).run(store))
    await begun.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    store.browse = browse  # type: ignore[method-assign]
    stats = (await store.stats()).queues[QUEUE]
    assert (stats.taken, stats.delayed) == (0, 1)


async def test_what_is_stopped_changes_no_more(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await replay(app, rate=10)
    for _ in range(2):
        await bulk_runner(app).run_once(app.storage)
        clock.advance(1)
    stopped = await bulk.stop(app, view.id)
    assert (stopped.state, stopped.changed) == ("stopped", 10)
    clock.advance(5)
    assert await bulk_runner(app).run_once(app.storage) == 0
    assert await ready(app) == 10 and (await bulk.get(app, view.id)).state == "stopped"
    with pytest.raises(Conflict, match="is stopped already"):
        await bulk.stop(app, view.id)


async def test_stopped_while_a_step_runs_it_is_not_followed_by_another(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await replay(app, rate=10)
    await bulk_runner(app).run_once(app.storage)
    clock.advance(1)
    store: Store = await app.connections.get()
    change = store.change

    async def stop_in_between(changes: Sequence[Change]) -> int:
        store.change = change  # type: ignore[method-assign]
        await bulk.stop(app, view.id)
        return await change(changes)

    store.change = stop_in_between  # type: ignore[method-assign]
    assert await bulk_runner(app).run_once(store) == 0, "its settlement is refused"
    clock.advance(100)
    assert await bulk_runner(app).run_once(store) == 0
    assert (await bulk.get(app, view.id)).state == "stopped"


async def test_what_runs_is_listed_with_what_has_ended(app: App, clock: ManualClock) -> None:
    await bury(app, 2)
    first = await bulk.start(app, "retry", JobFilter(queue="none"))
    await finish(app, clock, first.id)
    second = await replay(app, rate=1)
    assert [(each.id, each.state) for each in await bulk.list(app)] == [
        (second.id, "running"),
        (first.id, "finished"),
    ]


async def test_an_unknown_id_is_not_found(app: App) -> None:
    for id in ("nope", "", "a/b", "x" * 100):
        with pytest.raises(NotFound):
            await bulk.get(app, id)
        with pytest.raises(NotFound):
            await bulk.stop(app, id)
