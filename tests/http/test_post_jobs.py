"""`POST /jobs`, the second path of `POST /api/v1/jobs`: which queue a job gets, and what it does not open."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, tokens
from accoda.operations import jobs
from accoda.operations.new_jobs import NewJobRequest
from accoda.runtime.heartbeat import PREFIX, Heartbeat, encode

REPORT = {
    "name": "Scheduled Report",
    "type": "report.generate",
    "payload": {"reportId": "monthly"},
    "scheduledAt": "2100-01-05T10:00:00Z",
}
"""The request of a scheduler that knows no queues."""
PATHS = ("/jobs", "/api/v1/jobs")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def reporting_app() -> App:
    app = App("memory://")

    @app.handler("reports", type="report.generate")
    async def report(payload: object) -> None: ...

    @app.handler("anything")
    async def anything(payload: object) -> None: ...

    return app


def beat(app: App, id: str, queue: str, *types: str) -> None:
    worker = Heartbeat(id, "default", "host-1", 7, 0, 0, (queue,), 1, types={queue: types})
    asyncio.run(app.storage.write(PREFIX + worker.id, encode(worker), ttl=600))


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service() -> Iterator[ServiceRunner]:
    with ServiceRunner(reporting_app()) as running:
        yield running


def made(service: ServiceRunner, path: str, body: Any, **headers: str) -> dict[str, Any]:
    reply = service.post(path, body, **headers)
    assert reply.status in (200, 201), reply.body
    found: dict[str, Any] = service.get(reply.headers["location"]).json()
    return found


def test_a_job_without_a_queue_goes_where_its_type_is_handled(service: ServiceRunner, path: str) -> None:
    job = made(service, path, REPORT)
    assert (job["queue"], job["type"], job["state"]) == ("reports", "report.generate", "delayed")
    assert (job["name"], job["payload"]) == ("Scheduled Report", {"reportId": "monthly"})
    assert made(service, path, {"scheduledAt": "2025-01-05T10:00:00Z"})["queue"] == "default"
    assert made(service, path, {"type": "mail"})["queue"] == "default", "a handler without a type does not count"
    assert made(service, path, {"queue": "mine", "type": "report.generate"})["queue"] == "mine"


def test_a_running_worker_counts_as_the_service_s_own_handlers_do(service: ServiceRunner, path: str) -> None:
    beat(service.app, "w1", "mails", "mail")
    assert made(service, path, {"type": "mail"})["queue"] == "mails"
    beat(service.app, "w2", "archive", "report.generate")
    reply = service.post(path, REPORT)
    assert (reply.status, reply.json()["field"]) == (422, "queue")
    said = "queue: name one: type report.generate has handlers in several queues, archive, reports"
    assert reply.json()["detail"] == said
    batch = service.post("/api/v1/jobs/batch", {"jobs": [{"type": "mail"}, REPORT]})
    assert (batch.status, batch.json()["field"]) == (422, "jobs[1].queue")


def test_a_job_by_python_has_its_queue_by_the_same_rule() -> None:
    async def make() -> list[str]:
        async with reporting_app() as app:
            requests = [NewJobRequest(type="report.generate"), NewJobRequest()]
            once = await jobs.create_once(app, requests, "key")
            told = [*await jobs.create(app, requests), *once.items]
            return [(await jobs.get(app, each.id)).queue for each in told]

    assert asyncio.run(make()) == ["reports", "default", "reports", "default"]


def test_a_follow_up_has_its_queue_by_the_same_rule(service: ServiceRunner) -> None:
    service.post("/jobs", {"queue": "work"})
    [job] = service.post("/api/v1/queues/work/take", {}).json()["jobs"]
    done = {"lease": job["lease"], "do": "done", "then": [REPORT]}
    assert service.post("/api/v1/queues/work/settle", {"outcomes": [done]}).json() == {"refused": []}
    assert [each["name"] for each in service.get("/api/v1/jobs?queue=reports").json()["items"]] == ["Scheduled Report"]


def test_the_same_request_stays_the_same_whichever_path_and_workers(service: ServiceRunner) -> None:
    first = made(service, "/jobs", {"type": "mail"}, Idempotency_Key="k1")
    beat(service.app, "w1", "mails", "mail")
    again = service.post("/api/v1/jobs", {"type": "mail"}, Idempotency_Key="k1")
    assert (again.json()["id"], again.headers["idempotency-replayed"]) == (first["id"], "true")
    assert service.post("/jobs", {"type": "post"}, Idempotency_Key="k1").json()["type"] == "/docs#key-reused"


def test_it_is_described_once_and_get_is_still_the_page(service: ServiceRunner) -> None:
    document = service.get("/openapi.json").json()
    assert "/jobs" not in document["paths"]
    assert "`POST /jobs` is the same" in document["paths"]["/api/v1/jobs"]["post"]["description"]
    page = service.get("/jobs", Accept=BROWSER)
    assert page.status == 200 and b"<h1>Jobs</h1>" in page.body
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False, dashboard=False)) as plain:
        assert plain.post("/jobs", REPORT).status == 201
        assert plain.get("/jobs").status == 405


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/jobs", 406, "the API has it at /api/v1/jobs"),
        ("HEAD", "/jobs", 406, ""),
        ("GET", "/jobs/17", 406, "the API has it at /api/v1/jobs/17"),
        ("DELETE", "/jobs/17", 405, "the API has it at /api/v1/jobs/17"),
        ("POST", "/queues/emails", 405, "the API has it at /api/v1/queues/emails"),
        ("GET", "/dead", 406, "the API has it at /api/v1/dead"),
        ("GET", "/", 406, "/openapi.json lists its paths"),
        ("GET", "/bulk/no/such", 406, "/openapi.json lists its paths"),
    ],
)
def test_a_program_that_asks_for_a_page_is_told_the_path_of_the_api(
    service: ServiceRunner, method: str, path: str, status: int, said: str
) -> None:
    reply = service.request(method, path, headers={"Accept": "application/json, text/plain, */*"})
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert method == "HEAD" or said in reply.json()["detail"]
    assert status != 405 or reply.headers["allow"] == "GET, HEAD"
    sent = service.request("PUT", path, {"priority": "HIGH"})
    assert (sent.status, sent.headers["content-type"]) == (405, "application/problem+json")


# -- behind the guard


@pytest.fixture(scope="module")
def locked() -> Iterator[tuple[ServiceRunner, dict[str, str]]]:
    app = reporting_app()

    async def make() -> dict[str, str]:
        store = await app.connections.get()
        texts = {name: await tokens.create(store, name, [name], now=0) for name in ("admin", "enqueue", "read")}
        texts["limited"] = await tokens.create(store, "limited", ["enqueue"], queues=["mails", "reports"], now=0)
        return {name: text for name, (_, text) in texts.items()}

    texts = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as service:
        yield service, texts


def test_its_rights_are_those_of_the_api(locked: tuple[ServiceRunner, dict[str, str]], path: str) -> None:
    service, texts = locked

    def post(who: str, body: object = REPORT, **more: str) -> int:
        return service.post(path, body, Authorization=f"Bearer {texts[who]}", **more).status

    assert [post(who) for who in ("admin", "enqueue", "read", "limited")] == [201, 201, 403, 201]
    assert post("limited", {"type": "mail"}) == 403, "default is none of its queues"
    assert service.post(path, REPORT).status == 401
    assert post("enqueue", b"{}", Content_Type="text/plain") == 415
    assert post("enqueue", b"type=mail", Content_Type="application/x-www-form-urlencoded") == 415
    assert post("enqueue", Origin="https://evil.example") == 403


def test_no_cookie_counts_so_no_page_can_make_a_browser_enqueue(
    locked: tuple[ServiceRunner, dict[str, str]], path: str
) -> None:
    service, texts = locked
    cookie = {"Cookie": f"accoda={texts['admin']}"}
    assert service.get("/jobs", Accept=BROWSER, **cookie).status == 200
    for origin in (service.url, "https://evil.example"):
        reply = service.post(path, REPORT, Origin=origin, **cookie)
        assert reply.status in (401, 403) and reply.headers["content-type"] == "application/problem+json"


def test_a_program_with_a_bad_token_is_refused_in_json(locked: tuple[ServiceRunner, dict[str, str]]) -> None:
    service, _ = locked
    reply = service.get("/jobs", Accept="application/json", Authorization="Bearer nonsense")
    assert (reply.status, reply.headers["content-type"]) == (401, "application/problem+json")
    assert service.get("/jobs", Accept="application/json").status == 406
