"""What may be said of lanes in code, and what is refused."""

import time
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from proof.service import ServiceRunner

import accoda
from accoda import App, InvalidInput, Lanes, Waiter
from accoda.demand.waiters import Entry
from accoda.flows.graph import NodeSpec
from accoda.http.options import ServiceOptions
from accoda.schedules import Schedule


def handler() -> None: ...


def declared(app: App, queue: str = "q") -> Lanes | None:
    return app.handlers[queue].options.lanes


def test_a_number_is_short_for_a_limit() -> None:
    app = App("memory://")
    app.handler("q", lanes=2)(handler)
    assert declared(app) == Lanes(limit=2)
    app.handler("paused", lanes=0)(handler)
    assert declared(app, "paused") == Lanes(limit=0)


def test_lanes_hold_for_a_queue_whichever_handler_says_them() -> None:
    app = App("memory://")
    app.handler("q", type="a")(handler)
    app.handler("q", type="b", lanes=Lanes(limit=2))(handler)
    app.handler("q", type="c", lanes=2)(handler)
    assert declared(app) == Lanes(limit=2)
    with pytest.raises(InvalidInput, match="it holds for the whole queue, so say it once"):
        app.handler("q", type="d", lanes=3)(handler)


@pytest.mark.parametrize("wrong", ["2", 2.5, True, {"limit": 2}, [Lanes()]])
def test_what_is_no_rule_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"lanes: must be Lanes\(limit=2\), say, or a limit for each lane, not"):
        App("memory://").handler("q", lanes=wrong)(handler)
    with pytest.raises(InvalidInput, match="limit: must be 0 to 10000, or None"):
        App("memory://").handler("q", lanes=-1)(handler)
    for field in ("limits", "weights"):
        with pytest.raises(InvalidInput, match=f"{field}: must be a mapping such as {{'customer-7': 2}}, not"):
            Lanes(**{field: wrong} if not isinstance(wrong, dict) else {field: 7})


def test_fair_lanes_of_an_aging_queue_are_refused() -> None:
    app = App("memory://")
    with pytest.raises(InvalidInput, match=r"lanes: cannot be fair with policy='aging'.*; use policy='strict'"):
        app.handler("q", policy="aging", lanes=Lanes(fair=True))(handler)
    app.handler("q", type="a", policy="aging", lanes=Lanes(limit=2))(handler)
    app.handler("r", type="a", policy="aging")(handler)
    with pytest.raises(InvalidInput, match="cannot be fair"):
        app.handler("r", type="b", lanes=Lanes(fair=True))(handler)
    app.handler("s", type="a", lanes=Lanes(fair=True))(handler)
    with pytest.raises(InvalidInput, match="cannot be fair"):
        app.handler("s", type="b", policy="aging")(handler)


@pytest.mark.parametrize("wrong", ["", "a\nb", "x" * 129, 7, "\ud800"])
async def test_a_wrong_lane_is_refused_wherever_it_is_said(wrong: Any) -> None:
    app = App("memory://")
    demand = app.demand("d")
    said = "lane: must be 1 to 128 printable characters, not"
    with pytest.raises(InvalidInput, match=said):
        await app.enqueue("q", lane=wrong)
    with pytest.raises(InvalidInput, match=said):
        await app.enqueue_many("q", [1], lane=wrong)
    with pytest.raises(InvalidInput, match=f"node 'q': {said}"):
        app.flow("f").add("q", lane=wrong)
    with pytest.raises(InvalidInput, match=said):
        Schedule(name="s", queue="q", every=1, lane=wrong)
    with pytest.raises(InvalidInput, match=said):
        await demand.request("key", Waiter("w"), lane=wrong)
    with pytest.raises(InvalidInput, match=said):
        await demand.get("key", lane=wrong)
    with pytest.raises(InvalidInput, match=said):
        app.every(timedelta(minutes=1), queue="q", lane=wrong)(handler)
    assert (await app.storage.stats()).queues == {}


async def test_every_way_to_enqueue_gives_the_lane() -> None:
    app = App("memory://")
    send = app.handler("q", type="mail")(handler)
    await app.enqueue("q", lane="a")
    await app.enqueue_many("q", [None], lane="b")
    await send.enqueue(lane="c")
    await send.enqueue_many([None], lane="d")
    assert app.new_job("q", None, {"lane": "e"}).lane == "e"
    assert [job.lane for job in await app.storage.browse("q", "ready")] == ["a", "b", "c", "d"]


async def test_a_trial_knows_held_jobs() -> None:
    app = App("memory://")
    ran: list[int] = []

    @app.handler("q", lanes=1)
    async def work(n: int) -> None:
        ran.append(n)

    with app.testing() as trial:
        await app.run_until_idle()
        await work.enqueue_many(range(3), lane="a")
        trial.assert_enqueued("q", 2)
        assert [job.payload for job in trial.waiting(work)] == [0, 1, 2]
        assert (await app.storage.stats()).queues["q"].held == 2
        assert await app.run_until_idle() == 3
        assert ran == [0, 1, 2]


async def test_the_result_of_a_held_job_that_is_not_kept_is_refused_at_once() -> None:
    app = App("memory://")
    await app.storage.set_lanes("q", Lanes(limit=0))
    held = await app.enqueue("q", lane="a")
    with pytest.raises(InvalidInput, match="will not be kept"):
        await held.result()


def test_records_without_lanes_are_read() -> None:
    """What an older version has stored."""
    node = ("part", "q", b"", (), "all_done", 2.0, None, None, 0, 0.0, False, False, "job")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(node), type=NodeSpec).lane is None
    entry = (0, "w", "pro", None, None, b"\xc0", None)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=Entry).lane is None


def test_the_names_are_public() -> None:
    for name in ("Lanes", "LaneInfo", "LanesInfo"):
        assert name in accoda.__all__ and getattr(accoda, name).__module__ == "accoda.model"


def test_the_lane_of_a_job_comes_over_http() -> None:
    app = App("memory://")
    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as service:
        made = service.post("/api/v1/jobs", {"queue": "q", "lane": "customer-7 ☂"})
        assert made.status == 201
        many = {"jobs": [{"queue": "q", "lane": "b"}, {"queue": "q"}]}
        assert service.post("/api/v1/jobs/batch", many).status == 201
        lanes = [job["lane"] for job in service.get("/api/v1/jobs?queue=q").json()["items"]]
        assert sorted(lanes, key=str) == [None, "b", "customer-7 ☂"]
        for wrong in ("", "a\nb", "x" * 129, 7):
            refused = service.post("/api/v1/jobs", {"queue": "q", "lane": wrong})
            assert refused.status in (400, 422) and b"lane" in refused.body, refused.body


def test_the_nodes_of_a_flow_over_http_have_lanes() -> None:
    app = App("memory://")
    with ServiceRunner(app, ServiceOptions()) as service:
        wanted = {"name": "f", "nodes": [{"name": "one", "queue": "q", "lane": "a"}]}
        assert service.post("/api/v1/flows", wanted).status == 201
        deadline = time.monotonic() + 10
        while not (found := service.get("/api/v1/jobs?queue=q").json()["items"]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert found[0]["lane"] == "a"
