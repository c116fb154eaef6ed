"""Replays: people start, watch and stop them; the rate is kept, and nothing is counted twice, through crashes."""

import asyncio
from contextlib import suppress

import pytest

from accoda import App, Bury, InvalidInput, ManualClock
from accoda.admin.dead import DeadFilter, list_replays, replay_state, start_replay, stop_replay
from accoda.errors import Conflict, NotFound
from accoda.model import NewJob
from accoda.replays import QUEUE, Replayer
from accoda.replays.steps import advance, decode
from accoda.storage.protocol import Store


async def bury(app: App, count: int, queue: str = "a") -> None:
    store = app.storage
    await store.enqueue([NewJob(queue) for _ in range(count)])
    await store.settle([Bury(job.lease, "broken") for job in await store.take(queue, count)])


async def ready(app: App) -> int:
    return (await app.storage.stats()).queues["a"].ready


async def finish(app: App, clock: ManualClock, id: str) -> int:
    """Let it go on to its end; how many seconds that took."""
    seconds = 0
    while (await replay_state(app, id)).status == "running":
        while await Replayer().run_once(app.storage):
            pass
        clock.advance(1)
        seconds += 1
    return seconds


async def test_a_replay_revives_a_seconds_worth_at_a_time(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await start_replay(app, DeadFilter(queue="a"), rate=10)
    assert (view.status, view.rate) == ("running", 10) and await ready(app) == 0
    seen = []
    for _ in range(5):
        while await Replayer().run_once(app.storage):
            pass
        seen.append(await ready(app))
        clock.advance(1)
    assert seen == [0, 10, 20, 25, 25]
    ended = await replay_state(app, view.id)
    assert (ended.status, ended.matched, ended.revived, ended.queue) == ("finished", 25, 25, "a")


async def test_without_a_rate_it_goes_as_fast_as_it_can(app: App, clock: ManualClock) -> None:
    await bury(app, 1200)
    view = await start_replay(app, DeadFilter())
    assert await finish(app, clock, view.id) == 1 and await ready(app) == 1200


async def test_a_very_high_rate_is_kept_in_steps_of_a_thousand(app: App, clock: ManualClock) -> None:
    await bury(app, 2500)
    view = await start_replay(app, DeadFilter(), rate=10_000)
    seen = []
    for _ in range(4):
        await Replayer().run_once(app.storage)
        seen.append(await ready(app))
        clock.advance(0.1)
    assert seen == [0, 1000, 2000, 2500]
    assert (await replay_state(app, view.id)).status == "finished"


async def test_less_than_one_a_second_takes_its_time(app: App, clock: ManualClock) -> None:
    await bury(app, 3)
    view = await start_replay(app, DeadFilter(), rate=0.5)
    assert await finish(app, clock, view.id) == 7 and await ready(app) == 3


async def test_nothing_to_do_is_done_at_once(app: App, clock: ManualClock) -> None:
    view = await start_replay(app, DeadFilter())
    assert await finish(app, clock, view.id) == 1
    assert (await replay_state(app, view.id)).matched == 0


async def test_killed_after_reviving_it_goes_on_and_counts_each_once(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await start_replay(app, DeadFilter(), rate=10)
    await Replayer().run_once(app.storage)
    clock.advance(1)
    # What a process does that is killed between its revival and its settlement:
    [job] = await app.storage.take(QUEUE, 1)
    step = decode(job.data)
    assert step is not None
    await advance(app.storage, step)
    assert await ready(app) == 10
    clock.advance(61)  # the lease ends
    await finish(app, clock, view.id)
    ended = await replay_state(app, view.id)
    assert (ended.matched, ended.revived, ended.gone) == (25, 25, 0) and await ready(app) == 25


async def test_two_replayers_do_each_step_once(app: App, clock: ManualClock) -> None:
    await bury(app, 50)
    view = await start_replay(app, DeadFilter(), rate=10)
    for _ in range(8):
        await asyncio.gather(*(Replayer().run_once(app.storage) for _ in range(3)))
        clock.advance(1)
    ended = await replay_state(app, view.id)
    assert (ended.status, ended.revived) == ("finished", 50)


async def test_jobs_whose_key_is_held_are_counted_and_do_not_make_it_loop(app: App, clock: ManualClock) -> None:
    store = app.storage
    await store.enqueue([NewJob("a", key="k")])
    await store.settle([Bury(job.lease, "x") for job in await store.take("a", 1)])
    await store.enqueue([NewJob("a", key="k")])
    view = await start_replay(app, DeadFilter())
    await finish(app, clock, view.id)
    ended = await replay_state(app, view.id)
    assert (ended.matched, ended.held, ended.revived) == (1, 1, 0)


async def test_a_damaged_step_is_buried_and_stops_no_other(app: App, clock: ManualClock) -> None:
    await bury(app, 1)
    await app.storage.enqueue([NewJob(QUEUE, b"\xc1", key="bad")])
    view = await start_replay(app, DeadFilter())
    await finish(app, clock, view.id)
    assert (await app.storage.stats()).queues[QUEUE].dead == 1 and await ready(app) == 1


async def test_cancelled_in_a_step_it_puts_the_step_back(app: App, clock: ManualClock) -> None:
    await bury(app, 3)
    await start_replay(app, DeadFilter())
    store: Store = await app.connections.get()
    begun = asyncio.Event()
    browse = store.browse

    async def slow(*args: object, **kwargs: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    store.browse = slow  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(Replayer().run(store))
    await begun.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    store.browse = browse  # type: ignore[method-assign]
    stats = (await store.stats()).queues[QUEUE]
    assert (stats.taken, stats.delayed) == (0, 1)


async def test_a_stopped_replay_revives_no_more(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await start_replay(app, DeadFilter(), rate=10)
    for _ in range(2):
        await Replayer().run_once(app.storage)
        clock.advance(1)
    stopped = await stop_replay(app, view.id)
    assert (stopped.status, stopped.revived) == ("stopped", 10)
    clock.advance(5)
    assert await Replayer().run_once(app.storage) == 0
    assert await ready(app) == 10 and (await replay_state(app, view.id)).status == "stopped"
    with pytest.raises(Conflict, match="is stopped already"):
        await stop_replay(app, view.id)


async def test_one_that_is_stopped_while_a_step_runs_is_not_followed_by_another(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await start_replay(app, DeadFilter(), rate=10)
    await Replayer().run_once(app.storage)
    clock.advance(1)
    store: Store = await app.connections.get()
    revive = store.revive

    async def stop_in_between(ids: list[int]) -> int:
        await stop_replay(app, view.id)
        return await revive(ids)

    store.revive = stop_in_between  # type: ignore[method-assign, assignment]
    assert await Replayer().run_once(store) == 0, "its settlement is refused"
    clock.advance(100)
    assert await Replayer().run_once(store) == 0
    assert (await replay_state(app, view.id)).status == "stopped"


async def test_replays_are_listed_with_those_that_have_ended(app: App, clock: ManualClock) -> None:
    await bury(app, 2)
    first = await start_replay(app, DeadFilter(queue="none"))
    await finish(app, clock, first.id)
    second = await start_replay(app, DeadFilter(), rate=1)
    assert [(each.id, each.status) for each in await list_replays(app)] == [
        (second.id, "running"),
        (first.id, "finished"),
    ]


async def test_a_replay_that_never_was_is_not_found(app: App) -> None:
    for id in ("nope", "", "a/b", "x" * 100):
        with pytest.raises(NotFound):
            await replay_state(app, id)
        with pytest.raises(NotFound):
            await stop_replay(app, id)
    with pytest.raises(InvalidInput, match="rate"):
        await start_replay(app, DeadFilter(), rate=0)
