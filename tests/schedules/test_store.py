"""Stored schedules: created, changed and deleted, also in the very moment of a tick."""

import asyncio
from typing import Any

import pytest
from schedule_env import MINUTE, START, Env, WithSteps, every, extras_of, nothing, payload_of

from accoda import NewJob
from accoda.errors import Conflict, NotFound
from accoda.model import ByKey
from accoda.schedules import (
    QUEUE,
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


async def test_a_schedule_is_a_job_under_its_name(env: Env) -> None:
    view = await create(env.store, every(60))
    job = (await env.store.look(ByKey(QUEUE, "report"))).job
    assert job is not None and (job.id, job.key, job.state, job.start_time) == (
        view.id,
        "report",
        "delayed",
        START + MINUTE,
    )
    assert (view.name, view.state, view.words, view.next_at) == ("report", "active", "every minute", START + MINUTE)
    assert view.upcoming(3) == [START + MINUTE, START + 2 * MINUTE, START + 3 * MINUTE]
    assert upcoming(every(60), 2, START) == [START + MINUTE, START + 2 * MINUTE]


async def test_a_name_is_taken_once(env: Env) -> None:
    await create(env.store, every(60))
    with pytest.raises(Conflict, match="there is a schedule 'report' already; change it, or delete it first"):
        await create(env.store, every(5))

    async def be_first() -> None:
        await create(env.store, every(60, name="other", payload="first"))

    store: Any = WithSteps(env, enqueue=[be_first])
    with pytest.raises(Conflict):
        await create(store, every(60, name="other", payload="second"))
    await trigger(env.store, env.app.new_job, "other")
    assert [payload_of(job) for job in await env.jobs()] == ["first"]


async def test_lists_are_by_name(env: Env) -> None:
    for name in ("b", "a", "c"):
        await create(env.store, every(60, name=name))
    await pause(env.store, "c")
    assert [(view.name, view.state) for view in await list_all(env.store)] == [
        ("a", "active"),
        ("b", "active"),
        ("c", "paused"),
    ]


async def test_an_unknown_name_is_not_found(env: Env) -> None:
    for call in (get(env.store, "x"), pause(env.store, "x"), trigger(env.store, env.app.new_job, "x")):
        with pytest.raises(NotFound, match="there is no schedule 'x'"):
            await call
    assert await delete(env.store, "x") is False


async def test_a_change_of_the_times_counts_from_now(env: Env) -> None:
    await create(env.store, every(60))
    env.clock.advance(10)
    view = await put(env.store, every(20))
    assert view.next_at == START + 30_000
    view = await put(env.store, Schedule(name="report", queue="reports", cron="5 12 * * *"))
    assert view.next_at == START + 5 * MINUTE


async def test_a_change_of_anything_else_moves_no_tick(env: Env) -> None:
    await create(env.store, every(60))
    env.clock.advance(10)
    view = await put(env.store, every(60, payload="new"))
    assert view.next_at == START + MINUTE
    await env.tick(50)
    assert [payload_of(job) for job in await env.jobs()] == ["new"]


async def test_pausing_and_resuming_twice_does_no_harm(env: Env) -> None:
    await create(env.store, every(60))
    assert (await pause(env.store, "report")).id == (await pause(env.store, "report")).id
    await resume(env.store, "report")
    assert (await resume(env.store, "report")).state == "active"


async def test_trigger_enqueues_a_job_and_changes_nothing_else(env: Env) -> None:
    await create(env.store, every(60, payload=7))
    before = await get(env.store, "report")
    done = await trigger(env.store, env.app.new_job, "report")
    assert done.what == "created" and await get(env.store, "report") == before
    (job,) = await env.jobs()
    assert (extras_of(job).schedule, extras_of(job).tick, payload_of(job)) == ("report", None, 7)
    await pause(env.store, "report")
    assert (await trigger(env.store, env.app.new_job, "report")).what == "created"


async def test_trigger_obeys_the_overlap_policy(env: Env) -> None:
    await create(env.store, every(60, overlap="skip"))
    first = await trigger(env.store, env.app.new_job, "report")
    second = await trigger(env.store, env.app.new_job, "report")
    assert (first.what, second.what, second.id) == ("created", "kept", first.id)


async def test_a_damaged_schedule_can_be_replaced_or_deleted_but_not_paused(env: Env) -> None:
    await env.store.enqueue([NewJob(QUEUE, b"?", key="report", delay=60)])
    assert (await get(env.store, "report")).state == "broken"
    with pytest.raises(Conflict, match="cannot be read; delete it and create it again"):
        await pause(env.store, "report")
    assert (await put(env.store, every(60))).state == "active"
    await env.store.enqueue([NewJob(QUEUE, b"?", key="other", delay=60)])
    assert await delete(env.store, "other")
    assert [view.name for view in await list_all(env.store)] == ["report"]


# -- a change meets a tick


async def test_a_change_that_meets_a_running_tick_wins_and_the_tick_is_done_by_the_new_rules(env: Env) -> None:
    await create(env.store, every(60, payload="old"))
    env.clock.advance(60)
    (running,) = await env.store.take(QUEUE, 1, lease=30)
    await put(env.store, every(60, payload="new"))
    # The scheduler's outcome comes now. It is refused as a whole: neither the old job nor the old record is stored.
    outcome = decide(running, START + MINUTE, env.app.new_job)
    assert [one.why for one in await env.store.settle([outcome])] == ["lost"]
    assert await env.jobs() == []
    await env.tick()
    assert [(extras_of(job).tick, payload_of(job)) for job in await env.jobs()] == [(START + MINUTE, "new")]
    assert (await get(env.store, "report")).next_at == START + 2 * MINUTE


async def test_a_pause_that_meets_a_running_tick_wins(env: Env) -> None:
    await create(env.store, every(60))
    env.clock.advance(60)
    (running,) = await env.store.take(QUEUE, 1, lease=30)
    await pause(env.store, "report")
    assert await env.store.settle([decide(running, START + MINUTE, env.app.new_job)]) != []
    await env.tick(600)
    assert await env.jobs() == [] and (await get(env.store, "report")).state == "paused"


async def test_a_tick_that_is_settled_while_it_is_changed_gets_one_job(env: Env) -> None:
    """The change has looked, and means to keep the tick at 60; then that tick is done; then the change is stored."""
    await create(env.store, every(60, payload="old"))
    env.clock.advance(60)
    store: Any = WithSteps(env, enqueue=[env.tick])
    view = await put(store, every(60, payload="new"))
    assert view.next_at == START + 2 * MINUTE
    await env.tick()
    await env.tick(60)
    found = [(extras_of(job).tick, payload_of(job)) for job in await env.jobs()]
    assert found == [(START + MINUTE, "old"), (START + 2 * MINUTE, "new")]


async def test_a_scheduler_that_takes_the_wrong_record_does_not_repeat_its_tick(env: Env) -> None:
    """As before, and a scheduler comes to what was stored before the change looks again: it must not do 60 twice."""
    rounds: list[int] = []

    async def tick_and_wait() -> None:
        rounds.append(await env.tick())
        env.clock.advance(5)

    async def tick() -> None:
        rounds.append(await env.tick())

    await create(env.store, every(60, payload="old", catch_up="all"))
    env.clock.advance(60)
    store: Any = WithSteps(env, enqueue=[tick_and_wait], look=[nothing, tick])
    await put(store, every(60, payload="new", catch_up="all"))
    assert rounds == [1, 1]
    await env.tick()
    await env.tick(55)
    found = [(extras_of(job).tick, payload_of(job)) for job in await env.jobs()]
    assert found == [(START + MINUTE, "old"), (START + 2 * MINUTE, "new")]


async def test_a_change_that_meets_tick_after_tick_gives_up_at_last(env: Env) -> None:
    await create(env.store, every(60))

    async def next_tick() -> None:
        await env.tick(60)

    store: Any = WithSteps(env, enqueue=[next_tick] * 200)
    with pytest.raises(Conflict, match="ticks too often to be changed: pause the queue"):
        await put(store, every(60, payload="new"))


async def test_a_change_that_finds_nothing_does_not_replace_a_schedule_created_meanwhile(env: Env) -> None:
    """The change saw nothing, and means to begin at 60. Meanwhile the schedule is created, and its tick at 60 done."""

    async def be_first() -> None:
        await create(env.store, every(60, payload="first"))
        await env.tick(60)

    store: Any = WithSteps(env, enqueue=[be_first])
    await put(store, every(60, payload="second"))
    await env.tick()
    await env.tick(60)
    found = [(extras_of(job).tick, payload_of(job)) for job in await env.jobs()]
    assert found == [(START + MINUTE, "first"), (START + 2 * MINUTE, "second")]


async def test_a_change_after_a_delete_creates(env: Env) -> None:
    await create(env.store, every(60))
    store: Any = WithSteps(env, enqueue=[lambda: delete(env.store, "report")])
    assert (await put(store, every(60, payload="new"))).next_at == START + MINUTE
    await env.tick(60)
    assert [payload_of(job) for job in await env.jobs()] == ["new"]


# -- a delete meets a tick


async def test_a_delete_that_meets_a_running_tick_wins(env: Env) -> None:
    await create(env.store, every(60))
    env.clock.advance(60)
    (running,) = await env.store.take(QUEUE, 1, lease=30)
    assert await delete(env.store, "report")
    # Its outcome would bring the schedule back, if it were not refused.
    assert [one.why for one in await env.store.settle([decide(running, START + MINUTE, env.app.new_job)])] == ["lost"]
    await env.tick(600)
    assert await list_all(env.store) == [] and await env.jobs() == []


async def test_a_delete_whose_job_was_settled_meanwhile_deletes_the_next_one(env: Env) -> None:
    await create(env.store, every(60))
    env.clock.advance(60)
    store: Any = WithSteps(env, change=[env.tick, lambda: env.tick(60)])
    assert await delete(store, "report")
    await env.tick(600)
    assert await list_all(env.store) == []
    assert await env.ticks() == [60, 120]


async def test_concurrent_changes_deletes_and_ticks(env: Env) -> None:
    """Whatever the order: never two jobs for a tick, and after the last word the schedule is what it said."""
    await create(env.store, every(60, catch_up="all"))
    for number in range(60):
        env.clock.advance(30)
        await asyncio.gather(
            put(env.store, every(60, catch_up="all", payload=number)),
            env.tick(),
            env.tick(),
            put(env.store, every(60, catch_up="all", payload=-number)),
            env.tick(),
        )
    await env.tick()
    found = await env.ticks()
    assert found == list(range(60, 1801, 60))
    await asyncio.gather(delete(env.store, "report"), env.tick(60), env.tick())
    assert await list_all(env.store) == []
