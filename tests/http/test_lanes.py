"""Lanes over HTTP: rules and counts, changes, jobs of a lane; lanes have any printable name."""

import asyncio
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions

PATH = "/api/v1/queues/mails/lanes"
NAMES = ("customer-7", "东京 书店", "a&b=c?#%", "né'\"<b>", "🦊", "x" * 128)


@pytest.fixture
def service() -> Iterator[ServiceRunner]:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False)) as running:
        yield running


def enqueue(service: ServiceRunner, *lanes: str) -> None:
    jobs = [{"queue": "mails", "lane": lane} for lane in lanes]
    assert service.post("/api/v1/jobs/batch", {"jobs": jobs}).status == 201


def patch(service: ServiceRunner, **changes: object) -> dict[str, object]:
    reply = service.request("PATCH", PATH, changes)
    assert reply.status == 200, reply.body
    found: dict[str, object] = reply.json()
    return found


def test_lanes_are_shown_changed_and_reset(service: ServiceRunner) -> None:
    enqueue(service, "a", "a", "a", "b")
    shown = patch(service, limit=1, weights={"b": 2}, byCost=True)
    assert shown["rules"] == {
        "limit": 1, "limits": {}, "fair": False, "weights": {"b": 2.0}, "byCost": True, "total": None,
        "shared": None,
    }  # fmt: skip
    assert [each["held"] for each in service.get(PATH).json()["lanes"]] == [2, 0]
    assert service.get(f"{PATH}?limit=1").json()["count"] == 2
    assert patch(service, limits={"a": None})["held"] == 0
    assert service.request("DELETE", f"{PATH}?lane=a").json()["held"] == 2
    assert service.request("DELETE", PATH).json()["rules"] is None


def test_limits_are_shared_with_other_queues_and_no_longer(service: ServiceRunner) -> None:
    assert service.post("/api/v1/jobs", {"queue": "news", "lane": "a"}).status == 201
    assert service.request("PATCH", "/api/v1/queues/news/lanes", {"limit": 1, "shared": "github"}).status == 200
    enqueue(service, "a")
    shown = patch(service, shared="github")
    assert (shown["held"], shown["sharedWith"]) == (1, ["news"])
    assert "has its 1 of 1 in queues mails and news" in service.get("/api/v1/jobs/2/why").json()["line"]
    shown = patch(service, shared=None)
    assert (shown["held"], shown["sharedWith"]) == (0, [])


def test_a_token_for_some_queues_cannot_share_limits_and_sees_no_others() -> None:
    from accoda.http.security import Security, tokens

    app = App("memory://")

    async def make() -> str:
        await app.enqueue("mails", lane="a")
        for queue in ("mails", "news"):
            await app.lanes.change(queue, shared="github")
        _, text = await tokens.create(app.storage, "one", ["admin"], now=0, queues=["mails"])
        return text

    text = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as service:
        mine = {"Authorization": f"Bearer {text}"}
        assert service.get(PATH, **mine).json()["sharedWith"] == []
        assert service.request("PATCH", PATH, {"shared": "other"}, headers=mine).status == 403
        reply = service.request("PATCH", PATH, {"limit": 3, "shared": None}, headers=mine)
        assert (reply.status, reply.json()["rules"]["shared"]) == (200, None)


@pytest.mark.parametrize("name", NAMES)
def test_a_lane_has_any_printable_name(service: ServiceRunner, name: str) -> None:
    enqueue(service, name, name, "other")
    patch(service, limits={name: 1})
    (held,) = service.get(f"/api/v1/jobs?state=held&lane={quote(name, safe='')}").json()["items"]
    assert (held["lane"], held["state"]) == (name, "held")
    assert "has its 1 of 1" in service.get(f"/api/v1/jobs/{held['id']}/why").json()["line"]
    assert service.request("DELETE", f"{PATH}?lane={quote(name, safe='')}").json()["held"] == 0


def test_held_jobs_are_counted(service: ServiceRunner) -> None:
    enqueue(service, "a", "a")
    patch(service, limit=1)
    assert service.get("/api/v1/queues/mails").json()["held"] == 1
    assert service.get("/api/v1/metrics/overview").json()["totals"]["held"] == 1
    assert 'queue_jobs{queue="mails",queue_num="",state="held"} 1.0' in service.get("/metrics").body.decode()
    (taken,) = service.post("/api/v1/queues/mails/take", {"count": 5}).json()["jobs"]
    assert taken["lane"] == "a"


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("GET", f"{PATH}?limit=1001", None, "limit"),
        ("DELETE", f"{PATH}?lane=%0a", None, "lane"),
        ("DELETE", f"{PATH}?lane=", None, "lane"),
        ("GET", "/api/v1/jobs?lane=%7f", None, "lane"),
        ("PATCH", PATH, {"limit": -1}, "limit"),
        ("PATCH", PATH, {"limit": 10_001}, "limit"),
        ("PATCH", PATH, {"lmit": 1}, "lmit"),
        ("PATCH", PATH, {"limits": {"a": 1.5}}, "limits[...]"),
        ("PATCH", PATH, {"limits": {"a\n": 1}}, "lane"),
        ("PATCH", PATH, {"limits": {"x" * 129: 1}}, "limits"),
        ("PATCH", PATH, {"weights": {"a": 0}}, "weights[...]"),
        ("PATCH", PATH, {"fair": None}, "fair"),
        ("PATCH", PATH, {"shared": "no name"}, "shared"),
        ("PATCH", PATH, {"shared": ""}, "shared"),
        ("POST", "/api/v1/jobs", {"queue": "mails", "lane": "\u202e"}, "lane"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(
    service: ServiceRunner, method: str, path: str, body: object, field: str
) -> None:
    enqueue(service, "a")
    reply = service.request(method, path, body)
    assert reply.status == 422, reply.body
    assert reply.json()["field"].startswith(field), reply.body
    assert service.get(PATH).json()["rules"] is None


def test_an_unknown_queue_is_not_found(service: ServiceRunner) -> None:
    assert service.get("/api/v1/queues/never/lanes").status == 404
    assert service.request("PATCH", "/api/v1/queues/never/lanes", {}).status == 404
