"""What is in a store: queues that no worker serves, dead letters, workers in trouble, schedules that are late."""

import pytest

from accoda import App, Bury, ManualClock, NewJob, Retry
from accoda.flows.coordinator import Coordinator, FlowTimers
from accoda.model import Revive
from accoda.operations.doctor import Finding, life
from accoda.runtime.heartbeat import Heartbeat, encode
from accoda.schedules import Schedule, create


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> App:
    return App("memory://", clock=clock)


async def look(app: App, known: App | None = None) -> list[tuple[str, str, str]]:
    findings: list[Finding] = await life.look(await app.connections.get(), known)
    return [(each.level, each.what, each.found) for each in findings if each.level != "ok"]


async def beat(app: App, clock: ManualClock, *queues: str, behind: int = 0, problem: str = "") -> None:
    value = Heartbeat("w", "w", "host", 7, clock.now(), clock.now() - behind, queues, 1, problem=problem)
    await app.storage.write("worker/w", encode(value))


async def test_an_empty_store_is_well(app: App) -> None:
    assert await look(app) == []


async def test_ready_jobs_that_no_worker_serves_are_told(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("emails"), NewJob("emails"), NewJob("later", delay=60)])
    clock.advance(300)
    [told, _] = await look(app)
    assert told == ("warning", "queue", "'emails' has 2 ready jobs, the oldest for 5 min, and no worker serves it")
    await beat(app, clock, "emails", "later")
    assert await look(app) == []
    await beat(app, clock, "other")
    assert len(await look(app)) == 2


async def test_a_system_job_is_told_only_when_nobody_has_run_it_for_long(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("accoda.bulk"), NewJob("accoda.history")])
    assert await look(app) == [], "an HTTP service runs it too, and has no heartbeat"
    clock.advance(61)
    [told] = await look(app)
    assert told[2].startswith("'accoda.bulk' has 1 ready job, the oldest for 1 min 1 s")


async def test_records_of_flows_are_not_late_and_inboxes_only_if_no_one_takes_them(
    app: App, clock: ManualClock
) -> None:
    flow = app.flow("order", key="order-17", deadline=86_400.0)
    flow.add("stock", 1)
    await flow.start()
    await Coordinator().run_once(app.storage)
    await app.storage.take("stock", 1, lease=1e6)
    clock.advance(86_401)
    assert await look(app) == [], "its record is a day old, and its moment has just come"
    clock.advance(61)
    [told] = await look(app)
    assert told[2].startswith("'accoda.flows.log' has 1 ready job")
    await FlowTimers().run_once(app.storage)
    [inbox] = await app.storage.take("accoda.flows", 1)
    clock.advance(120)
    await app.storage.settle([Retry(inbox.lease, counts=False)])
    assert await look(app) == [], "the inbox is old, and has been ready for a moment"


async def test_an_app_without_a_handler_is_reported(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("emails")])
    await beat(app, clock, "other")
    [found] = [each for each in await life.look(await app.connections.get(), app) if each.level == "warning"]
    assert "this app has no handler for it: add @app.handler('emails')" in found.advice


async def test_many_such_queues_are_summed_up(app: App) -> None:
    await app.storage.enqueue([NewJob(f"q{number}") for number in range(9)])
    told = await look(app)
    assert len(told) == 6 and "4 more queues with 4 ready jobs" in told[-1][2]


async def test_a_paused_queue_is_a_note(app: App) -> None:
    await app.storage.enqueue([NewJob("emails")])
    await app.storage.pause("emails", None)
    assert await look(app) == [("note", "queue", "'emails' is paused, with 1 ready job")]


async def test_dead_letters_of_the_last_hour_are_a_warning_and_old_ones_a_note(app: App, clock: ManualClock) -> None:
    for _ in range(2):
        await app.storage.enqueue([NewJob("emails")])
        [job] = await app.storage.take("emails", 1)
        await app.storage.settle([Bury(job.lease, "no")])
        clock.advance(3601)
    assert await look(app) == [("note", "dead letters", "'emails' has 2")]
    await app.storage.change([Revive(job.id)])
    [job] = await app.storage.take("emails", 1)
    await app.storage.settle([Bury(job.lease, "no")])
    assert await look(app) == [("warning", "dead letters", "'emails' has 2, 1 of the last hour")]


async def test_a_worker_in_trouble_or_with_a_wrong_clock_is_reported(app: App, clock: ManualClock) -> None:
    await beat(app, clock, problem="the store is away")
    assert await look(app) == [("problem", "worker", "w (host, process 7): the store is away")]
    await beat(app, clock, behind=7_200_000)
    assert await look(app) == [
        ("warning", "worker", "w (host, process 7) is running, and its clock is 2 h off the store's")
    ]


async def test_a_schedule_that_is_late_is_told(app: App, clock: ManualClock) -> None:
    await create(await app.connections.get(), Schedule(name="daily", queue="reports", every=3600))
    assert await look(app) == []
    clock.advance(7200)
    told = await look(app)
    assert any(level == "warning" and what == "schedule" and "'daily' was due" in found for level, what, found in told)
