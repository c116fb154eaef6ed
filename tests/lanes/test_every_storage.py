"""Lanes as an app's code sees them, on every storage."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from tests.runtime.running import running, until

from accoda import App, Batch, Head, Lanes, Priority, StorageFull, Waiter, Worker
from accoda.lanes.rules import declare_all
from accoda.settings import Settings


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


@pytest.fixture
def queue() -> str:
    """The tests share a store, so each has a queue of its own."""
    return f"q-{secrets.token_hex(4)}"


def settings(**knobs: Any) -> Settings:
    return Settings.load(environ={}, overrides=knobs)


class Watched:
    """How many jobs of each lane run at once, and which ran, in order."""

    def __init__(self) -> None:
        self.now: Counter[str | None] = Counter()
        self.most: Counter[str | None] = Counter()
        self.ran: list[Any] = []

    async def run(self, lane: str | None, payload: Any, seconds: float = 0.005) -> None:
        self.now[lane] += 1
        self.most[lane] = max(self.most[lane], self.now[lane])
        await asyncio.sleep(seconds)
        self.now[lane] -= 1
        self.ran.append(payload)


async def test_a_limit_holds_over_all_workers(app: App, queue: str) -> None:
    seen = Watched()

    @app.handler(queue, lanes=Lanes(limit=2, limits={"c": 1}))
    async def work(n: int) -> None:
        await seen.run(app.current.lane, n)

    for lane in ("a", "b", "c"):
        await work.enqueue_many(range(15), lane=lane)
    await work.enqueue_many(range(15))
    busy = settings(concurrency=10)
    async with running(app, settings=busy), running(app, settings=busy):
        await until(lambda: len(seen.ran) == 60)
    assert (seen.most["a"], seen.most["b"], seen.most["c"]) == (2, 2, 1)
    assert seen.most[None] > 2, "a job without a lane has no limit"
    stats = (await app.storage.stats()).queues[queue]
    assert (stats.total, stats.held, stats.done) == (0, 0, 60)


async def test_a_held_job_starts_as_soon_as_a_place_is_free(app: App, queue: str) -> None:
    """Held jobs come in with the settlement of those before them: nobody waits for a look at intervals."""
    ran: list[int] = []

    @app.handler(queue, lanes=1)
    async def work(n: int) -> None:
        ran.append(n)

    await work.enqueue_many(range(100), lane="a")
    async with asyncio.timeout(20), running(app):
        await until(lambda: len(ran) == 100)
    assert ran == list(range(100))


async def test_the_most_urgent_job_of_a_lane_comes_in_first(app: App, queue: str) -> None:
    ran: list[str] = []

    @app.handler(queue, lanes=Lanes(limit=1))
    async def work(what: str) -> None:
        ran.append(what)

    await app.run_until_idle([queue])
    await app.storage.pause(queue, None)
    await work.enqueue("low", lane="a", priority=Priority.LOW)
    await work.enqueue("normal", lane="a")
    await work.enqueue("critical", lane="a", priority=Priority.CRITICAL)
    held = await app.storage.browse(queue, "held")
    assert [job.rank for job in held] == [Priority.NORMAL, Priority.LOW]
    await app.storage.pause(queue, 0)
    await app.run_until_idle([queue])
    assert ran == ["critical", "normal", "low"]


async def test_a_customer_with_many_jobs_delays_others_by_a_turn(app: App, queue: str) -> None:
    ran: list[str] = []

    @app.handler(queue, batch=1, lanes=Lanes(fair=True))
    async def work(batch: Batch[str]) -> None:
        ran.extend(job.payload for job in batch)

    await app.run_until_idle([queue])  # a worker has declared the rules
    await work.enqueue_many(["big"] * 200, lane="big")
    for number in range(50):
        await work.enqueue("small", lane=f"small-{number}")
    await app.run_until_idle([queue])
    assert len(ran) == 250
    assert ran[:52].count("small") == 50


async def test_a_lane_with_twice_the_weight_has_two_jobs_for_one(app: App, queue: str) -> None:
    ran: list[str] = []

    @app.handler(queue, batch=1, lanes=Lanes(fair=True, weights={"gold": 2}))
    async def work(batch: Batch[str]) -> None:
        ran.extend(job.payload for job in batch)

    await app.run_until_idle([queue])
    for _ in range(30):
        for lane in ("gold", "free"):
            await work.enqueue(lane, lane=lane)
    await app.run_until_idle([queue])
    assert Counter(ran[:30]) == {"gold": 20, "free": 10}


async def test_turns_are_taken_within_a_priority_level(app: App, queue: str) -> None:
    ran: list[str] = []

    @app.handler(queue, batch=1, lanes=Lanes(fair=True))
    async def work(batch: Batch[str]) -> None:
        ran.extend(job.payload for job in batch)

    await app.run_until_idle([queue])
    await work.enqueue_many(["normal"] * 5, lane="b")
    await work.enqueue_many(["high a"] * 5, lane="a", priority="HIGH")
    await work.enqueue("high b", lane="b", priority="HIGH")
    await app.run_until_idle([queue])
    assert ran[:6].count("high b") == 1 and ran.index("high b") < 2
    assert ran[6:] == ["normal"] * 5


async def test_no_more_than_the_total_run_at_once(app: App, queue: str) -> None:
    seen = Watched()

    @app.handler(queue, lanes=Lanes(total=3))
    async def work(n: int) -> None:
        await seen.run(None, n)

    await work.enqueue_many(range(20), lane="a")
    await work.enqueue_many(range(20))
    busy = settings(concurrency=10)
    async with running(app, settings=busy), running(app, settings=busy):
        await until(lambda: len(seen.ran) == 40)
    assert seen.most[None] == 3


async def test_types_of_a_queue_share_its_lanes(app: App, queue: str) -> None:
    seen = Watched()

    @app.handler(queue, type="mail", lanes=Lanes(limit=1))
    async def mail(n: int) -> None:
        await seen.run(app.current.lane, "mail")

    @app.handler(queue, type="call")
    async def call(n: int) -> None:
        await seen.run(app.current.lane, "call")

    await mail.enqueue_many(range(5), lane="a")
    await call.enqueue_many(range(5), lane="a")
    async with running(app, settings=settings(concurrency=10)):
        await until(lambda: len(seen.ran) == 10)
    assert seen.most["a"] == 1
    assert Counter(seen.ran) == {"mail": 5, "call": 5}


async def test_a_held_job_is_found_by_its_key(app: App, queue: str) -> None:
    ran: list[str] = []

    @app.handler(queue, lanes=Lanes(limit=1))
    async def deploy(commit: str) -> None:
        ran.append(commit)

    await app.run_until_idle([queue])
    await app.storage.pause(queue, None)
    await deploy.enqueue("first", lane="repo")
    told = [
        await deploy.enqueue(commit, lane="repo", key="repo", on_duplicate="replace")
        for commit in ("one", "two", "three")
    ]
    assert [each.what for each in told] == ["created", "replaced", "replaced"]
    assert (await app.storage.stats()).queues[queue].held == 1
    await app.storage.pause(queue, 0)
    await app.run_until_idle([queue])
    assert ran == ["first", "three"]


async def test_a_follow_up_has_the_lane_that_it_is_given(app: App, queue: str) -> None:
    lanes: dict[str, str | None] = {}

    @app.handler(queue)
    async def work(what: str) -> None:
        lanes[what] = app.current.lane
        assert app.current.lane == app.current.job.lane
        if what == "first":
            app.current.enqueue(queue, "without")
            app.current.enqueue(queue, "with", lane="b")

    await work.enqueue("first", lane="a")
    await app.run_until_idle([queue])
    assert lanes == {"first": "a", "without": None, "with": "b"}


async def test_a_batch_sees_and_gives_lanes(app: App, queue: str) -> None:
    lanes: list[str | None] = []

    @app.handler(queue, batch=10)
    async def work(batch: Batch[str]) -> None:
        lanes.extend(job.lane for job in batch)
        if batch[0].payload == "first":
            batch.enqueue(queue, "next", lane="b")

    await work.enqueue("first", lane="a")
    await app.run_until_idle([queue])
    assert lanes == ["a", "b"]


async def test_a_retried_job_keeps_its_lane_and_gives_its_place_back(app: App, queue: str) -> None:
    ran: list[str] = []

    @app.handler(queue, lanes=1, retry=3600)
    async def work(what: str) -> None:
        ran.append(what)
        if what == "fails":
            raise ValueError

    failing = await work.enqueue("fails", lane="a")
    await work.enqueue("next", lane="a")
    await app.run_until_idle([queue])
    assert ran == ["fails", "next"]
    found = await app.find(failing.id)
    assert found is not None and (found.state, found.lane) == ("delayed", "a")


async def test_the_nodes_of_a_flow_have_lanes(app: App, queue: str) -> None:
    seen = Watched()

    @app.handler(queue, lanes=1)
    async def part(n: int) -> None:
        await seen.run(app.current.lane, n)
        if n == 0:
            app.current.flow.add(part, 10, name="more", lane="b")

    flow = app.flow("import")
    parts = flow.map(part, range(4), name="part", lane="a")
    flow.add(part, 9, name="last", after=parts, lane="b")
    await flow.start()
    async with asyncio.timeout(20):
        while (info := await app.flows.get(flow.id)).state == "running":
            await app.run_until_idle([queue])
    assert info.state == "done"
    assert sorted(seen.ran) == [0, 1, 2, 3, 9, 10]
    assert (seen.most["a"], seen.most["b"]) == (1, 1)


async def test_a_node_that_is_held_is_shown_so(app: App, queue: str) -> None:
    @app.handler(queue, lanes=0)
    async def part(n: int) -> None: ...

    await app.run_until_idle([queue])
    async with app.batch("parts") as batch:
        await batch.enqueue_many(part, range(2), lane="a")
    await app.run_until_idle([queue])
    info = await app.flows.get(batch.id)
    assert [node.state for node in info.nodes.values()] == ["held", "held"]
    await app.lanes.change(queue, limits={"a": None})
    async with asyncio.timeout(20):
        while (await app.flows.get(batch.id)).state == "running":
            await app.run_until_idle([queue])


async def test_a_fetch_of_a_demand_has_the_lane_of_the_first_who_asks(app: App, queue: str) -> None:
    prices = app.demand(queue)
    fetched: list[tuple[str, str | None]] = []

    @prices.fetch(lanes=1)
    async def fetch(key: str) -> str:
        fetched.append((key, app.current.lane))
        return key.upper()

    @prices.deliver
    async def deliver(waiter: Waiter[None], price: str) -> None: ...

    await app.run_until_idle([queue])
    for key in ("a", "b"):
        await prices.request(key, Waiter("one"), lane="host")
    assert (await prices.request("b", Waiter("two"), lane="other")).what == "attached"
    stats = (await app.storage.stats()).queues[queue]
    assert (stats.ready, stats.held) == (1, 1)
    assert (await prices.view()).waiting.depth == 2, "a held fetch waits"
    queues = [queue, f"{queue}.deliver"]
    await app.run_until_idle(queues)
    assert fetched == [("b", "host"), ("a", "host")], "two wait for b"
    assert await prices.get("a", timeout=5) == "A"


async def test_a_waiter_that_asks_for_something_fresher_has_a_fetch_in_its_lane(app: App, queue: str) -> None:
    prices = app.demand(queue)
    lanes: list[str | None] = []

    @prices.fetch
    async def fetch(key: str) -> int:
        lanes.append(app.current.lane)
        if len(lanes) == 1:
            await asyncio.sleep(0.01)
            now = (await app.storage.look(Head(queue))).at  # after this fetch began
            await prices.request("a", Waiter("two"), fresh_after=now, lane="second")
        return len(lanes)

    @prices.deliver
    async def deliver(waiter: Waiter[None], price: int) -> None: ...

    await prices.request("a", Waiter("one"), lane="first")
    await app.run_until_idle([queue, f"{queue}.deliver"])
    assert lanes == ["first", "second"]


async def test_the_jobs_of_a_schedule_have_its_lane(app: App, queue: str) -> None:
    lanes: list[str | None] = []

    @app.every(timedelta(seconds=0.1), queue=queue, lane="nightly")
    async def tick() -> None:
        lanes.append(app.current.lane)

    async with running(app, system_jobs=True):
        await until(lambda: lanes)
    assert lanes[0] == "nightly"


async def test_the_rules_of_a_queue_are_looked_at_and_changed_while_workers_run(app: App, queue: str) -> None:
    ran: list[str | None] = []

    @app.handler(queue, lanes=Lanes(limit=1))
    async def work(n: int) -> None:
        ran.append(app.current.lane)

    async with running(app) as worker:
        await until(lambda: worker.ready)
        assert await app.lanes.change(queue, limits={"bad": 0}) == Lanes(limit=1, limits={"bad": 0})
        await work.enqueue_many(range(3), lane="bad")
        await work.enqueue_many(range(2), lane="good")
        await until(lambda: len(ran) == 2)
        info = await app.lanes.get(queue)
        assert (info.rules, info.count) == (Lanes(limit=1, limits={"bad": 0}), 1)
        assert [(each.lane, each.ready, each.held) for each in info.lanes] == [("bad", 0, 3)]
        assert await app.lanes.reset(queue, "bad") == Lanes(limit=1)
        await until(lambda: len(ran) == 5)
    assert ran == ["good"] * 2 + ["bad"] * 3
    assert (await app.lanes.get(queue, limit=0)).count == 0


async def test_a_newer_version_declares_other_rules(app: App, queue: str) -> None:
    def version(**options: Any) -> App:
        other = App(app.url)
        if app.connections.in_memory:
            other.connections = app.connections
        other.add_handler(queue, lambda: None, {"run_in": "thread", **options})  # type: ignore[typeddict-item]
        return other

    for options, rules in (
        ({"lanes": Lanes(limit=2, fair=True)}, Lanes(limit=2, fair=True)),
        ({"lanes": 3}, Lanes(limit=3)),
        ({}, None),
    ):
        newer = version(**options)
        await newer.run_until_idle([queue])
        assert (await app.lanes.get(queue)).rules == rules
        if not app.connections.in_memory:
            await newer.close()


async def test_a_worker_that_ends_when_idle_leaves_what_the_rules_hold_back(app: App, queue: str) -> None:
    ran: list[int] = []

    @app.handler(queue, lanes=Lanes(limits={"paused": 0}, total=2))
    async def work(n: int) -> None:
        ran.append(n)

    await work.enqueue_many(range(3), lane="paused")
    await work.enqueue_many(range(10, 13))
    async with asyncio.timeout(20):
        await app.run_until_idle([queue])
        assert ran == [10, 11, 12]
        await app.lanes.change(queue, total=0, limits={"paused": None})
        await app.run_until_idle([queue])
        assert ran == [10, 11, 12], "three are ready, and none may run"
        await app.lanes.change(queue, total=None)
        await app.run_until_idle([queue])
    assert sorted(ran) == [0, 1, 2, 10, 11, 12]


async def test_a_queue_that_is_full_is_no_stall(app: App, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    @app.handler(queue, lanes=Lanes(total=0))
    async def work(n: int) -> None: ...

    await work.enqueue(1)
    async with running(app, settings=settings(stall_after=0.05, heartbeat=0.05)) as worker:
        await asyncio.sleep(0.4)
        assert worker.ready
    assert "stalled" not in caplog.text


async def test_a_worker_begins_where_rules_cannot_be_declared(
    app: App, queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []
    tried = 0

    async def full(*args: Any) -> None:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise StorageFull("the disk is full")
        await declare_all(*args)

    monkeypatch.setattr("accoda.runtime.worker.declare_all", full)

    @app.handler(queue, lanes=2)
    async def work(n: int) -> None:
        ran.append(n)

    await work.enqueue(1)
    async with running(app):
        await until(lambda: ran and tried == 3)
        async with asyncio.timeout(10):
            while (await app.lanes.get(queue)).rules is None:
                await asyncio.sleep(0.01)
    assert caplog.text.count("cannot declare the rules for lanes") == 2


async def test_a_worker_has_declared_its_rules_before_it_takes_a_job(app: App, queue: str) -> None:
    rules: list[Lanes | None] = []

    @app.handler(queue, lanes=2)
    async def work(n: int) -> None:
        rules.append((await app.lanes.get(queue)).rules)

    await work.enqueue(1, lane="a")
    await app.run_until_idle([queue])
    assert rules == [Lanes(limit=2)]


def test_lanes_without_await(url: str, queue: str) -> None:
    app = App(url)

    @app.handler(queue, lanes=1)
    def work(n: int) -> None: ...

    try:
        app.sync.enqueue_many(queue, range(3), lane="a")
        work.sync.enqueue(4, lane="b")
        assert app.sync.lanes.change(queue, total=5, weights={"a": 2}) == Lanes(total=5, weights={"a": 2})
        app.sync.run_until_idle([queue])
        assert app.sync.lanes.get(queue).rules == Lanes(limit=1, total=5, weights={"a": 2})
        assert app.sync.lanes.reset(queue) == Lanes(limit=1)
    finally:
        app.sync.close()


async def test_a_worker_that_only_begins_declares(app: App, queue: str) -> None:
    app.add_handler(queue, lambda: None, {"run_in": "thread", "lanes": 2})
    worker = Worker(app)
    await worker.init()
    assert (await app.lanes.get(queue)).rules is None, "it is not running yet"
    task = asyncio.create_task(worker.run())
    await until(lambda: worker.ready)
    assert (await app.lanes.get(queue)).rules == Lanes(limit=2)
    worker.shutdown()
    await task
