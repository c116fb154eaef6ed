"""Queues, dead letters, schedules, webhooks, looks: each operation does what its words say, over a real server."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from proof.service import Reply, ServiceRunner

from accoda import App, Bury, Waiter
from accoda.envelope import Hook
from accoda.http.options import ServiceOptions
from accoda.webhooks.call import Facts, call_job


@pytest.fixture
def service() -> Iterator[ServiceRunner]:
    app = App("memory://")
    app.budget("keepa", capacity=20, refill=20, per=60)

    @app.handler("cards", secret=("card",))
    async def charge(payload: dict[str, Any]) -> None: ...

    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as running:
        yield running


@pytest.fixture(scope="module")
def refusing() -> Iterator[ServiceRunner]:
    """For what is refused: nothing is stored, so the tests may share it."""
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False)) as running:
        yield running


def enqueue(service: ServiceRunner, *queues: str) -> None:
    service.post("/api/v1/jobs/batch", {"jobs": [{"queue": queue} for queue in queues]})


def bury(service: ServiceRunner, queue: str, *reasons: str) -> None:
    async def work() -> None:
        store = service.app.storage
        jobs = await store.take(queue, len(reasons))
        assert not await store.settle([Bury(job.lease, why) for job, why in zip(jobs, reasons, strict=True)])

    asyncio.run(work())


def ids(reply: Reply) -> list[int]:
    return [each["id"] for each in reply.json()["items"]]


# -- queues


def test_queues_are_listed_in_numbers(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails", "reports")
    found = {each["name"]: each["ready"] for each in service.get("/api/v1/queues").json()["items"]}
    assert found == {"cards": 0, "emails": 2, "reports": 1}
    assert service.get("/api/v1/queues/emails").json()["total"] == 2
    assert service.get("/api/v1/queues/nothing").status == 404


def test_system_queues_are_shown_when_asked_for(service: ServiceRunner) -> None:
    service.post("/api/v1/schedules", {"name": "s", "queue": "a", "every": 60})
    names = [each["name"] for each in service.get("/api/v1/queues").json()["items"]]
    every = [each["name"] for each in service.get("/api/v1/queues?all=true").json()["items"]]
    assert ("accoda.schedules" in names, "accoda.schedules" in every) == (False, True)


def test_a_queue_is_paused_for_a_time_until_a_moment_or_until_it_is_resumed(service: ServiceRunner) -> None:
    path = "/api/v1/queues/emails"
    assert service.post(f"{path}/pause").json()["pausedUntil"] is None
    assert service.post(f"{path}/pause", {"for": 60}).json()["pausedUntil"] is not None
    until = service.post(f"{path}/pause", {"until": "2090-01-01T10:00:00+01:00"}).json()["pausedUntil"]
    assert until == "2090-01-01T09:00:00.000Z"
    both = service.post(f"{path}/pause", {"until": "2090-01-01T10:00:00Z", "for": 1})
    assert (both.status, both.json()["field"]) == (422, "for")
    assert service.post(f"{path}/resume").json()["paused"] is False


def test_a_queue_is_emptied_by_state_and_age(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails", "reports")
    old = service.post("/api/v1/queues/emails/purge", {"state": "ready", "before": "2000-01-01T00:00:00Z"})
    assert old.json() == {"count": 0}
    assert service.post("/api/v1/queues/emails/purge", {"state": "ready"}).json() == {"count": 2}
    assert len(ids(service.get("/api/v1/jobs"))) == 1
    assert service.post("/api/v1/queues/accoda.schedules/purge", {"state": "delayed"}).status == 409


# -- dead letters


def test_dead_letters_are_listed_by_what_they_have_in_common(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails", "emails")
    bury(service, "emails", "no user 7", "no user 8", "no order 9")
    groups = service.get("/api/v1/dead/groups").json()["groups"]
    assert [group["count"] for group in groups] == [2, 1]
    found = service.get(f"/api/v1/dead?fingerprint={groups[0]['fingerprint']}")
    assert len(ids(found)) == 2
    assert service.get("/api/v1/dead?queue=reports").json()["items"] == []


def test_one_dead_letter_is_shown_replayed_and_deleted(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails", "emails")
    bury(service, "emails", "a", "b")
    assert service.get("/api/v1/dead/1").json()["reason"] == "a"
    assert service.get("/api/v1/dead/3").status == 404
    assert service.request("DELETE", "/api/v1/dead/3").status == 404
    assert service.post("/api/v1/dead/1/replay").json()["state"] == "ready"
    assert service.request("DELETE", "/api/v1/dead/2").status == 204
    assert ids(service.get("/api/v1/dead")) == []


def test_dead_letters_are_replayed_by_their_ids_or_by_a_filter(service: ServiceRunner) -> None:
    enqueue(service, *["emails"] * 4)
    bury(service, "emails", *["broken"] * 4)
    dry = service.post("/api/v1/dead/replay", {"filter": {"queue": "emails"}, "dryRun": True}).json()
    assert dry == {"matched": 4, "revived": 0, "exact": True}
    assert service.post("/api/v1/dead/replay", {"ids": [1, 99]}).json()["revived"] == 1
    begun = service.post("/api/v1/dead/replay", {"filter": {"queue": "emails"}, "rate": 10})
    assert (begun.status, begun.json()["state"]) == (202, "running")
    assert service.get(begun.headers["location"]).json()["id"] == begun.json()["id"]
    assert [each["id"] for each in service.get("/api/v1/jobs/bulk").json()["items"]] == [begun.json()["id"]]
    assert service.post(f"{begun.headers['location']}/stop").json()["state"] == "stopped"
    assert service.post(f"{begun.headers['location']}/stop").status == 409


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filter"),
        ({"ids": []}, "ids"),
        ({"ids": [1], "rate": 5}, "rate"),
        ({"ids": [1], "dryRun": True}, "dryRun"),
        ({"ids": [1], "filter": {}}, "filter"),
        ({"filter": {}, "rate": 0}, "rate"),
        ({"filter": {"queu": "a"}}, "filter.queu"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(refusing: ServiceRunner, body: dict[str, Any], field: str) -> None:
    refused = refusing.post("/api/v1/dead/replay", body)
    assert (refused.status, refused.json()["field"]) == (422, field)


def test_the_dead_letters_of_a_queue_are_counted_before_they_are_deleted(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails", "reports")
    bury(service, "emails", "a", "b")
    bury(service, "reports", "c")
    assert service.request("DELETE", "/api/v1/dead?queue=emails&dryRun=true").json() == {"count": 2}
    assert service.request("DELETE", "/api/v1/dead?queue=emails").json() == {"count": 2}
    assert ids(service.get("/api/v1/dead")) == [3]
    forgotten = service.request("DELETE", "/api/v1/dead")
    assert (forgotten.status, forgotten.json()["field"]) == (422, "queue")


# -- schedules

DAILY = {"name": "daily", "queue": "reports", "cron": "0 7 * * MON-FRI", "tz": "Europe/Rome", "payload": {"a": 1}}


def test_a_schedule_is_created_in_words_with_its_next_ticks(service: ServiceRunner) -> None:
    made = service.post("/api/v1/schedules", DAILY)
    assert (made.status, made.headers["location"]) == (201, "/api/v1/schedules/daily")
    view = service.get("/api/v1/schedules/daily").json()
    assert (view["words"], view["state"]) == ("at 07:00, Monday to Friday, Europe/Rome", "active")
    assert (len(view["upcoming"]), view["nextAt"]) == (5, view["upcoming"][0])
    assert service.post("/api/v1/schedules", DAILY).status == 409
    assert [each["name"] for each in service.get("/api/v1/schedules").json()["items"]] == ["daily"]


def test_a_schedule_is_changed_in_part_or_as_a_whole(service: ServiceRunner) -> None:
    service.post("/api/v1/schedules", {**DAILY, "priority": "HIGH", "maxRetries": 3})
    part = service.request("PATCH", "/api/v1/schedules/daily", {"every": 60, "maxRetries": None}).json()
    assert (part["every"], part["cron"], part["priority"], part["maxRetries"]) == (60.0, None, "HIGH", None)
    whole = service.request("PUT", "/api/v1/schedules/daily", {"queue": "reports", "every": 30}).json()
    assert (whole["every"], whole["priority"], whole["payload"]) == (30.0, "NORMAL", None)
    assert service.request("PUT", "/api/v1/schedules/new", {"queue": "reports", "every": 30}).json()["name"] == "new"
    assert service.request("PATCH", "/api/v1/schedules/nothing", {"every": 60}).status == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"cron": "61 * * * *"}, "cron"),
        ({"tz": "Europe/Atlantis"}, "tz"),
        ({"every": 60}, "every"),
        ({"queue": "accoda.webhooks"}, "queue"),
        ({"endsAt": "2000-01-01T00:00:00Z"}, "endsAt"),
        ({"webhookUrl": "ftp://example.com"}, "webhookUrl"),
        ({"catchUp": "some"}, "catchUp"),
        ({"when": "soon"}, "when"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named(refusing: ServiceRunner, change: dict[str, Any], field: str) -> None:
    refused = refusing.post("/api/v1/schedules", {**DAILY, **change})
    assert (refused.status, refused.json()["field"]) == (422, field)


def test_a_schedule_is_paused_triggered_and_deleted(service: ServiceRunner) -> None:
    service.post("/api/v1/schedules", DAILY)
    path = "/api/v1/schedules/daily"
    assert service.post(f"{path}/pause").json()["state"] == "paused"
    assert service.post(f"{path}/resume").json()["state"] == "active"
    made = service.post(f"{path}/trigger")
    assert (made.status, service.get(made.headers["location"]).json()["schedule"]) == (201, "daily")
    assert service.request("DELETE", path).status == 204
    for reply in (service.request("DELETE", path), service.post(f"{path}/trigger"), service.get(path)):
        assert reply.status == 404


def test_secret_fields_of_a_schedules_payload_are_hidden(service: ServiceRunner) -> None:
    made = service.post("/api/v1/schedules", {"name": "c", "queue": "cards", "every": 60, "payload": {"card": "4111"}})
    assert made.json()["payload"] == {"card": "•••"}
    assert b"4111" not in service.get("/api/v1/schedules").body


# -- webhooks


def test_calls_are_listed_shown_and_sent_again(service: ServiceRunner) -> None:
    facts = Facts(id=7, queue="emails", attempts=0, created_at=1_700_000_000_000)
    job = call_job(Hook("https://example.com/hooks"), "job.done", facts)

    async def send() -> None:
        await service.app.storage.enqueue([job])

    asyncio.run(send())
    bury(service, "accoda.webhooks", "the answer was 500")
    page = service.get("/api/v1/webhooks/deliveries?state=dead").json()
    assert [(call["url"], call["job"], call["state"]) for call in page["items"]] == [
        ("https://example.com/hooks", 7, "dead")
    ]
    path = f"/api/v1/webhooks/deliveries/{page['items'][0]['id']}"
    assert service.get(path).json()["body"]["type"] == "job.done"
    sent = service.post(f"{path}/redeliver")
    assert (sent.status, sent.headers["location"]) == (202, path)
    assert service.post(f"{path}/redeliver").status == 409
    assert service.get("/api/v1/webhooks/deliveries/999").status == 404
    assert service.get("/api/v1/webhooks/deliveries?limit=1").json()["next"] is None


# -- looks


def test_workers_budgets_demands_and_the_overview_are_shown(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails")
    assert service.get("/api/v1/workers").json() == {"items": []}
    assert [each["name"] for each in service.get("/api/v1/budgets").json()["items"]] == ["keepa"]
    assert service.get("/api/v1/budgets/keepa").json()["capacity"] == 20
    assert service.get("/api/v1/budgets/nothing").status == 404
    assert service.get("/api/v1/demands").json() == {"items": []}
    assert service.get("/api/v1/demands/deals").status == 404
    overview = service.get("/api/v1/metrics/overview").json()
    assert (overview["totals"]["ready"], overview["workers"]) == (2, 0)


def test_the_metrics_page_has_the_depth_of_every_queue(service: ServiceRunner) -> None:
    enqueue(service, "emails", "emails")
    page = service.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = page.body.decode().splitlines()
    assert 'queue_jobs{queue="emails",queue_num="",state="ready"} 2.0' in lines
    assert 'queue_budget_tokens_capacity{budget="keepa"} 20.0' in lines


def test_prometheus_can_read_the_metrics_page(service: ServiceRunner) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    enqueue(service, "emails")
    families = list(parser.text_string_to_metric_families(service.get("/metrics").body.decode()))
    assert {"queue_jobs", "queue_paused", "queue_budget_closed"} <= {family.name for family in families}


def test_a_service_that_lives_and_can_work_says_so(service: ServiceRunner) -> None:
    assert service.get("/health/live").json() == {"status": "live"}
    ready = service.get("/health/ready").json()
    assert (ready["status"], ready["workers"], ready["storage"]["problem"]) == ("ready", 0, None)
    assert ready["storage"]["latency"] < 1


# -- demands and the token log


@pytest.fixture
def deals() -> Iterator[ServiceRunner]:
    app = App("memory://")
    app.budget("keepa")
    demand = app.demand("deals", cost=5, budget="keepa")

    @demand.fetch
    async def fetch(category: str) -> list[int]:
        return [30, 50]

    @demand.deliver
    async def deliver(waiter: Waiter[dict[str, int]], found: list[int]) -> None: ...

    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as running:
        yield running


def test_a_client_joins_and_leaves_a_demand_and_sees_who_waits(deals: ServiceRunner) -> None:
    def ask(verb: str, **body: Any) -> Any:
        reply = deals.post(f"/api/v1/demands/deals/{verb}", {"key": "books", **body})
        assert reply.status == 200, reply.body
        return reply.json()

    first = ask("request", waiter="anna", tier="pro", due="2030-01-01T09:00:00Z", data={"minDiscount": 30})
    assert (first["what"], first["waiters"], first["fetchedAt"]) == ("created", 1, None)
    assert ask("request", waiter="ben", data={})["what"] == "attached"
    anna = {"id": "anna", "tier": "pro", "due": "2030-01-01T09:00:00.000Z", "delivered": True}
    ben = {"id": "ben", "tier": "free", "due": None, "delivered": True}
    assert deals.get("/api/v1/demands/deals/waiters?key=books").json() == {"items": [anna, ben]}
    assert deals.get(f"/api/v1/jobs/{first['id']}/waiters").json() == {"items": [anna, ben]}
    assert deals.get("/api/v1/demands/deals").json()["depth"] == 1
    assert ask("leave", waiter="ben") == {"what": "left"}
    assert ask("leave", waiter="anna") == {"what": "cancelled"}
    assert ask("leave", waiter="anna") == {"what": "absent"}


def test_a_request_gives_its_fetch_a_lane(deals: ServiceRunner) -> None:
    def ask(waiter: str, **body: Any) -> Any:
        wanted = {"key": "books", "waiter": waiter, "data": {}, **body}
        return deals.post("/api/v1/demands/deals/request", wanted).json()

    first = ask("anna", lane="api.example")
    assert ask("ben", lane="other.example")["what"] == "attached"
    assert deals.get(f"/api/v1/jobs/{first['id']}").json()["lane"] == "api.example", "a fetch keeps its own"
    assert (ask("carl", lane="a\n")["status"], ask("carl", lane="")["status"]) == (422, 422)


def test_a_request_that_cannot_be_served_says_why(deals: ServiceRunner) -> None:
    def problem(demand: str, **body: Any) -> tuple[int, str]:
        reply = deals.post(f"/api/v1/demands/{demand}/request", {"key": "books", "waiter": "anna", **body})
        return reply.status, reply.json()["detail"]

    assert problem("offers")[0] == 404 and "--app MODULE:APP" in problem("offers")[1]
    status, said = problem("deals", tier="gold", data={})
    assert (status, said) == (422, "tier: must be one of business, pro, starter, free, not 'gold'")
    status, said = problem("deals", data="cheap")
    assert status == 422 and said.startswith("waiter.data: does not fit what deliver takes")


def test_the_log_of_a_budget_is_read_page_by_page(deals: ServiceRunner) -> None:
    for key in ("books", "toys"):
        deals.post("/api/v1/demands/deals/request", {"key": key, "waiter": "anna", "data": {}})
    asyncio.run(deals.app.run_until_idle(["deals"]))
    first = deals.get("/api/v1/budgets/keepa/log?limit=1").json()
    [line] = first["items"]
    assert (line["operation"], line["key"], line["cost"], line["success"]) == ("deals", "books", 5, True)
    assert line["duration"] >= 0 and line["costs"] == {"keepa": 5}
    [other] = deals.get(f"/api/v1/budgets/keepa/log?after={first['next']}").json()["items"]
    assert other["key"] == "toys"
    assert deals.get("/api/v1/budgets/keepa/log?since=2090-01-01T00:00:00Z").json() == {"items": [], "next": None}
