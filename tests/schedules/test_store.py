"""Stored schedules: created, changed and deleted, also in the very moment of a tick."""

import asyncio
from typing import Any

import pytest
from schedule_world import MINUTE, START, Meddled, World, every, extras_of, nothing, payload_of

from accoda import NewJob
from accoda.errors import Conflict, NotFound
from accoda.schedules import (
    QUEUE,
    AlreadyThere,
    Schedule,
    create,
    delete,
    get,
    list_all,
    pause,
    put,
    resume,
    trigger,
    upcoming,
)
from accoda.schedules.scheduler import decide


async def test_a_schedule_is_a_job_under_its_name(world: World) -> None:
    view = await create(world.store, every(60))
    job = (await world.store.peek(QUEUE, "report")).job
    assert job is not None and (job.id, job.key, job.state, job.start_time) == (
        view.id,
        "report",
        "delayed",
        START + MINUTE,
    )
    assert (view.name, view.state, view.words, view.next_at) == ("report", "active", "every minute", START + MINUTE)
    assert view.upcoming(3) == [START + MINUTE, START + 2 * MINUTE, START + 3 * MINUTE]
    assert upcoming(every(60), 2, START) == [START + MINUTE, START + 2 * MINUTE]


async def test_a_name_is_taken_once(world: World) -> None:
    await create(world.store, every(60))
    with pytest.raises(AlreadyThere, match="there is a schedule 'report' already; change it, or delete it first"):
        await create(world.store, every(5))

    async def be_first() -> None:
        await create(world.store, every(60, name="other", payload="first"))

    store: Any = Meddled(world, enqueue=[be_first])
    with pytest.raises(AlreadyThere):
        await create(store, every(60, name="other", payload="second"))
    await trigger(world.store, world.app.new_job, "other")
    assert [payload_of(job) for job in await world.jobs()] == ["first"]


async def test_lists_are_by_name(world: World) -> None:
    for name in ("b", "a", "c"):
        await create(world.store, every(60, name=name))
    await pause(world.store, "c")
    assert [(view.name, view.state) for view in await list_all(world.store)] == [
        ("a", "active"),
        ("b", "active"),
        ("c", "paused"),
    ]


async def test_what_is_not_there_is_said(world: World) -> None:
    for call in (get(world.store, "x"), pause(world.store, "x"), trigger(world.store, world.app.new_job, "x")):
        with pytest.raises(NotFound, match="there is no schedule 'x'"):
            await call
    assert await delete(world.store, "x") is False


async def test_a_change_of_the_times_counts_from_now(world: World) -> None:
    await create(world.store, every(60))
    world.clock.advance(10)
    view = await put(world.store, every(20))
    assert view.next_at == START + 30_000
    view = await put(world.store, Schedule(name="report", queue="reports", cron="5 12 * * *"))
    assert view.next_at == START + 5 * MINUTE


async def test_a_change_of_anything_else_moves_no_tick(world: World) -> None:
    await create(world.store, every(60))
    world.clock.advance(10)
    view = await put(world.store, every(60, payload="new"))
    assert view.next_at == START + MINUTE
    await world.tick(50)
    assert [payload_of(job) for job in await world.jobs()] == ["new"]


async def test_to_pause_twice_is_to_pause_once(world: World) -> None:
    await create(world.store, every(60))
    assert (await pause(world.store, "report")).id == (await pause(world.store, "report")).id
    await resume(world.store, "report")
    assert (await resume(world.store, "report")).state == "active"


async def test_trigger_enqueues_a_job_and_changes_nothing_else(world: World) -> None:
    await create(world.store, every(60, payload=7))
    before = await get(world.store, "report")
    done = await trigger(world.store, world.app.new_job, "report")
    assert done.what == "created" and await get(world.store, "report") == before
    (job,) = await world.jobs()
    assert (extras_of(job).schedule, extras_of(job).tick, payload_of(job)) == ("report", None, 7)
    await pause(world.store, "report")
    assert (await trigger(world.store, world.app.new_job, "report")).what == "created"


async def test_trigger_heeds_the_overlap_policy(world: World) -> None:
    await create(world.store, every(60, overlap="skip"))
    first = await trigger(world.store, world.app.new_job, "report")
    second = await trigger(world.store, world.app.new_job, "report")
    assert (first.what, second.what, second.id) == ("created", "kept", first.id)


async def test_a_damaged_schedule_can_be_put_right_or_deleted_but_not_paused(world: World) -> None:
    await world.store.enqueue([NewJob(QUEUE, b"?", key="report", delay=60)])
    assert (await get(world.store, "report")).state == "broken"
    with pytest.raises(Conflict, match="cannot be read; delete it and create it again"):
        await pause(world.store, "report")
    assert (await put(world.store, every(60))).state == "active"
    await world.store.enqueue([NewJob(QUEUE, b"?", key="other", delay=60)])
    assert await delete(world.store, "other")
    assert [view.name for view in await list_all(world.store)] == ["report"]


# -- a change meets a tick


async def test_a_change_that_meets_a_running_tick_wins_and_the_tick_is_done_by_the_new_rules(world: World) -> None:
    await create(world.store, every(60, payload="old"))
    world.clock.advance(60)
    (running,) = await world.store.take(QUEUE, 1, lease=30)
    await put(world.store, every(60, payload="new"))
    # The scheduler's outcome comes now. It is refused as a whole: neither the old job nor the old record is stored.
    outcome = decide(running, START + MINUTE, world.app.new_job)
    assert [one.why for one in await world.store.settle([outcome])] == ["lost"]
    assert await world.jobs() == []
    await world.tick()
    assert [(extras_of(job).tick, payload_of(job)) for job in await world.jobs()] == [(START + MINUTE, "new")]
    assert (await get(world.store, "report")).next_at == START + 2 * MINUTE


async def test_a_pause_that_meets_a_running_tick_wins(world: World) -> None:
    await create(world.store, every(60))
    world.clock.advance(60)
    (running,) = await world.store.take(QUEUE, 1, lease=30)
    await pause(world.store, "report")
    assert await world.store.settle([decide(running, START + MINUTE, world.app.new_job)]) != []
    await world.tick(600)
    assert await world.jobs() == [] and (await get(world.store, "report")).state == "paused"


async def test_a_tick_that_is_settled_while_it_is_changed_gets_one_job(world: World) -> None:
    """The change has looked, and means to keep the tick at 60; then that tick is done; then the change is stored."""
    await create(world.store, every(60, payload="old"))
    world.clock.advance(60)
    store: Any = Meddled(world, enqueue=[world.tick])
    view = await put(store, every(60, payload="new"))
    assert view.next_at == START + 2 * MINUTE
    await world.tick()
    await world.tick(60)
    found = [(extras_of(job).tick, payload_of(job)) for job in await world.jobs()]
    assert found == [(START + MINUTE, "old"), (START + 2 * MINUTE, "new")]


async def test_a_scheduler_that_comes_upon_the_wrong_record_does_not_do_its_tick_again(world: World) -> None:
    """As before, and a scheduler comes to what was stored before the change looks again: it must not do 60 twice."""
    rounds: list[int] = []

    async def tick_and_wait() -> None:
        rounds.append(await world.tick())
        world.clock.advance(5)

    async def tick() -> None:
        rounds.append(await world.tick())

    await create(world.store, every(60, payload="old", catch_up="all"))
    world.clock.advance(60)
    store: Any = Meddled(world, enqueue=[tick_and_wait], peek=[nothing, tick])
    await put(store, every(60, payload="new", catch_up="all"))
    assert rounds == [1, 1]
    await world.tick()
    await world.tick(55)
    found = [(extras_of(job).tick, payload_of(job)) for job in await world.jobs()]
    assert found == [(START + MINUTE, "old"), (START + 2 * MINUTE, "new")]


async def test_a_change_that_meets_tick_after_tick_gives_up_at_last(world: World) -> None:
    await create(world.store, every(60))

    async def next_tick() -> None:
        await world.tick(60)

    store: Any = Meddled(world, enqueue=[next_tick] * 200)
    with pytest.raises(Conflict, match="ticks too often to be changed: pause the queue"):
        await put(store, every(60, payload="new"))


async def test_a_change_that_finds_nothing_does_not_replace_what_is_created_and_ticks_meanwhile(world: World) -> None:
    """The change saw nothing, and means to begin at 60. Meanwhile the schedule is created, and its tick at 60 done."""

    async def be_first() -> None:
        await create(world.store, every(60, payload="first"))
        await world.tick(60)

    store: Any = Meddled(world, enqueue=[be_first])
    await put(store, every(60, payload="second"))
    await world.tick()
    await world.tick(60)
    found = [(extras_of(job).tick, payload_of(job)) for job in await world.jobs()]
    assert found == [(START + MINUTE, "first"), (START + 2 * MINUTE, "second")]


async def test_a_change_after_a_delete_creates(world: World) -> None:
    await create(world.store, every(60))
    store: Any = Meddled(world, enqueue=[lambda: delete(world.store, "report")])
    assert (await put(store, every(60, payload="new"))).next_at == START + MINUTE
    await world.tick(60)
    assert [payload_of(job) for job in await world.jobs()] == ["new"]


# -- a delete meets a tick


async def test_a_delete_that_meets_a_running_tick_wins(world: World) -> None:
    await create(world.store, every(60))
    world.clock.advance(60)
    (running,) = await world.store.take(QUEUE, 1, lease=30)
    assert await delete(world.store, "report")
    # Its outcome would bring the schedule back, if it were not refused.
    assert [one.why for one in await world.store.settle([decide(running, START + MINUTE, world.app.new_job)])] == [
        "lost"
    ]
    await world.tick(600)
    assert await list_all(world.store) == [] and await world.jobs() == []


async def test_a_delete_whose_job_was_settled_meanwhile_deletes_the_next_one(world: World) -> None:
    await create(world.store, every(60))
    world.clock.advance(60)
    store: Any = Meddled(world, drop=[world.tick, lambda: world.tick(60)])
    assert await delete(store, "report")
    await world.tick(600)
    assert await list_all(world.store) == []
    assert await world.ticks() == [60, 120]


async def test_changes_deletes_and_ticks_in_a_crowd(world: World) -> None:
    """Whatever the order: never two jobs for a tick, and after the last word the schedule is what it said."""
    await create(world.store, every(60, catch_up="all"))
    for number in range(60):
        world.clock.advance(30)
        await asyncio.gather(
            put(world.store, every(60, catch_up="all", payload=number)),
            world.tick(),
            world.tick(),
            put(world.store, every(60, catch_up="all", payload=-number)),
            world.tick(),
        )
    await world.tick()
    found = await world.ticks()
    assert found == list(range(60, 1801, 60))
    await asyncio.gather(delete(world.store, "report"), world.tick(60), world.tick())
    assert await list_all(world.store) == []
