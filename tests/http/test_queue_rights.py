"""Tokens for queues: every operation with a token for its queue, for another one, and for all of them."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zlib import crc32

import msgspec
import pytest
from click.testing import CliRunner
from proof.service import Reply, ServiceRunner

from accoda import App
from accoda.cli.commands import accoda
from accoda.errors import InvalidInput
from accoda.http.operation import Operation
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, tokens
from accoda.http.table import operations

V1 = "/api/v1"


class World:
    """A service with jobs in `emails` and `reports`, and tokens: `own` has emails, `other` has reports, `all` all."""

    def __init__(self, service: ServiceRunner, texts: dict[str, str]) -> None:
        self.service = service
        self.texts = texts

    def ask(self, who: str, method: str, path: str, body: Any = None) -> Reply:
        return self.service.request(method, path, body, headers={"Authorization": f"Bearer {self.texts[who]}"})

    def make(self, method: str, path: str, body: Any = None) -> Any:
        reply = self.ask("all", method, V1 + path, body)
        assert reply.status < 300, reply.body
        return reply.json()

    def job(self, queue: str = "emails", **more: Any) -> int:
        return int(self.make("POST", "/jobs", {"queue": queue, **more})["id"])

    def taken(self, queue: str = "emails", **more: Any) -> tuple[int, str]:
        """A running job, and its lease."""
        self.make("POST", f"/queues/{queue}/purge", {"state": "ready"})
        self.job(queue, **more)
        [job] = self.make("POST", f"/queues/{queue}/take", {})["jobs"]
        return job["id"], job["lease"]

    def settled(self, queue: str, outcome: dict[str, Any], **more: Any) -> int:
        id, lease = self.taken(queue, **more)
        assert (
            self.make("POST", f"/queues/{queue}/settle", {"outcomes": [{"lease": lease, **outcome}]})["refused"] == []
        )
        return id

    def dead(self, queue: str = "emails") -> int:
        return self.settled(queue, {"do": "bury", "reason": f"no {queue}"})

    def schedule(self, queue: str = "emails") -> str:
        self.make("PUT", f"/schedules/every-{queue}", {"queue": queue, "every": 3600})
        return f"every-{queue}"

    def flow(self, queue: str = "emails") -> str:
        node = {"name": "send", "queue": queue}
        return str(self.make("POST", "/flows", {"name": "mailing", "nodes": [node]})["id"])

    def bulk(self, queue: str = "emails") -> str:
        return str(
            self.make("POST", "/jobs/bulk", {"action": "delete", "filter": {"queue": queue, "state": "done"}})["id"]
        )

    def delivery(self, queue: str = "emails") -> int:
        self.settled(queue, {"do": "done"}, webhookUrl="https://example.com/hooks")
        return int(self.make("GET", "/webhooks/deliveries")["items"][0]["id"])


class Case(NamedTuple):
    """How an operation is asked about `emails`, and what it is.

    one: about one queue; `other` is refused. list: each token sees its own. all: about the whole store; tokens for
    queues are refused. open: for everyone.
    """

    kind: Literal["one", "list", "all", "open"]
    path: Callable[[World], str] | None = None
    body: Callable[[World], Any] | None = None
    status: int = 200


def of(make: Callable[[World], Any], path: str) -> Callable[[World], str]:
    return lambda world: path.format(make(world))


def outcomes(world: World) -> Any:
    return {"outcomes": [{"do": "done", "lease": world.taken()[1]}]}


def nothing(world: World) -> Any:
    return {}


def filtered(world: World) -> Any:
    return {"action": "cancel", "filter": {"queue": "emails"}}


WANTED = {"key": "a", "waiter": "anna"}
SPEC = {"queue": "emails", "every": 60}
JOB, DEAD, SCHEDULE = f"{V1}/jobs/{{}}", f"{V1}/dead/{{}}", f"{V1}/schedules/{{}}"
FLOW = f"{V1}/flows/{{}}"
MAILING = {"name": "mailing", "nodes": [{"name": "send", "queue": "emails"}]}

CASES = {
    "POST /api/v1/jobs": Case("one", body=lambda _: {"queue": "emails"}, status=201),
    "POST /api/v1/jobs/batch": Case(
        "one", body=lambda _: {"jobs": [{"queue": "emails", "type": "welcome"}]}, status=201
    ),
    "GET /api/v1/jobs": Case("list"),
    "GET /api/v1/jobs/{id}": Case("one", of(World.job, JOB)),
    "DELETE /api/v1/jobs/{id}": Case("one", of(World.job, JOB), status=204),
    "PATCH /api/v1/jobs/{id}": Case("one", of(World.job, JOB), lambda _: {"priority": "HIGH"}),
    "POST /api/v1/jobs/{id}/cancel": Case("one", of(World.job, JOB + "/cancel"), status=204),
    "POST /api/v1/jobs/{id}/retry": Case("one", of(World.dead, JOB + "/retry")),
    "PUT /api/v1/jobs/{id}/progress": Case("one", of(World.job, JOB + "/progress"), lambda _: {"fraction": 1}, 204),
    "GET /api/v1/jobs/{id}/result": Case("one", of(lambda world: world.job(keepFor=60), JOB + "/result"), status=202),
    "GET /api/v1/jobs/{id}/why": Case("one", of(World.job, JOB + "/why")),
    "GET /api/v1/jobs/{id}/runs": Case("one", of(World.job, JOB + "/runs")),
    "POST /api/v1/jobs/bulk": Case("one", body=filtered, status=202),
    "GET /api/v1/jobs/bulk": Case("list"),
    "GET /api/v1/jobs/bulk/{id}": Case("one", of(World.bulk, f"{V1}/jobs/bulk/{{}}")),
    "POST /api/v1/jobs/bulk/{id}/stop": Case("one", of(World.bulk, f"{V1}/jobs/bulk/{{}}/stop")),
    "GET /api/v1/queues": Case("list"),
    "GET /api/v1/queues/{name}": Case("one"),
    "GET /api/v1/queues/{name}/history": Case("one"),
    "GET /api/v1/queues/{name}/lanes": Case("one"),
    "PATCH /api/v1/queues/{name}/lanes": Case("one", body=nothing),
    "DELETE /api/v1/queues/{name}/lanes": Case("one"),
    "POST /api/v1/queues/{name}/pause": Case("one", body=nothing),
    "POST /api/v1/queues/{name}/resume": Case("one"),
    "POST /api/v1/queues/{name}/purge": Case("one", body=lambda _: {"state": "done"}),
    "POST /api/v1/queues/{name}/take": Case("one", body=nothing),
    "POST /api/v1/queues/{name}/settle": Case("one", body=outcomes),
    "POST /api/v1/queues/{name}/extend": Case("one", body=lambda world: {"leases": [world.taken()[1]]}),
    "GET /api/v1/dead": Case("list"),
    "GET /api/v1/dead/groups": Case("list"),
    "GET /api/v1/dead/{id}": Case("one", of(World.dead, DEAD)),
    "DELETE /api/v1/dead/{id}": Case("one", of(World.dead, DEAD), status=204),
    "POST /api/v1/dead/{id}/replay": Case("one", of(World.dead, DEAD + "/replay")),
    "DELETE /api/v1/dead": Case("one", lambda _: f"{V1}/dead?queue=emails"),
    "POST /api/v1/dead/replay": Case("one", body=lambda world: {"ids": [world.dead()]}),
    "POST /api/v1/flows": Case("one", body=lambda _: MAILING, status=201),
    "GET /api/v1/flows": Case("all"),
    "GET /api/v1/flows/{id}": Case("one", of(World.flow, FLOW)),
    "POST /api/v1/flows/{id}/cancel": Case("one", of(World.flow, FLOW + "/cancel"), status=202),
    "POST /api/v1/flows/{id}/retry": Case("one", of(World.flow, FLOW + "/retry"), status=409),  # none is dead
    "POST /api/v1/flows/{id}/close": Case("one", of(World.flow, FLOW + "/close"), status=409),  # it is no batch
    "GET /api/v1/flows/{id}/nodes/{name}/why": Case("one", of(World.flow, FLOW + "/nodes/send/why")),
    "POST /api/v1/schedules": Case("one", body=lambda world: {"name": f"n{world.job()}", **SPEC}, status=201),
    "GET /api/v1/schedules": Case("list"),
    "GET /api/v1/schedules/{name}": Case("one", of(World.schedule, SCHEDULE)),
    "PUT /api/v1/schedules/{name}": Case("one", of(World.schedule, SCHEDULE), lambda _: SPEC),
    "PATCH /api/v1/schedules/{name}": Case("one", of(World.schedule, SCHEDULE), lambda _: {"every": 90}),
    "DELETE /api/v1/schedules/{name}": Case("one", of(World.schedule, SCHEDULE), status=204),
    "POST /api/v1/schedules/{name}/trigger": Case("one", of(World.schedule, SCHEDULE + "/trigger"), status=201),
    "POST /api/v1/schedules/{name}/pause": Case("one", of(World.schedule, SCHEDULE + "/pause")),
    "POST /api/v1/schedules/{name}/resume": Case("one", of(World.schedule, SCHEDULE + "/resume")),
    "GET /api/v1/webhooks/deliveries": Case("list"),
    "GET /api/v1/webhooks/deliveries/{id}": Case("one", of(World.delivery, f"{V1}/webhooks/deliveries/{{}}")),
    "POST /api/v1/webhooks/deliveries/{id}/redeliver": Case(
        "one",
        of(World.delivery, f"{V1}/webhooks/deliveries/{{}}/redeliver"),
        status=409,  # it is about to be sent
    ),
    "GET /api/v1/workers": Case("all"),
    "POST /api/v1/workers/{id}/drain": Case("all", lambda _: f"{V1}/workers/w/drain", status=404),
    "POST /api/v1/workers/{id}/undrain": Case("all", lambda _: f"{V1}/workers/w/undrain", status=404),
    "GET /api/v1/budgets": Case("all"),
    "GET /api/v1/budgets/{name}": Case("all", lambda _: f"{V1}/budgets/b", status=404),
    "GET /api/v1/budgets/{name}/history": Case("all", lambda _: f"{V1}/budgets/b/history"),
    "GET /api/v1/demands": Case("list"),
    "GET /api/v1/budgets/{name}/log": Case("all", lambda _: f"{V1}/budgets/b/log", status=404),
    "GET /api/v1/demands/{name}": Case("one", lambda _: f"{V1}/demands/deals"),
    "POST /api/v1/demands/{name}/request": Case("one", lambda _: f"{V1}/demands/deals/request", lambda _: WANTED),
    "POST /api/v1/demands/{name}/leave": Case("one", lambda _: f"{V1}/demands/deals/leave", lambda _: WANTED),
    "GET /api/v1/demands/{name}/waiters": Case("one", lambda _: f"{V1}/demands/deals/waiters?key=a"),
    "GET /api/v1/jobs/{id}/waiters": Case("one", of(World.job, JOB + "/waiters")),
    "GET /api/v1/metrics/overview": Case("all"),
    "GET /api/v1/metrics/history": Case("all"),
    "GET /metrics": Case("list"),
    "GET /health/live": Case("open"),
    "GET /health/ready": Case("open"),
    "GET /openapi.json": Case("open"),
    "GET /docs": Case("open"),
    "GET /docs/page.css": Case("open"),
    "GET /docs/page.js": Case("open"),
}


def name(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    app = App("memory://")
    app.demand("deals")
    app.demand("offers")
    app.budget("keepa", capacity=20, refill=20, per=60)
    limits: dict[str, tuple[str, ...]] = {"own": ("emails", "deals"), "other": ("reports", "offers"), "all": ()}

    async def make() -> dict[str, str]:
        made = {}
        for who, queues in limits.items():
            made[who] = (await tokens.create(app.storage, who, ["admin"], now=0, queues=queues))[1]
        for scope in ("enqueue", "work"):
            made[scope] = (await tokens.create(app.storage, scope, [scope], now=0, queues=["reports"]))[1]
        return made

    texts = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as running:
        world = World(running, texts)
        for queue in ("emails", "reports"):
            world.schedule(queue), world.bulk(queue), world.delivery(queue), world.dead(queue)
        yield world


def test_every_operation_has_a_case_and_every_case_an_operation() -> None:
    assert set(CASES) == set(map(name, operations()))


@pytest.mark.parametrize("operation", operations(), ids=name)
def test_a_token_reaches_its_own_queues_alone(world: World, operation: Operation) -> None:
    case = CASES[name(operation)]
    path, body = case.path or (lambda _: operation.path.replace("{name}", "emails")), case.body or (lambda _: None)
    if case.kind == "list":
        for queue in ("emails", "reports"):
            world.job(queue)
    replies = {}
    for who in ("other", "own", "all"):  # what the first one is refused is there for the next
        replies[who] = world.ask(who, operation.method, path(world), body(world))
    match case.kind:
        case "one" | "open":
            assert (replies["own"].status, replies["all"].status) == (case.status, case.status), replies["own"].body
        case "all":
            assert (replies["own"].status, replies["all"].status) == (403, case.status)
        case "list":
            seen = {who: {q for q in (*OWN, *OTHER) if q.encode() in reply.body} for who, reply in replies.items()}
            assert seen["own"] and seen["own"] <= OWN and seen["other"] and seen["other"] <= OTHER
            assert seen["all"] == seen["own"] | seen["other"]
    if case.kind in ("one", "all"):
        assert (replies["other"].status, replies["other"].json()["queues"]) == (403, ["offers", "reports"])
        assert "offers, reports" in replies["other"].json()["detail"]
    if case.kind == "open":
        assert replies["other"].status == case.status


OWN, OTHER = {"emails", "deals"}, {"reports", "offers"}


# -- what a table of single requests does not show


def test_a_refused_change_changes_nothing(world: World) -> None:
    id = world.job(key="order-7", payload={"from": "the other producer"})
    for body in (
        {"queue": "emails", "key": "order-7", "onDuplicate": "replace", "payload": "mine"},
        {"jobs": [{"queue": "reports"}, {"queue": "emails", "key": "order-7", "onDuplicate": "replace"}]},
    ):
        before = world.make("GET", "/queues/reports")["total"]
        reply = world.ask("enqueue", "POST", f"{V1}/jobs/batch" if "jobs" in body else f"{V1}/jobs", body)
        assert (reply.status, reply.json()["queues"]) == (403, ["reports"])
        assert world.make("GET", "/queues/reports")["total"] == before  # all or none
    assert world.make("GET", f"/jobs/{id}")["payload"] == {"from": "the other producer"}
    for method, path in (("DELETE", f"/jobs/{id}"), ("POST", f"/jobs/{id}/cancel")):
        assert world.ask("other", method, V1 + path).status == 403
    assert world.make("GET", f"/jobs/{id}")["state"] == "ready"


def test_a_flow_with_one_job_of_another_queue_is_out_of_reach(world: World) -> None:
    nodes = [{"name": "count", "queue": "reports"}, {"name": "send", "queue": "emails", "after": ["count"]}]
    asked = {"name": "monthly", "key": "monthly-1", "nodes": nodes}
    assert world.ask("own", "POST", f"{V1}/flows", asked).status == 403
    world.make("POST", "/flows", asked)
    for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/nodes/send/why")):
        assert world.ask("own", method, f"{V1}/flows/monthly-1{path}").status == 403
    taken = world.ask("own", "POST", f"{V1}/flows", {**MAILING, "key": "monthly-1"})
    assert taken.status == 403, "the key of a flow that is out of reach gives no way to it"
    assert world.make("GET", "/flows/monthly-1")["name"] == "monthly"


def test_a_worker_enqueues_no_follow_up_in_another_queue(world: World) -> None:
    id, lease = world.taken("reports")
    then = {"outcomes": [{"do": "done", "lease": lease, "then": [{"queue": "emails"}]}]}
    reply = world.ask("work", "POST", f"{V1}/queues/reports/settle", then)
    assert (reply.status, reply.json()["queues"]) == (403, ["reports"])
    assert world.make("GET", f"/jobs/{id}")["state"] == "taken"
    then["outcomes"][0]["then"] = [{"queue": "reports"}]
    assert world.ask("work", "POST", f"{V1}/queues/reports/settle", then).json() == {"refused": []}


@pytest.mark.parametrize("verb", ["settle", "extend"])
def test_a_lease_that_is_made_up_for_a_job_of_another_queue_is_lost(world: World, verb: str) -> None:
    id, lease = world.taken("emails")
    # A lease is no secret, and its checksum keeps no one from writing another queue into it.
    record = msgspec.msgpack.encode(["reports", *msgspec.msgpack.decode(urlsafe_b64decode(lease + "==")[:-4])[1:]])
    forged = urlsafe_b64encode(record + crc32(record).to_bytes(4, "big")).decode().rstrip("=")
    body = {"outcomes": [{"do": "done", "lease": forged}]} if verb == "settle" else {"leases": [forged]}
    reply = world.ask("work", "POST", f"{V1}/queues/reports/{verb}", body)
    assert [one["why"] for one in reply.json()["refused"]] == ["lost"]
    assert world.make("GET", f"/jobs/{id}")["state"] == "taken"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs/bulk", {"action": "cancel", "filter": {"state": "ready"}}),
        ("POST", "/jobs/bulk", {"action": "cancel", "filter": {"state": "ready"}, "dryRun": True}),
        ("POST", "/dead/replay", {"filter": {"fingerprint": "0123456789ab"}}),
        ("POST", "/dead/replay", {"filter": {}, "dryRun": True}),
        ("GET", "/jobs?queue=reports", None),
        ("GET", "/dead?queue=reports", None),
        ("GET", "/dead/groups?queue=reports", None),
        ("GET", "/queues/accoda.webhooks", None),
        ("PUT", "/schedules/every-reports", SPEC),  # it would take the place of another queue's schedule
        ("PUT", "/schedules/every-emails", {"queue": "reports", "every": 60}),
        ("PATCH", "/schedules/every-emails", {"queue": "reports"}),
    ],
)
def test_what_is_not_about_its_own_queues_is_refused(world: World, method: str, path: str, body: Any) -> None:
    for queue in ("emails", "reports"):
        world.schedule(queue)
    reply = world.ask("own", method, V1 + path, body)
    assert (reply.status, reply.json()["queues"]) == (403, ["deals", "emails"])


def test_dead_letters_of_several_queues_are_revived_only_if_all_are_its_own(world: World) -> None:
    ids = [world.dead("emails"), world.dead("reports")]
    assert world.ask("own", "POST", f"{V1}/dead/replay", {"ids": ids}).status == 403
    assert [world.make("GET", f"/jobs/{id}")["state"] for id in ids] == ["dead", "dead"]


def test_a_cursor_leads_into_no_other_queue(world: World) -> None:
    for _ in range(3):
        world.job("reports")
    cursor = world.make("GET", "/jobs?queue=reports&limit=1")["next"]
    reply = world.ask("own", "GET", f"{V1}/jobs?cursor={cursor}")
    assert {job["queue"] for job in reply.json()["items"]} <= OWN


@pytest.mark.parametrize("path", ["/", "/queues/emails", "/jobs", "/live?page=/", "/do/pause"])
def test_the_dashboard_is_for_tokens_of_all_queues(world: World, path: str) -> None:
    assert world.ask("own", "GET", path).status == 403
    assert world.ask("own", "GET", "/static/accoda.js").status == 200


def test_the_login_takes_no_token_that_is_limited_to_queues(world: World) -> None:
    headers = {"Origin": world.service.url, "Content-Type": "application/x-www-form-urlencoded"}
    for who, status in (("own", 403), ("all", 303)):
        reply = world.service.request("POST", "/login", f"token={world.texts[who]}".encode(), headers=headers)
        assert (reply.status, "set-cookie" in reply.headers) == (status, who == "all")


def test_budgets_are_in_the_metrics_of_all_queues_alone(world: World) -> None:
    shown = {who: b"keepa" in world.ask(who, "GET", "/metrics").body for who in ("own", "all")}
    assert shown == {"own": False, "all": True}


@pytest.mark.parametrize("queues", [["no name"], ["accoda.webhooks"], [""], [f"q{n}" for n in range(101)]])
async def test_a_token_is_made_for_queues_of_users(queues: list[str]) -> None:
    async with App("memory://") as app:
        with pytest.raises(InvalidInput, match="queue"):
            await tokens.create(app.storage, "ci", ["read"], now=0, queues=queues)
        assert await tokens.list_all(app.storage) == []


def test_the_command_line_makes_and_lists_them(tmp_path: Path) -> None:
    url = ("--url", f"sqlite:///{tmp_path / 'jobs.db'}")
    run = CliRunner().invoke
    made = run(accoda, ["tokens", "create", "shop", "--scope", "enqueue", "--queue", "emails", "--queue", "b", *url])
    assert made.exit_code == 0, made.output
    assert "b, emails" in run(accoda, ["tokens", *url]).stdout
    [shown] = msgspec.json.decode(run(accoda, ["tokens", "list", "--json", *url]).stdout)
    assert shown["queues"] == ["b", "emails"]
