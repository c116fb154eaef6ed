"""`/api/v1/jobs` over a real server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from proof.service import ServiceRunner

from accoda import App, Bury, Done
from accoda.http.options import ServiceOptions
from accoda.runtime.heartbeat import PREFIX, Heartbeat, encode

JOB = {"queue": "emails", "payload": {"to": "anna@example.com"}}


@pytest.fixture
def service() -> Iterator[ServiceRunner]:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False, max_batch=5)) as running:
        yield running


@pytest.fixture(scope="module")
def refusing() -> Iterator[ServiceRunner]:
    """For what is refused: nothing is stored, so the tests may share it."""
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False)) as running:
        yield running


def finish(service: ServiceRunner, queue: str = "emails", *, result: bytes | None = None, reason: str = "") -> None:
    """Do what a worker does with the next job."""

    async def work() -> None:
        [job] = await service.app.storage.take(queue, 1)
        outcome = Bury(job.lease, reason) if reason else Done(job.lease, result=result)
        assert not await service.app.storage.settle([outcome])

    asyncio.run(work())


def test_a_job_is_created_and_found_at_its_location(service: ServiceRunner) -> None:
    made = service.post("/api/v1/jobs", {**JOB, "priority": "HIGH", "name": "Welcome", "maxRetries": 5})
    assert (made.status, made.json()["what"]) == (201, "created")
    job = service.get(made.headers["location"]).json()
    assert (job["queue"], job["state"], job["priority"], job["name"]) == ("emails", "ready", "HIGH", "Welcome")
    assert (job["payload"], job["maxRetries"], job["id"]) == (JOB["payload"], 5, made.json()["id"])
    assert job["createdAt"].endswith("Z")


def test_a_type_is_stored_shown_and_filtered_by(service: ServiceRunner) -> None:
    jobs = [{"queue": "work"}, {"queue": "work", "type": "mail"}, {"queue": "work", "type": "report.generate"}]
    ids = [each["id"] for each in service.post("/api/v1/jobs/batch", {"jobs": jobs}).json()["items"]]
    assert [service.get(f"/api/v1/jobs/{id}").json()["type"] for id in ids] == [None, "mail", "report.generate"]
    assert [job["id"] for job in service.get("/api/v1/jobs?type=report.generate").json()["items"]] == [ids[2]]
    assert service.get("/api/v1/jobs?type=report").json()["items"] == [], "the whole type is matched"
    bulk = {"action": "delete", "filter": {"type": "mail"}, "dryRun": True}
    assert service.post("/api/v1/jobs/bulk", bulk).json() == {"n": 1, "exact": True}


def test_a_key_that_is_held_gives_200_and_the_job_that_holds_it(service: ServiceRunner) -> None:
    first = service.post("/api/v1/jobs", {**JOB, "key": "k"})
    second = service.post("/api/v1/jobs", {**JOB, "key": "k"})
    assert (first.status, second.status) == (201, 200)
    assert second.json() == {**first.json(), "what": "kept"}


def test_a_key_that_is_enqueued_again_may_change_the_priority(service: ServiceRunner) -> None:
    first = service.post("/api/v1/jobs", {**JOB, "key": "k", "priority": "LOW", "payload": "first"})
    again = {**JOB, "key": "k", "priority": "CRITICAL", "payload": "second", "onDuplicate": "rerank"}
    second = service.post("/api/v1/jobs", again)
    assert (second.status, second.json()) == (200, {**first.json(), "what": "kept"})
    job = service.get(f"/api/v1/jobs/{first.json()['id']}").json()
    assert (job["rank"], job["payload"]) == (0, "first")


def test_a_queue_or_type_that_no_running_worker_handles_is_named(service: ServiceRunner) -> None:
    async def beat() -> None:
        types = {"work": ["report.generate", "mail"]}
        worker = Heartbeat("w1", "default", "host-1", 7, 0, 0, ("emails", "work"), 1, types=types)
        await service.app.storage.write(PREFIX + worker.id, encode(worker), ttl=600)

    asyncio.run(beat())

    def warning(*jobs: dict[str, str]) -> str | None:
        said: str | None = service.post("/api/v1/jobs/batch", {"jobs": jobs}).json().get("warning")
        return said

    assert warning({"queue": "emails"}, {"queue": "emails", "type": "any"}, {"queue": "work", "type": "mail"}) is None
    one = service.post("/api/v1/jobs", {"queue": "emials"})
    assert one.json()["warning"] == "no running worker handles queue emials; did you mean emails?"
    assert warning({"queue": "emails"}, {"queue": "quite-another"}) == "no running worker handles queue quite-another"
    typo = {"queue": "work", "type": "report.genrate"}
    assert warning(typo) == "no running worker handles type report.genrate of queue work; did you mean report.generate?"
    assert "jobs without a type of queue work; its types are mail, report.generate" in (
        warning({"queue": "work"}) or ""
    )
    service.post("/api/v1/queues/quite-another/take", {})
    assert warning({"queue": "quite-another"}) is None, "a worker over the HTTP API asks for its jobs"


def test_a_batch_is_stored_whole_in_the_order_of_the_request(service: ServiceRunner) -> None:
    made = service.post("/api/v1/jobs/batch", {"jobs": [{"queue": name} for name in ("a", "b", "a")]})
    ids = [each["id"] for each in made.json()["items"]]
    assert made.status == 201
    assert [service.get(f"/api/v1/jobs/{id}").json()["queue"] for id in ids] == ["a", "b", "a"]


def test_a_batch_with_one_bad_job_stores_nothing_and_names_its_field(service: ServiceRunner) -> None:
    jobs = [JOB, JOB, JOB, {**JOB, "priority": "SOON"}]
    refused = service.post("/api/v1/jobs/batch", {"jobs": jobs})
    assert (refused.status, refused.json()["field"]) == (422, "jobs[3].priority")
    assert "CRITICAL" in refused.json()["detail"]
    assert service.get("/api/v1/jobs").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"queue": ""}, "queue"),
        ({"queue": "a", "type": ""}, "type"),
        ({"queue": "a", "type": "a\nb"}, "type"),
        ({"queue": "no spaces"}, "queue"),
        ({"queue": "accoda.schedules"}, "queue"),
        ({**JOB, "delay": 1, "scheduledAt": "2030-01-01T00:00:00Z"}, "delay"),
        ({**JOB, "scheduledAt": "2030-01-01T00:00:00"}, "scheduledAt"),
        ({**JOB, "onDuplicate": "keep"}, "onDuplicate"),
        ({**JOB, "webhookOn": ["done"]}, "webhookOn"),
        ({**JOB, "key": "a\0b"}, "key"),
        ({**JOB, "maxRetries": -1}, "maxRetries"),
        ({**JOB, "cost": 1.5}, "cost"),
        ({**JOB, "webhookOn": ["soon"], "webhookUrl": "https://example.com"}, "webhookOn[0]"),
        ({**JOB, "prioritty": "HIGH"}, "prioritty"),
    ],
)
def test_what_is_wrong_with_a_job_is_named_as_it_was_sent(
    refusing: ServiceRunner, body: dict[str, Any], field: str
) -> None:
    refused = refusing.post("/api/v1/jobs", body)
    assert (refused.status, refused.json()["field"]) == (422, field)
    batch = refusing.post("/api/v1/jobs/batch", {"jobs": [body]})
    assert (batch.status, batch.json()["field"]) == (422, f"jobs[0].{field}")
    assert refusing.get("/api/v1/jobs").json()["items"] == []


def test_an_integer_may_be_written_with_a_point(service: ServiceRunner) -> None:
    made = service.post("/api/v1/jobs", b'{"queue": "emails", "cost": 3.0, "maxRetries": 5.0, "payload": 2.0}')
    job = service.get(made.headers["location"]).json()
    assert (job["cost"], job["maxRetries"]) == (3, 5)


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1])
def test_an_integer_that_could_only_be_stored_rounded_is_refused(refusing: ServiceRunner, number: int) -> None:
    body = f'{{"queue": "emails", "payload": {{"deep": [{number}]}}}}'.encode()
    refused = refusing.post("/api/v1/jobs", body)
    assert (refused.status, refused.json()["field"]) == (422, "payload")


def test_the_largest_integers_are_stored_as_they_are(service: ServiceRunner) -> None:
    most = [(1 << 64) - 1, -(1 << 63)]
    path = service.post("/api/v1/jobs", {"queue": "emails", "payload": most}).headers["location"]
    assert service.get(path).json()["payload"] == most


def test_too_many_jobs_in_a_batch_are_refused(service: ServiceRunner) -> None:
    refused = service.post("/api/v1/jobs/batch", {"jobs": [JOB] * 6})
    assert (refused.status, refused.json()["field"]) == (413, "jobs")


def test_the_same_request_with_the_same_key_is_done_once(service: ServiceRunner) -> None:
    first = service.post("/api/v1/jobs", JOB, idempotency_key="order-1")
    again = service.post("/api/v1/jobs", JOB, idempotency_key="order-1")
    assert (first.status, again.status) == (201, 201)
    assert (again.json(), again.headers["location"]) == (first.json(), first.headers["location"])
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert len(service.get("/api/v1/jobs").json()["items"]) == 1


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "é", "x" * 256])
def test_an_idempotency_key_that_not_everybody_carries_unchanged_is_refused(refusing: ServiceRunner, key: str) -> None:
    refused = refusing.post("/api/v1/jobs", JOB, idempotency_key=key)
    assert (refused.status, refused.json()["field"]) == (422, "Idempotency-Key")


def test_a_key_with_another_body_is_refused(service: ServiceRunner) -> None:
    service.post("/api/v1/jobs/batch", {"jobs": [JOB]}, idempotency_key="order-1")
    refused = service.post("/api/v1/jobs/batch", {"jobs": [JOB, JOB]}, idempotency_key="order-1")
    assert (refused.status, refused.json()["type"]) == (422, "/docs#key-reused")


def test_pages_lead_through_all_jobs_once(service: ServiceRunner) -> None:
    for _ in range(3):
        service.post("/api/v1/jobs/batch", {"jobs": [JOB, JOB, {"queue": "reports", "delay": 60}]})
    found: list[int] = []
    cursor = ""
    while True:
        page = service.get(f"/api/v1/jobs?limit=2{cursor}").json()
        found += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(found) == list(range(1, 10))
    delayed = service.get("/api/v1/jobs?state=delayed&queue=reports").json()["items"]
    assert {job["queue"] for job in delayed} == {"reports"}
    assert len(delayed) == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=ten", "limit"),
        ("state=gone", "state"),
        ("cursor=x", "cursor"),
        ("colour=red", "colour"),
        ("limit=1&limit=2", "limit"),
        ("all=yes", "all"),
        ("queue=", "queue"),
    ],
)
def test_a_query_that_cannot_be_used_names_its_parameter(refusing: ServiceRunner, query: str, field: str) -> None:
    refused = refusing.get(f"/api/v1/jobs?{query}")
    assert (refused.status, refused.json()["field"]) == (422, field)


def test_jobs_are_changed_cancelled_retried_and_deleted(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", JOB).headers["location"]
    assert service.request("PATCH", path, {"priority": "LOW"}).json()["priority"] == "LOW"
    assert service.request("PUT", f"{path}/progress", {"fraction": 0.5, "message": "half"}).status == 204
    assert service.get(path).json()["progress"] == {"fraction": 0.5, "message": "half"}
    assert service.post(f"{path}/retry").status == 409
    finish(service, reason="no such address")
    assert service.post(f"{path}/cancel").status == 409
    assert service.post(f"{path}/retry").json()["state"] == "ready"
    assert service.post(f"{path}/cancel").status == 204
    assert service.post(f"{path}/cancel").status == 404
    other = service.post("/api/v1/jobs", JOB).headers["location"]
    assert (service.request("DELETE", other).status, service.get(other).status) == (204, 404)


def test_a_cancelled_job_is_shown_for_as_long_as_it_is_kept(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", {**JOB, "keepFor": 60}).headers["location"]
    assert service.post(f"{path}/cancel").status == 204
    job = service.get(path)
    assert (job.status, job.json()["state"]) == (200, "cancelled")
    result = service.get(f"{path}/result?wait=10")
    assert (result.status, result.json()["type"]) == (409, "/docs#cancelled")
    assert [service.post(f"{path}/{verb}").status for verb in ("cancel", "retry")] == [409, 409]
    assert len(service.get("/api/v1/jobs?state=cancelled").json()["items"]) == 1
    assert service.post(f"/api/v1/queues/{JOB['queue']}/purge", {"state": "cancelled"}).json() == {"count": 1}
    assert service.get(path).status == 404


def test_a_result_is_there_when_the_job_is_done(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", {**JOB, "keepFor": 60}).headers["location"]
    waiting = service.get(f"{path}/result")
    assert (waiting.status, waiting.json()["state"]) == (202, "ready")
    finish(service, result=b"\xa2ok")
    done = service.get(f"{path}/result")
    assert (done.status, done.json()) == (200, {"id": 1, "state": "done", "result": "ok"})


def test_a_dead_job_has_a_reason_instead_of_a_result(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", {**JOB, "keepFor": 60}).headers["location"]
    finish(service, reason="no such address")
    dead = service.get(f"{path}/result?wait=10")
    assert (dead.status, dead.json()["type"], dead.json()["reason"]) == (409, "/docs#dead", "no such address")


def test_waiting_for_a_result_that_will_not_be_kept_is_refused(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", JOB).headers["location"]
    refused = service.get(f"{path}/result?wait=10")
    assert (refused.status, "keepFor" in refused.json()["detail"]) == (409, True)


def test_a_caller_that_waits_for_a_result_gets_it_when_it_comes(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", {**JOB, "keepFor": 60}).headers["location"]
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(service.get(f"{path}/result?wait=30")))
    waiter.start()
    wait_until(lambda: len(service.service.polls) == 1)
    finish(service, result=b"\x07")
    waiter.join(10)
    assert (found[0].status, found[0].json()["result"]) == (200, 7)


def test_a_waiting_caller_is_answered_at_once_when_the_service_stops(service: ServiceRunner) -> None:
    path = service.post("/api/v1/jobs", {**JOB, "keepFor": 60}).headers["location"]
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(service.get(f"{path}/result?wait=60")))
    waiter.start()
    wait_until(lambda: len(service.service.polls) == 1)
    service.stop()
    waiter.join(10)
    assert (found[0].status, found[0].json()["state"]) == (202, "ready")


def wait_until(fact: Any) -> None:
    """The other side is another thread's event loop, which gives no signal."""
    for _ in range(1000):
        if fact():
            return
        time.sleep(0.005)
    raise AssertionError("it did not come true in 5 s")
