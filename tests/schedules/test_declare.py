"""Schedules that the code declares, and what a worker stores of them when it starts."""

from datetime import timedelta
from typing import Any

import pytest
from schedule_world import MINUTE, START, World, every, payload_of

from accoda import App, Batch, Priority
from accoda.errors import InvalidInput
from accoda.schedules import (
    ScheduledDecorator,
    ScheduledOptions,
    create,
    declare,
    delete,
    get,
    list_all,
    pause,
    put,
    store_declared,
)


def on(app: App, when: dict[str, Any], **options: Any) -> ScheduledDecorator:
    made: ScheduledOptions = options  # type: ignore[assignment]
    return declare(app, when, made)


def test_a_function_becomes_a_handler_with_a_schedule_of_its_name() -> None:
    app = App("memory://")

    @on(app, {"every": "5m"}, max_attempts=3, priority=Priority.HIGH)
    async def sweep() -> None: ...

    assert app.handlers["sweep"] is sweep and sweep.options.max_attempts == 3
    schedule = app.schedules["sweep"]
    assert (schedule.name, schedule.queue, schedule.every, schedule.priority) == ("sweep", "sweep", 300.0, "HIGH")
    assert schedule.source == "code"


def test_it_stacks_on_a_handler_and_on_itself() -> None:
    app = App("memory://")

    @on(app, {"cron": "0 7 * * MON-FRI", "tz": "Europe/Rome"}, name="morning", payload={"part": 1})
    @on(app, {"every": timedelta(hours=6)}, payload={"part": 2}, catch_up="skip", grace=timedelta(minutes=1))
    @app.handler("reports", batch=5)
    async def report(batch: Batch[dict[str, int]]) -> None: ...

    assert list(app.handlers) == ["reports"] and set(app.schedules) == {"reports", "morning"}
    assert (app.schedules["reports"].every, app.schedules["reports"].grace) == (21_600.0, 60.0)
    assert (app.schedules["morning"].queue, app.schedules["morning"].tz) == ("reports", "Europe/Rome")


def test_what_is_wrong_is_said_where_it_is_written_and_leaves_nothing_behind() -> None:
    app = App("memory://")

    def declared(when: dict[str, Any], **options: Any) -> None:
        @on(app, when, **options)
        async def job(pages: int) -> None: ...

    for when, options, field in (
        ({"every": "soon"}, {"payload": 1}, "every"),
        ({"cron": "0 0 31 2 *"}, {"payload": 1}, "cron"),
        ({"every": 60}, {"payload": "many"}, "payload"),
        ({"every": 60}, {}, "payload"),
        ({"every": 60}, {"payload": 1, "catch_up": "maybe"}, "catchUp"),
        ({"every": 60}, {"payload": 1, "queue": "accoda.own"}, "queue"),
        ({"every": 60}, {"payload": 1, "batsch": 5}, "batsch"),
    ):
        with pytest.raises(InvalidInput) as error:
            declared(when, **options)
        assert error.value.field == field
        assert app.handlers == {} and app.schedules == {}


def test_a_second_schedule_of_a_handler_needs_a_name_of_its_own() -> None:
    app = App("memory://")

    @on(app, {"every": 60})
    async def job() -> None: ...

    with pytest.raises(InvalidInput, match="give this schedule a name of its own"):
        on(app, {"every": 90})(job)
    with pytest.raises(InvalidInput, match="is a handler already; say it in @app"):
        on(app, {"every": 90}, name="other", batch=3)(job)
    on(app, {"every": 90}, name="other")(job)
    assert set(app.schedules) == {"job", "other"}


def declared(world: World, schedule: Any) -> None:
    from msgspec.structs import replace

    world.app.schedules = {schedule.name: replace(schedule, source="code")}


async def test_a_worker_stores_what_is_new_and_leaves_what_is_there(world: World) -> None:
    declared(world, every(60))
    await store_declared(world.app, world.store)
    first = await get(world.store, "report")
    world.clock.advance(30)
    await store_declared(world.app, world.store)  # another worker, or a restart
    again = await get(world.store, "report")
    assert (again.id, again.next_at) == (first.id, START + MINUTE)


async def test_a_declaration_that_changed_is_stored(world: World) -> None:
    declared(world, every(60))
    await store_declared(world.app, world.store)
    world.clock.advance(10)
    declared(world, every(60, payload="new"))
    await store_declared(world.app, world.store)
    assert (await get(world.store, "report")).next_at == START + MINUTE
    declared(world, every(20, payload="new"))
    await store_declared(world.app, world.store)
    assert (await get(world.store, "report")).next_at == START + 30_000
    await world.tick(20)
    assert [payload_of(job) for job in await world.jobs()] == ["new"]


async def test_a_restart_in_the_middle_of_a_tick_does_not_disturb_it(world: World) -> None:
    declared(world, every(60))
    await store_declared(world.app, world.store)
    world.clock.advance(60)
    (running,) = await world.store.take("accoda.schedules", 1, lease=30)
    await store_declared(world.app, world.store)
    from accoda.schedules.scheduler import decide

    assert await world.store.settle([decide(running, START + MINUTE, world.app.new_job)]) == []
    assert await world.ticks() == [60]


async def test_what_people_paused_stays_paused_even_if_the_declaration_changes(world: World) -> None:
    declared(world, every(60))
    await store_declared(world.app, world.store)
    await pause(world.store, "report")
    await store_declared(world.app, world.store)
    declared(world, every(90))
    await store_declared(world.app, world.store)
    view = await get(world.store, "report")
    assert view.state == "paused" and view.schedule is not None and view.schedule.every == 90


async def test_what_people_changed_holds_until_the_declaration_changes(world: World) -> None:
    declared(world, every(60))
    await store_declared(world.app, world.store)
    await put(world.store, every(10))
    await store_declared(world.app, world.store)
    view = await get(world.store, "report")
    assert view.schedule is not None and view.schedule.every == 10
    declared(world, every(70))
    await store_declared(world.app, world.store)
    view = await get(world.store, "report")
    assert view.schedule is not None and (view.schedule.every, view.schedule.source) == (70, "code")


async def test_what_the_code_declares_no_more_is_named_with_the_command_that_deletes_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    declared(world, every(60, name="old"))
    await store_declared(world.app, world.store)
    await create(world.store, every(60, name="by-hand"))
    declared(world, every(60, name="new"))
    assert "declare it any more" not in caplog.text
    await store_declared(world.app, world.store)
    assert "accoda schedules delete old --yes" in caplog.text and "by-hand" not in caplog.text
    await delete(world.store, "old")
    caplog.clear()
    await store_declared(world.app, world.store)
    assert caplog.text == ""


async def test_a_declared_schedule_that_has_ended_stops_nobody(world: World) -> None:
    from datetime import UTC, datetime

    from msgspec.structs import replace

    ended = every(60, name="ended", ends_at=datetime(2020, 1, 1, tzinfo=UTC))
    world.app.schedules = {one.name: replace(one, source="code") for one in (ended, every(60))}
    await store_declared(world.app, world.store)
    assert [view.name for view in await list_all(world.store)] == ["report"]
