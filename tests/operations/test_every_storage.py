"""Operations on every storage: what they build on (order of pages, keys, documents, changes) holds on each server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from proof.service import ServiceRunner

from accoda import App, Bury
from accoda.errors import KeyReused
from accoda.model import StartNow
from accoda.operations import bulk, failure_groups, jobs, queues, workers
from accoda.operations.bulk import bulk_runner
from accoda.operations.history.reading import read_history
from accoda.operations.history.recorder import QUEUE, Recorder, ensure_job
from accoda.operations.job_filter import JobFilter
from accoda.operations.levels import Level
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.new_jobs import NewJobRequest
from accoda.operations.views import JobView
from accoda.runtime.attempts import Attempt, write_attempts
from accoda.runtime.heartbeat import Heartbeat, encode


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


async def test_a_day_of_an_operator(app: App) -> None:
    asked = [NewJobRequest(queue="a", payload={"n": n, "pin": "12345"}, secret_fields=("pin",)) for n in range(5)]
    made = (await jobs.create_once(app, asked, "key", "anna")).items
    assert (await jobs.create_once(app, asked, "key", "anna")).replayed
    with pytest.raises(KeyReused):
        await jobs.create_once(app, asked[:1], "key", "anna")
    await jobs.create(app, [NewJobRequest(queue="b", delay=60.0, name="Later", priority="LOW")])

    first = await jobs.page(app, limit=4)
    rest = await jobs.page(app, limit=4, cursor=first.next)
    assert [(job.queue, job.state) for job in first.items + rest.items] == [("a", "ready")] * 5 + [("b", "delayed")]
    assert rest.next is None and first.items[0].payload == {"n": 0, "pin": "•••"} and rest.items[1].name == "Later"

    assert (await jobs.set_priority(app, made[4].id, "CRITICAL")).priority == "CRITICAL"
    taken = await app.storage.take("a", 5)
    assert taken[0].id == made[4].id
    await app.storage.settle([Bury(job.lease, f"no user {job.id}, pin 12345") for job in taken])
    [group] = (await failure_groups.groups(app)).groups
    assert group.count == 5 and "12345" not in group.reason

    assert (await jobs.retry(app, made[0].id)).state == "ready"
    assert (await bulk.count(app, JobFilter(queue="a", state="dead", fingerprint=group.fingerprint))).n == 4
    view = await bulk.start(app, "retry", JobFilter(state="dead", fingerprint=group.fingerprint), rate=1000)
    while (ended := await bulk.get(app, view.id)).state == "running":
        await bulk_runner(app).run_once(app.storage)
    assert ended.changed == 4

    assert (await queues.pause(app, "a", 60)).paused and (await queues.get(app, "a")).ready == 5
    assert not (await queues.resume(app, "a")).paused
    assert await queues.purge(app, "a", "ready") == 5
    await jobs.cancel(app, (await jobs.page(app, JobFilter(queue="b"))).items[0].id)
    assert (await jobs.page(app)).items == []


async def test_history_bulk_runs_and_drain_stand_on_every_storage(app: App) -> None:
    """One recorder's ring, one bulk change of each kind, a filter by key, notes of a failed run, a drained worker."""
    store = await app.connections.get()
    await ensure_job(store)
    await jobs.create(app, [NewJobRequest(queue="a", payload={"n": n}, key=f"k{n}") for n in range(1200)])
    [held] = (await jobs.page(app, JobFilter(queue="a", key="k7"))).items
    assert held.payload == {"n": 7}

    async def finish(action: bulk.Action, where: JobFilter, level: Level | None = None) -> tuple[int, ...]:
        view = await bulk.start(app, action, where, level=level)
        while await bulk_runner(app).run_once(store):
            pass
        view = await bulk.get(app, view.id)
        assert view.state == "finished" and view.ended_at is not None
        return view.matched, view.changed, view.skipped

    assert await finish("priority", JobFilter(queue="a", field="n=7"), "CRITICAL") == (1, 1, 0)
    taken = await store.take("a", 1200)
    assert taken[0].id == held.id
    await store.settle([Bury(job.lease, f"no user {job.id}") for job in taken])
    assert await finish("retry", JobFilter(state="dead", error="no user")) == (1200, 1200, 0)
    assert await finish("cancel", JobFilter(queue="a", key="k9")) == (1, 1, 0)
    assert await finish("delete", JobFilter(queue="a")) == (1199, 1199, 0)

    assert await Recorder().run_once(store) == 1
    [waiting] = await store.browse(QUEUE, "delayed")
    await store.change([StartNow(waiting.id)])  # before its slot has ended: nothing is written, and it waits again
    assert await Recorder().run_once(store) == 1 and len(await store.browse(QUEUE, "delayed")) == 1
    ready = (await read_history(store, "a", "1h")).columns["ready"]
    assert len(ready) == 240 and ready[-1] == 0
    ring = await store.read("history/a/1h")
    assert ring is not None and len(ring.value) == 12_502

    await write_attempts(store, 5, [Attempt(0, "w", 1, 2, "retry", "ValueError: é", "Traceback …")])
    await write_attempts(store, 5, [Attempt(1, "w", 3, 4, "bury", "no", "")])
    assert [run.attempt for run in await jobs.failed_runs(app, 5)] == [0, 1]
    await store.write("worker/w-1", encode(Heartbeat("w-1", "w", "host", 1, 0, 0, ("a",), 1)), ttl=60)
    assert (await workers.drain(app, "w-1")).draining and not (await workers.drain(app, "w-1", False)).draining


async def test_the_request_of_a_scheduler_is_delayed_and_runs_at_its_time(app: App) -> None:
    ran: list[tuple[object, int]] = []

    @app.handler("reports", type="report.generate")
    async def report(payload: object) -> None:
        ran.append((payload, await now_of(app.storage)))

    body = {"name": "Scheduled Report", "type": "report.generate", "payload": {"reportId": "monthly"}}
    with ServiceRunner(app) as service:
        later = service.post("/jobs", {**body, "scheduledAt": rfc3339(await now_of(app.storage) + 3_600_000)})
        soon = await now_of(app.storage) + 300
        assert [later.status, service.post("/jobs", {**body, "scheduledAt": rfc3339(soon)}).status] == [201, 201]
        assert service.get(later.headers["location"]).json()["state"] == "delayed"
        while not ran:
            await app.storage.wait(["reports"], 5)
            await app.run_until_idle(["reports"])
        assert ran[0][0] == {"reportId": "monthly"} and ran[0][1] >= soon
        assert len(ran) == 1 and service.get(later.headers["location"]).json()["state"] == "delayed"


async def test_the_line_is_listed_as_it_is_processed(app: App) -> None:
    """With words for the levels; of several queues, by the moment."""
    store = app.storage
    for level in ("low", "CRITICAL", "High", "normal", "critical"):
        await app.enqueue("line", priority=level)
        await app.enqueue("line", priority=level, delay=len(level) * 100)
        await app.enqueue("line2", priority=level, delay=len(level) * 100 + 50)

    async def page(**where: Any) -> list[JobView]:
        found, cursor = [], None
        while True:
            some = await jobs.page(app, JobFilter(**where), limit=3, cursor=cursor)
            found, cursor = found + some.items, some.next
            if cursor is None:
                return [job for job in found if job.queue.startswith("line")]

    ready = await page(queue="line", state="ready")
    assert [job.priority for job in ready] == ["CRITICAL", "CRITICAL", "HIGH", "NORMAL", "LOW"]
    for where in ({"queue": "line"}, {}):
        delayed = await page(state="delayed", **where)
        starts = [job.scheduled_at for job in delayed]
        assert starts == sorted(starts) and len(starts) == (5 if where else 10)

    taken = [
        job for seconds in (90, 30, 60) for job in await store.take("line", 1, lease=seconds, worker=f"w{seconds}")
    ]
    assert [job.id for job in taken] == [job.id for job in ready[:3]], "the list told what take would hand out"
    running = await page(queue="line", state="taken")
    assert [job.worker for job in running] == ["w30", "w60", "w90"] and all(job.taken_at for job in running)

    await app.enqueue("line3")
    [other] = await store.take("line3", 1)
    for job in (taken[2], taken[0], other, taken[1]):
        await store.settle([Bury(job.lease, "no")])
        before = await now_of(store)
        while await now_of(store) == before:  # each in a millisecond of its own
            await asyncio.sleep(0.001)
    assert [job.id for job in await page(state="dead")] == [taken[1].id, other.id, taken[0].id, taken[2].id]
