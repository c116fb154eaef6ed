"""`/api/v1/flows`: start a flow with JSON, look at it, stop and repair it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from proof.service import Reply, ServiceRunner

from accoda import App, Bury, Done, ManualClock
from accoda.flows.coordinator import Coordinator
from accoda.flows.model import FlowState
from accoda.http.flow_metrics import FlowMetrics, flow_metrics_of
from accoda.http.options import ServiceOptions
from accoda.operations.bulk import bulk_runner

FLOWS = "/api/v1/flows"
CARD = "4111-1111-1111-1111"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_900_000_000_000)


@pytest.fixture
def service(clock: ManualClock) -> Iterator[ServiceRunner]:
    app = App("memory://", clock=clock)

    @app.handler("payments", secret=("card",))
    async def charge(order: dict[str, Any]) -> dict[str, Any]: ...

    with ServiceRunner(app, ServiceOptions(system_jobs=False, max_batch=50)) as running:
        yield running


def order(key: str | None = "order-17", **more: Any) -> dict[str, Any]:
    nodes = [
        {"name": "charge", "queue": "payments", "payload": {"order": 17, "card": CARD}},
        {"name": "reserve", "queue": "stock", "type": "part", "payload": 17, "after": ["charge"], "maxRetries": 2},
        {"name": "ship", "queue": "parcels", "after": ["reserve"], "priority": "HIGH", "delay": 60},
        {"name": "refund", "queue": "payments", "payload": {}, "after": ["reserve"], "when": "any_dead"},
    ]
    return {"name": "order", "nodes": nodes, **({} if key is None else {"key": key}), **more}


def do(service: ServiceRunner, work: Callable[[App], Awaitable[Any]]) -> Any:
    async def done() -> Any:
        return await work(service.app)

    return asyncio.run(done())


def finish(service: ServiceRunner, queue: str, result: bytes | None = None, bury: str | None = None) -> None:
    """Do the ready jobs of a queue, and let their flows go on."""

    async def work(app: App) -> None:
        jobs = await app.storage.take(queue, 100)
        await app.storage.settle([Bury(j.lease, bury) if bury else Done(j.lease, result=result) for j in jobs])
        await moved(app)

    do(service, work)


async def moved(app: App) -> None:
    while await Coordinator().run_once(app.storage):
        pass


def move(service: ServiceRunner) -> None:
    do(service, moved)


def states(service: ServiceRunner, id: str = "order-17") -> dict[str, str]:
    return {node["name"]: node["state"] for node in service.get(f"{FLOWS}/{id}").json()["nodes"]}


def problem(reply: Reply) -> tuple[int, str, str]:
    told = reply.json()
    return reply.status, told.get("field", ""), told["detail"]


def test_a_flow_is_started_with_json_and_runs(service: ServiceRunner) -> None:
    made = service.post(FLOWS, order())
    assert (made.status, made.headers["location"]) == (201, f"{FLOWS}/order-17")
    assert (made.json()["id"], made.json()["what"]) == ("order-17", "created")
    assert "no worker" in made.json()["warning"] or "no running worker" in made.json()["warning"]
    move(service)
    assert states(service) == {"charge": "ready", "reserve": "waiting", "ship": "waiting", "refund": "waiting"}
    finish(service, "payments", b"\x81\xa4paid\xc3")
    finish(service, "stock")
    assert states(service) == {"charge": "done", "reserve": "done", "ship": "delayed", "refund": "skipped"}
    flow = service.get(f"{FLOWS}/order-17").json()
    assert (flow["state"], flow["ended"], flow["total"], flow["nodesNext"]) == ("running", 3, 4, None)
    nodes = {node["name"]: node for node in flow["nodes"]}
    assert (nodes["charge"]["result"], nodes["reserve"]["after"]) == ({"paid": True}, ["charge"])
    assert (nodes["reserve"]["type"], nodes["refund"]["when"]) == ("part", "any_dead")


def test_a_key_starts_a_flow_once(service: ServiceRunner) -> None:
    assert service.post(FLOWS, order()).status == 201
    again = service.post(FLOWS, order())
    assert (again.status, again.json()["what"]) == (200, "kept")
    move(service)
    assert len(service.get("/api/v1/jobs?queue=payments").json()["items"]) == 1
    other = [service.post(FLOWS, order(None)).json()["id"] for _ in range(2)]
    assert len({"order-17", *other}) == 3


def test_an_id_of_any_text_is_found_by_its_location(service: ServiceRunner) -> None:
    made = service.post(FLOWS, order("Bestellung 17 ü"))
    assert service.get(made.headers["location"]).json()["id"] == "Bestellung 17 ü"


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"nodes": []}, "nodes", ""),
        ({"nodes": [{"name": "a", "queue": "q", "after": ["b"]}]}, "nodes[0].after", "there is no node 'b'"),
        ({"nodes": [{"name": "a", "queue": "q", "after": ["a"]}]}, "nodes[0].after", "cycle"),
        ({"nodes": [{"name": "a", "queue": "q"}] * 2}, "nodes[1].name", "already"),
        ({"nodes": [{"name": "a/b", "queue": "q"}]}, "nodes[0].name", "control character"),
        ({"nodes": [{"name": "a", "queue": "q", "when": "any_dead"}]}, "nodes[0].when", "needs nodes before it"),
        ({"nodes": [{"name": "a", "queue": "q", "when": "sometimes"}]}, "nodes[0].when", "all_done"),
        ({"nodes": [{"name": "a", "queue": "accoda.flows"}]}, "nodes[0].queue", "system queue"),
        ({"nodes": [{"name": "a", "queue": "q", "key": "k"}]}, "nodes[0].key", "no such field"),
        (
            {"nodes": [{"name": "a", "queue": "q", "delay": 1, "scheduledAt": "2030-01-01T00:00:00Z"}]},
            "nodes[0].delay",
            "either delay or scheduledAt",
        ),
        ({"name": ""}, "name", ""),
        ({"deadline": "2030-01-01T00:00:00Z", "expiresIn": 5}, "expiresIn", "either deadline or expiresIn"),
        ({"deadline": "soon"}, "deadline", "2030-01-01"),
        ({"nodes": [{"name": str(n), "queue": "q"} for n in range(51)]}, "nodes", "at most 50"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    service: ServiceRunner, change: dict[str, Any], field: str, said: str
) -> None:
    status, named, detail = problem(service.post(FLOWS, order() | change))
    assert (status, named) == (413 if "at most" in said else 422, field)
    assert said in detail and "node 'a':" not in detail
    assert service.get(f"{FLOWS}/order-17").status == 404, "nothing was stored"


def test_a_deadline_is_a_moment_or_a_time_and_some_nodes_run_only_at_the_end(
    service: ServiceRunner, clock: ManualClock
) -> None:
    nodes = [{"name": "work", "queue": "q"}, {"name": "tidy", "queue": "tidying", "when": "on_cancel"}]
    service.post(FLOWS, {"name": "night", "key": "n", "expiresIn": 3600, "nodes": nodes})
    service.post(FLOWS, {"name": "day", "key": "d", "deadline": "2090-01-01T00:00:00Z", "nodes": nodes})
    move(service)
    assert service.get(f"{FLOWS}/d").json()["deadline"] == "2090-01-01T00:00:00.000Z"
    assert service.get(f"{FLOWS}/n").json()["deadline"] is not None
    assert states(service, "n")["tidy"] == "waiting"
    cancelled = service.post(f"{FLOWS}/n/cancel")
    assert (cancelled.status, cancelled.json()["id"]) == (202, "n")
    move(service)
    clock.advance(1)
    move(service)
    assert states(service, "n") == {"work": "cancelled", "tidy": "ready"}


def test_lists_come_in_pages_and_are_filtered(service: ServiceRunner) -> None:
    for number in range(5):
        service.post(FLOWS, order(f"order-{number}"))
    service.post(FLOWS, {"name": "other", "key": "other", "nodes": [{"name": "a", "queue": "q"}]})
    ids, next = [], None
    while True:
        page = service.get(f"{FLOWS}?limit=2" + (f"&cursor={next}" if next else "")).json()
        ids += [flow["id"] for flow in page["items"]]
        next = page["next"]
        if next is None:
            break
    assert ids == [*(f"order-{number}" for number in range(5)), "other"]
    assert [flow["id"] for flow in service.get(f"{FLOWS}?name=other").json()["items"]] == ["other"]
    assert service.get(f"{FLOWS}?state=failed").json() == {"items": [], "next": None}
    assert problem(service.get(f"{FLOWS}?state=faild"))[:2] == (422, "state")
    assert problem(service.get(f"{FLOWS}?cursor=nonsense"))[:2] == (422, "cursor")
    job_cursor = service.get("/api/v1/jobs?all=true&limit=1").json()["next"]
    assert problem(service.get(f"{FLOWS}?cursor={job_cursor}"))[:2] == (422, "cursor")


def test_the_nodes_of_a_large_flow_come_in_pages(service: ServiceRunner) -> None:
    nodes = [{"name": f"n{number}", "queue": "q"} for number in range(25)]
    service.post(FLOWS, {"name": "many", "key": "many", "nodes": nodes})
    names, after = [], ""
    while True:
        page = service.get(f"{FLOWS}/many?nodesLimit=10{after}").json()
        names += [node["name"] for node in page["nodes"]]
        if page["nodesNext"] is None:
            break
        after = f"&nodesAfter={page['nodesNext']}"
    assert names == [node["name"] for node in nodes]
    assert problem(service.get(f"{FLOWS}/many?nodesAfter=x"))[:2] == (422, "nodesAfter")


def test_secrets_of_results_and_errors_are_hidden_as_those_of_jobs(service: ServiceRunner) -> None:
    service.post(FLOWS, order())
    move(service)
    finish(service, "payments", msgspec.msgpack.encode({"card": "1234", "paid": True}))
    reply = service.get(f"{FLOWS}/order-17")
    assert reply.json()["nodes"][0]["result"]["card"] == "•••"
    service.post(FLOWS, order("order-18"))
    move(service)
    finish(service, "payments", bury=f"ValueError: the card {CARD} was refused")
    assert CARD.encode() not in service.get(f"{FLOWS}/order-18").body
    told = service.get(f"{FLOWS}/order-18/nodes/reserve/why")
    assert CARD.encode() not in told.body
    assert "charge (dead: " in told.json()["line"] and "•••" in told.json()["line"]


def test_why_says_what_a_node_waits_for(service: ServiceRunner) -> None:
    service.post(FLOWS, order())
    move(service)
    told = service.get(f"{FLOWS}/order-17/nodes/reserve/why").json()
    assert (told["state"], told["line"], told["jobId"]) == ("waiting", "waits for 1 of 1: charge (ready)", None)
    stored = service.get(f"{FLOWS}/order-17/nodes/charge/why").json()
    answer = service.get(f"/api/v1/jobs/{stored['jobId']}/why").json()
    assert (answer["flow"], answer["node"]) == ("order-17", "charge")
    assert service.get(f"{FLOWS}/order-17/nodes/packing/why").status == 404


def test_a_job_names_its_flow(service: ServiceRunner) -> None:
    service.post(FLOWS, order())
    move(service)
    [job] = service.get("/api/v1/jobs?queue=payments").json()["items"]
    assert (job["flow"], job["node"]) == ("order-17", "charge")
    id = service.post("/api/v1/jobs", {"queue": "stock"}).json()["id"]
    alone = service.get(f"/api/v1/jobs/{id}").json()
    assert (alone["flow"], alone["node"]) == (None, None)


def test_retry_revives_the_dead_jobs_of_a_flow(service: ServiceRunner) -> None:
    service.post(FLOWS, order())
    move(service)
    assert service.post(f"{FLOWS}/order-17/retry").status == 409
    finish(service, "payments", bury="no money")
    assert service.get(f"{FLOWS}/order-17").json()["state"] == "failed"
    assert service.post(f"{FLOWS}/order-17/cancel").status == 409, "it has ended"
    assert service.post(f"{FLOWS}/order-17/retry").json() == {"count": 1}
    move(service)
    assert states(service)["charge"] == "ready"


def test_a_bulk_revival_lets_a_flow_go_on(service: ServiceRunner, clock: ManualClock) -> None:
    service.post(FLOWS, order())
    move(service)
    finish(service, "payments", bury="no money")
    clock.advance(1)  # jobs that come in later are spared
    asked = {"action": "retry", "filter": {"queue": "payments", "state": "dead"}}
    assert service.post("/api/v1/jobs/bulk", asked).status == 202

    async def run(app: App) -> None:
        while await bulk_runner(app).run_once(app.storage):
            pass
        await moved(app)

    do(service, run)
    assert (states(service)["charge"], service.get(f"{FLOWS}/order-17").json()["state"]) == ("ready", "running")


@pytest.mark.parametrize("how", ["purge", "delete", "cancel"])
def test_a_flow_does_not_wait_for_a_member_that_was_taken_away(service: ServiceRunner, how: str) -> None:
    service.post(FLOWS, order())
    move(service)
    [job] = service.get("/api/v1/jobs?queue=payments").json()["items"]
    path = {"purge": "/api/v1/queues/payments/purge", "cancel": f"/api/v1/jobs/{job['id']}/cancel"}
    if how == "delete":
        assert service.request("DELETE", f"/api/v1/jobs/{job['id']}").status == 204
    else:
        assert service.post(path[how], {"state": "ready"} if how == "purge" else None).status in (200, 204)
    move(service)
    assert service.get(f"{FLOWS}/order-17").json()["state"] == "failed"
    assert states(service)["charge"] == ("cancelled" if how == "cancel" else "removed")


def test_close_is_for_an_open_batch_alone(service: ServiceRunner) -> None:
    service.post(FLOWS, order())
    assert service.post(f"{FLOWS}/order-17/close").status == 409

    async def begin(app: App) -> None:
        await app.batch("import", key="import-7").__aenter__()

    do(service, begin)
    assert service.get(f"{FLOWS}/import-7").json()["open"] is True
    assert service.post(f"{FLOWS}/import-7/close").status == 202
    move(service)
    assert service.get(f"{FLOWS}/import-7").json()["state"] == "done"


def test_an_unknown_flow_is_not_found(service: ServiceRunner) -> None:
    for method, path in (
        ("GET", ""),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("POST", "/close"),
        ("GET", "/nodes/a/why"),
    ):
        reply = service.request(method, f"{FLOWS}/nothing{path}")
        assert (reply.status, "there is no flow 'nothing'" in reply.json()["detail"]) == (404, True)


def test_records_of_flows_are_not_changed_as_jobs(service: ServiceRunner) -> None:
    service.post(FLOWS, order())
    [record] = service.get("/api/v1/jobs?queue=accoda.flows.log&all=true").json()["items"]
    for method, path in (("DELETE", ""), ("POST", "/cancel"), ("POST", "/retry")):
        assert service.request(method, f"/api/v1/jobs/{record['id']}{path}").status == 409
    for state in ("delayed", "ready"):
        assert service.post("/api/v1/queues/accoda.flows.log/purge", {"state": state}).status == 409
        assert service.post("/api/v1/queues/accoda.flows/purge", {"state": state}).status == 409
    assert "never run" in service.get(f"/api/v1/jobs/{record['id']}/why").json()["line"]
    assert service.get(f"{FLOWS}/order-17").status == 200


def test_the_metrics_page_has_the_flows_of_the_store_and_the_ends_that_the_service_saw_to(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)
    ended = threading.Event()
    known = flow_metrics_of(app)

    def end(name: str, state: FlowState, seconds: float) -> None:
        FlowMetrics.ended(known, name, state, seconds)
        ended.set()

    known.ended = end  # type: ignore[method-assign]
    with ServiceRunner(app, ServiceOptions(system_jobs=True)) as service:
        service.post(FLOWS, {"name": "one", "nodes": [{"name": "a", "queue": "q"}]})
        [job] = service.post("/api/v1/queues/q/take", {"wait": 30}).json()["jobs"]
        service.post("/api/v1/queues/q/settle", {"outcomes": [{"do": "done", "lease": job["lease"]}]})
        assert ended.wait(30)
        page = service.get("/metrics").body.decode()
    samples = {
        (sample.name, sample.labels.get("state"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["accoda_flows", "done", None] == 1
    assert samples["accoda_flows", "running", None] == 0
    assert samples["accoda_flows_ended_total", "done", None] == 1
    assert samples["accoda_flow_duration_seconds_count", "done", None] == 1
    assert samples["accoda_flow_duration_seconds_bucket", "done", "+Inf"] == 1
    assert samples["accoda_flow_duration_seconds_sum", "done", None] >= 0


async def test_flows_are_not_counted_again_for_every_look_at_the_page() -> None:
    known = FlowMetrics()
    async with App("memory://") as app:
        assert (await known.counts(app.storage))["running"] == 0
        flow = app.flow("one")
        flow.add("q")
        await flow.start()
        assert (await known.counts(app.storage))["running"] == 0, "as it was a moment ago"
