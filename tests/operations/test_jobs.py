"""What people do with one job."""

import asyncio
from typing import Any

import pytest

from accoda import App, Bury, Done, InvalidInput, JobNotFound, ManualClock, Priority, Retry
from accoda.errors import Conflict
from accoda.model import NewJob
from accoda.operations import jobs
from accoda.operations.job_filter import JobFilter
from accoda.operations.new_jobs import NewJobRequest


async def one(app: App, **fields: object) -> int:
    return (await jobs.create(app, [NewJobRequest(queue="q", **fields)]))[0].id  # type: ignore[arg-type]


async def bury(app: App, reason: str = "broken") -> None:
    [job] = await app.storage.take("q", 1)
    await app.storage.settle([Bury(job.lease, reason)])


async def test_a_view_tells_all_that_is_stored(app: App, clock: ManualClock) -> None:
    id = await one(app, name="Report", payload=[1], max_retries=2, webhook_url="https://example.com/", cost=3, key="k")
    await app.storage.take("q", 1, lease=30, worker="w1")
    await jobs.set_progress(app, id, 0.25, "1 of 4")
    view = await jobs.get(app, id)
    assert (view.name, view.state, view.priority, view.payload, view.max_retries) == (
        "Report",
        "taken",
        "NORMAL",
        [1],
        2,
    )
    assert (view.webhook_url, view.webhook_on) == ("https://example.com/", ["done", "dead"])
    assert (view.created_at, view.lease_until) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:50.000Z")
    assert view.progress is not None and (view.progress.fraction, view.progress.message) == (0.25, "1 of 4")
    assert (view.worker, view.cost, view.key, view.fingerprint) == ("w1", 3, "k", None)


async def test_a_job_that_is_not_there_is_said_so_everywhere(app: App) -> None:
    for verb in (jobs.get, jobs.cancel, jobs.retry, jobs.delete, jobs.wait_result):
        with pytest.raises(JobNotFound):
            await verb(app, 7)
    with pytest.raises(JobNotFound):
        await jobs.set_priority(app, 7, "LOW")
    for id in (-1, 1 << 63, True, "7"):
        with pytest.raises(InvalidInput, match=r"^id: "):
            await jobs.get(app, id)  # type: ignore[arg-type]


async def test_cancel_takes_back_what_waits_or_runs_and_nothing_that_ended(app: App) -> None:
    waiting, running = await one(app), await one(app)
    await app.storage.take("q", 1)
    await jobs.cancel(app, waiting)
    await jobs.cancel(app, running)
    kept = await one(app, keep_for=60.0)
    await jobs.cancel(app, kept)
    assert (await jobs.wait_result(app, kept)).state == "cancelled"
    assert (await jobs.page(app, JobFilter(state="cancelled"))).items[0].id == kept
    for verb in (jobs.cancel, jobs.retry):
        with pytest.raises(Conflict, match=f"job {kept} is cancelled"):
            await verb(app, kept)
    dead = await one(app)
    await bury(app)
    with pytest.raises(Conflict, match=f"job {dead} is dead"):
        await jobs.cancel(app, dead)


async def test_retry_brings_a_dead_job_back(app: App) -> None:
    id = await one(app)
    await bury(app)
    view = await jobs.retry(app, id)
    assert (view.state, view.attempts) == ("ready", 1)


async def test_retry_of_a_delayed_job_runs_it_now(app: App, clock: ManualClock) -> None:
    id = await one(app)
    [job] = await app.storage.take("q", 1)
    await app.storage.settle([Retry(job.lease, delay=600, reason="busy")])
    clock.advance(10)
    view = await jobs.retry(app, id)
    assert (view.state, view.attempts, view.reason) == ("ready", 1, "busy")
    [job] = await app.storage.take("q", 1)
    assert (job.id, job.start_time) == (id, clock.now())
    with pytest.raises(Conflict, match="is taken: it runs now"):
        await jobs.retry(app, id)
    later = (await app.storage.enqueue([NewJob("q", delay=600)]))[0].id
    assert (await jobs.retry(app, later)).state == "ready"


async def test_retry_of_any_other_says_why_not(app: App) -> None:
    id = await one(app, keep_for=60.0)
    with pytest.raises(Conflict, match="is ready: it runs as soon"):
        await jobs.retry(app, id)
    [job] = await app.storage.take("q", 1)
    with pytest.raises(Conflict, match="is taken: it runs now"):
        await jobs.retry(app, id)
    await app.storage.settle([Done(job.lease)])
    with pytest.raises(Conflict, match="is done: enqueue it anew"):
        await jobs.retry(app, id)


async def test_retry_of_one_whose_key_is_held_says_so(app: App) -> None:
    id = await one(app, key="k")
    await bury(app)
    await one(app, key="k")
    with pytest.raises(Conflict, match="another job holds its key 'k'"):
        await jobs.retry(app, id)


async def test_delete_works_in_any_state(app: App) -> None:
    id = await one(app)
    await bury(app)
    await jobs.delete(app, id)
    with pytest.raises(JobNotFound):
        await jobs.get(app, id)


async def test_a_schedule_cannot_be_cancelled_as_a_job(app: App) -> None:
    [made] = await app.storage.enqueue([NewJob("accoda.schedules", key="daily", delay=60)])
    for verb in (jobs.cancel, jobs.delete, jobs.retry):
        with pytest.raises(Conflict, match="is the schedule 'daily' itself"):
            await verb(app, made.id)
    assert (await jobs.get(app, made.id)).state == "delayed"
    with pytest.raises(Conflict, match="schedule"):
        await jobs.set_priority(app, made.id, "LOW")


async def test_another_priority_is_another_place_in_the_line(app: App) -> None:
    first, second = await one(app), await one(app, priority="LOW")
    assert (await jobs.set_priority(app, second, "CRITICAL")).priority == "CRITICAL"
    assert [job.id for job in await app.storage.take("q", 2)] == [second, first]
    with pytest.raises(Conflict, match=f"job {first} is taken"):
        await jobs.set_priority(app, first, "LOW")
    with pytest.raises(InvalidInput, match=r"^priority: "):
        await jobs.set_priority(app, first, "URGENT")


async def test_one_that_is_taken_in_between_is_a_conflict_and_not_a_success(app: App) -> None:
    id = await one(app)
    store: Any = await app.connections.get()
    change = store.change

    async def too_late(changes: Any) -> Any:
        await store.take("q", 1)
        return await change(changes)

    store.change = too_late
    with pytest.raises(Conflict, match=f"job {id} is taken"):
        await jobs.set_priority(app, id, "LOW")


async def test_an_aging_job_keeps_its_age_when_its_priority_changes(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("q", policy="aging")
    async def handle(payload: object) -> None: ...

    began = clock.now()
    id = await one(app, priority="LOW")
    clock.advance(500)
    view = await jobs.set_priority(app, id, "HIGH")
    assert (view.priority, view.rank) == ("HIGH", began + 1e6)
    stranger = App("memory://", clock=clock)
    stranger.connections = app.connections  # one that knows no handler
    assert (await jobs.set_priority(stranger, id, "NORMAL")).rank == began + 2e6


async def test_the_level_of_an_aging_job_survives_delay_and_retry(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("q", policy="aging")
    async def handle(payload: object) -> None: ...

    made = await app.enqueue("q", None, priority=Priority.HIGH, delay=7200)
    assert (await jobs.get(app, made.id)).priority == "HIGH"
    clock.advance(7200)
    [job] = await app.storage.take("q", 1)
    assert (await jobs.get(app, made.id)).priority == "HIGH"
    await app.storage.settle([Retry(job.lease, delay=7200)])
    assert (await jobs.get(app, made.id)).priority == "HIGH"


async def test_the_rank_of_a_demands_job_cannot_be_set(app: App) -> None:
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> int:
        return 1

    from accoda import Waiter

    answer = await deals.request("a", Waiter("anna"))
    assert (await jobs.get(app, answer.id)).priority is None
    with pytest.raises(Conflict, match="demand"):
        await jobs.set_priority(app, answer.id, "LOW")


async def test_a_rank_of_no_level_has_no_priority(app: App) -> None:
    made = await app.storage.enqueue([NewJob("q", rank=rank) for rank in (0.5, -1.0, 4.0, 1e15)])
    assert [(await jobs.get(app, each.id)).priority for each in made] == [None] * 4


async def test_progress_is_between_nothing_and_all(app: App) -> None:
    id = await one(app)
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidInput, match=r"^fraction: "):
            await jobs.set_progress(app, id, fraction)
    await bury(app)
    with pytest.raises(Conflict, match="is dead"):
        await jobs.set_progress(app, id, 1.0)


async def test_the_progress_of_a_system_job_cannot_be_set(app: App) -> None:
    made = await app.storage.enqueue(
        [NewJob(f"accoda.{name}", key="k") for name in ("schedules", "webhooks", "replays")]
    )
    for each in made:
        with pytest.raises(Conflict, match=r"schedule 'k' itself|only Accoda reports"):
            await jobs.set_progress(app, each.id, 0.5)
    assert await app.storage.documents("progress/") == []


async def test_waiting_for_a_result_ends_when_the_job_does(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("q", keep_for=60)
    async def double(number: int) -> int:
        return number * 2

    made = await double.enqueue(21)
    waiting = asyncio.create_task(jobs.wait_result(app, made.id, 20))
    await asyncio.sleep(0)
    await app.run_until_idle()
    view = await waiting
    assert (view.state, view.result) == ("done", 42)


async def test_waiting_gives_the_job_as_it_is_when_the_time_is_over(app: App) -> None:
    id = await one(app, keep_for=60.0)
    assert (await jobs.wait_result(app, id, 0.01)).state == "ready"
    await bury(app, "no")
    view = await jobs.wait_result(app, id, 5)
    assert (view.state, view.reason) == ("dead", "no")


async def test_waiting_for_a_result_that_will_not_be_kept_is_a_conflict_at_once(app: App) -> None:
    id = await one(app)
    with pytest.raises(Conflict, match="keepFor"):
        await jobs.wait_result(app, id, 5)


async def test_dead_jobs_are_revived_by_id(app: App) -> None:
    ids = [await one(app), await one(app)]
    await app.storage.settle([Bury(job.lease, "x") for job in await app.storage.take("q", 2)])
    assert await jobs.revive(app, [ids[0], ids[0], 999]) == 1 and await jobs.revive(app, []) == 0
    with pytest.raises(InvalidInput, match="ids: must be at most"):
        await jobs.revive(app, range(10_001))
