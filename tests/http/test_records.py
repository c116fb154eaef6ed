"""Bulk changes, histories, runs and drained workers over HTTP."""

import asyncio
from collections.abc import Iterator

import pytest
from proof.service import ServiceRunner

from accoda import App, Bury
from accoda.http.options import ServiceOptions
from accoda.operations.bulk import bulk_runner


@pytest.fixture
def service() -> Iterator[ServiceRunner]:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False)) as running:
        yield running


async def bury(app: App, queue: str, reason: str) -> None:
    store = app.storage
    await store.settle([Bury(job.lease, reason) for job in await store.take(queue, 100)])


async def finish(app: App) -> None:
    while await bulk_runner(app).run_once(app.storage):
        pass


def test_a_bulk_change_from_its_count_to_its_end(service: ServiceRunner) -> None:
    service.post("/api/v1/jobs/batch", {"jobs": [{"queue": "a", "payload": {"n": n}} for n in range(5)]})
    asyncio.run(bury(service.app, "a", "TimeoutError: no answer"))
    asked = {"action": "retry", "filter": {"queue": "a", "error": "timeout"}}
    dry = service.post("/api/v1/jobs/bulk", {**asked, "dryRun": True})
    assert (dry.status, dry.json()) == (200, {"n": 5, "exact": True})
    begun = service.post("/api/v1/jobs/bulk", asked)
    assert begun.status == 202 and begun.json()["state"] == "running"
    assert begun.headers["location"] == f"/api/v1/jobs/bulk/{begun.json()['id']}"
    asyncio.run(finish(service.app))
    ended = service.get(begun.headers["location"]).json()
    assert (ended["state"], ended["matched"], ended["changed"]) == ("finished", 5, 5)
    assert [one["id"] for one in service.get("/api/v1/jobs/bulk").json()["items"]] == [ended["id"]]
    assert service.post(f"{begun.headers['location']}/stop").status == 409


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"action": "retry", "filter": {}}, "filter"),
        ({"action": "explode", "filter": {"queue": "a"}}, "action"),
        ({"action": "priority", "filter": {"queue": "a"}}, "level"),
        ({"action": "retry", "filter": {"queue": "a", "state": "ready"}}, "state"),
        ({"action": "delete", "filter": {"queue": "accoda.schedules"}, "dryRun": True}, "queue"),
        ({"action": "retry", "filter": {"field": "n"}}, "field"),
    ],
)
def test_a_bulk_change_that_cannot_be_meant_is_refused(service: ServiceRunner, asked: object, field: str) -> None:
    refused = service.post("/api/v1/jobs/bulk", asked)
    assert (refused.status, refused.json()["field"]) == (422, field)
    assert service.get("/api/v1/jobs/bulk").json() == {"items": []}


def test_jobs_are_listed_by_key_error_field_and_name(service: ServiceRunner) -> None:
    made = service.post("/api/v1/jobs", {"queue": "a", "payload": {"n": 1}, "key": "k", "name": "Welcome"}).json()
    service.post("/api/v1/jobs", {"queue": "a", "payload": {"n": 2}})
    for query in ("key=k", "field=n%3D1", "name=welc"):
        assert [job["id"] for job in service.get(f"/api/v1/jobs?{query}").json()["items"]] == [made["id"]], query
    asyncio.run(bury(service.app, "a", "KeyError: 'x'"))
    assert len(service.get("/api/v1/jobs?error=keyerror").json()["items"]) == 2
    assert service.get("/api/v1/jobs?field=n").json()["field"] == "field"


def test_a_history_is_there_before_anything_was_recorded(service: ServiceRunner) -> None:
    view = service.get("/api/v1/queues/a/history?span=7d").json()
    assert view["step"] == 1800 and view["done"] == [None] * 336
    assert service.get("/api/v1/queues/a/history?span=1y").status == 422
    assert service.get("/api/v1/budgets/keepa/history").json()["left"] == [None] * 240


def test_what_is_not_there_is_not_found(service: ServiceRunner) -> None:
    assert service.get("/api/v1/jobs/99/runs").status == 404
    assert service.post("/api/v1/workers/nobody/drain").status == 404
    assert service.get("/api/v1/jobs/bulk/0123456789abcdef").status == 404
