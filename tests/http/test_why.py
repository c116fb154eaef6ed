"""`GET /api/v1/jobs/{id}/why` and the notes of pauses, over a real server."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from proof.service import ServiceRunner

from accoda import App, Retry
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, tokens


@pytest.fixture
def service() -> Iterator[ServiceRunner]:
    app = App("memory://")

    @app.handler("cards", secret=("card",))
    async def charge(payload: dict[str, Any]) -> None: ...

    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as running:
        yield running


def test_a_job_that_waits_says_why(service: ServiceRunner) -> None:
    first, second = (service.post("/api/v1/jobs", {"queue": "emails"}).json()["id"] for _ in range(2))
    told = service.get(f"/api/v1/jobs/{second}/why").json()
    assert (told["id"], told["position"], told["state"], told["start"]) == (second, 2, "ready", None)
    assert told["line"] == "no worker is running"
    gates = {gate["name"]: gate for gate in told["gates"]}
    assert gates["line"]["facts"]["ahead"] == 1 and gates["paused"]["verdict"] == "open"
    assert isinstance(gates["delayed"]["facts"]["at"], str) and told["at"].endswith("Z")
    assert service.get(f"/api/v1/jobs/{first}/why").json()["position"] == 1


def test_a_pause_has_a_note(service: ServiceRunner) -> None:
    id = service.post("/api/v1/jobs", {"queue": "emails"}).json()["id"]
    service.post("/api/v1/queues/emails/pause", {"for": 600, "note": "the mail server is being moved"})
    (paused,) = [gate for gate in service.get(f"/api/v1/jobs/{id}/why").json()["gates"] if gate["name"] == "paused"]
    assert paused["verdict"] == "shut" and paused["facts"]["note"] == "the mail server is being moved"
    assert service.post("/api/v1/queues/emails/pause", {"note": "x" * 501}).status == 422


def test_what_is_secret_of_an_error_is_hidden(service: ServiceRunner) -> None:

    id = service.post("/api/v1/jobs", {"queue": "cards", "payload": {"card": "4111 1111"}}).json()["id"]

    async def fail() -> None:
        (job,) = await service.app.storage.take("cards", 1)
        await service.app.storage.settle([Retry(job.lease, delay=60, reason="card 4111 1111 was refused")])

    asyncio.run(fail())
    told = service.get(f"/api/v1/jobs/{id}/why").body
    assert b"4111" not in told and b"was refused" in told


def test_a_job_that_is_not_there_is_a_404(service: ServiceRunner) -> None:
    told = service.get("/api/v1/jobs/999/why")
    assert told.status == 404 and "job 999 is not stored" in told.json()["detail"]


def test_a_pause_is_noted_with_the_name_of_the_token() -> None:
    app = App("memory://")

    async def prepare() -> str:
        await app.enqueue("emails", 1)
        return (await tokens.create(app.storage, "anna", ["admin"], now=0))[1]

    headers = {"Authorization": f"Bearer {asyncio.run(prepare())}"}
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as service:
        assert service.request("POST", "/api/v1/queues/emails/pause", {}, headers=headers).status == 200
        told = service.request("GET", "/api/v1/jobs/1/why", None, headers=headers).json()["line"]
    assert told.startswith("queue emails is paused by anna since ")
