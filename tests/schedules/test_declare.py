"""Schedules that the code declares, and what a worker stores of them when it starts."""

from datetime import timedelta
from typing import Any

import pytest
from schedule_env import MINUTE, START, Env, every, payload_of

from accoda import App, Batch, Priority
from accoda.errors import InvalidInput
from accoda.schedules import (
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


def on(app: App, when: dict[str, Any], **options: Any) -> Any:
    made: ScheduledOptions = options  # type: ignore[assignment]
    return declare(app, when, made)


def test_a_function_becomes_a_handler_with_a_schedule_of_its_name() -> None:
    app = App("memory://")

    @on(app, {"every": "5m"}, max_attempts=3, priority=Priority.HIGH)
    async def sweep() -> None: ...

    assert app.handlers["sweep"].find(None) is sweep and sweep.options.max_attempts == 3
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


def test_a_wrong_declaration_is_refused_at_once_and_leaves_nothing_behind() -> None:
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


def declared(env: Env, schedule: Any) -> None:
    from msgspec.structs import replace

    env.app.schedules = {schedule.name: replace(schedule, source="code")}


async def test_a_worker_stores_new_declarations_and_leaves_stored_ones(env: Env) -> None:
    declared(env, every(60))
    await store_declared(env.app, env.store)
    first = await get(env.store, "report")
    env.clock.advance(30)
    await store_declared(env.app, env.store)  # another worker, or a restart
    again = await get(env.store, "report")
    assert (again.id, again.next_at) == (first.id, START + MINUTE)


async def test_a_declaration_that_changed_is_stored(env: Env) -> None:
    declared(env, every(60))
    await store_declared(env.app, env.store)
    env.clock.advance(10)
    declared(env, every(60, payload="new"))
    await store_declared(env.app, env.store)
    assert (await get(env.store, "report")).next_at == START + MINUTE
    declared(env, every(20, payload="new"))
    await store_declared(env.app, env.store)
    assert (await get(env.store, "report")).next_at == START + 30_000
    await env.tick(20)
    assert [payload_of(job) for job in await env.jobs()] == ["new"]


async def test_a_restart_in_the_middle_of_a_tick_does_not_disturb_it(env: Env) -> None:
    declared(env, every(60))
    await store_declared(env.app, env.store)
    env.clock.advance(60)
    (running,) = await env.store.take("accoda.schedules", 1, lease=30)
    await store_declared(env.app, env.store)
    from accoda.schedules.scheduler import decide

    assert await env.store.settle([decide(running, START + MINUTE, env.app.new_job)]) == []
    assert await env.ticks() == [60]


async def test_a_paused_schedule_stays_paused_even_if_its_declaration_changes(env: Env) -> None:
    declared(env, every(60))
    await store_declared(env.app, env.store)
    await pause(env.store, "report")
    await store_declared(env.app, env.store)
    declared(env, every(90))
    await store_declared(env.app, env.store)
    view = await get(env.store, "report")
    assert view.state == "paused" and view.schedule is not None and view.schedule.every == 90


async def test_a_manual_change_holds_until_the_declaration_changes(env: Env) -> None:
    declared(env, every(60))
    await store_declared(env.app, env.store)
    await put(env.store, every(10))
    await store_declared(env.app, env.store)
    view = await get(env.store, "report")
    assert view.schedule is not None and view.schedule.every == 10
    declared(env, every(70))
    await store_declared(env.app, env.store)
    view = await get(env.store, "report")
    assert view.schedule is not None and (view.schedule.every, view.schedule.source) == (70, "code")


async def test_a_schedule_that_is_no_longer_declared_is_logged_with_the_command_that_deletes_it(
    env: Env, caplog: pytest.LogCaptureFixture
) -> None:
    declared(env, every(60, name="old"))
    await store_declared(env.app, env.store)
    await create(env.store, every(60, name="by-hand"))
    declared(env, every(60, name="new"))
    assert "declare it any more" not in caplog.text
    await store_declared(env.app, env.store)
    assert "accoda schedules delete old --yes" in caplog.text and "by-hand" not in caplog.text
    await delete(env.store, "old")
    caplog.clear()
    await store_declared(env.app, env.store)
    assert caplog.text == ""


async def test_a_declared_schedule_that_has_ended_does_not_stop_a_worker(env: Env) -> None:
    from datetime import UTC, datetime

    from msgspec.structs import replace

    ended = every(60, name="ended", ends_at=datetime(2020, 1, 1, tzinfo=UTC))
    env.app.schedules = {one.name: replace(one, source="code") for one in (ended, every(60))}
    await store_declared(env.app, env.store)
    assert [view.name for view in await list_all(env.store)] == ["report"]
