"""Which share of the runs of the last hour each lane had."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.runtime.running import running

from accoda import App, Done, Lanes, Lease, ManualClock, Outcome
from accoda.limits import DOCUMENT_NAME, allowed
from accoda.model import LANE
from accoda.operations import lanes
from accoda.runtime.served_lanes import KEPT, MOST, PREFIX, SLOTS, STEP, Served, ServedLanes, read_served
from accoda.storage.observed import Call, observe

QUEUE = "reports"
START = 1_893_488_400_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest_asyncio.fixture
async def app(clock: ManualClock) -> AsyncIterator[App]:
    async with App("memory://", clock=clock) as app:
        yield app


class Counting:
    """A worker that only counts."""

    def __init__(self, app: App, name: str, declared: bool = True) -> None:
        self.app, self.name, self.jobs = app, name, 0
        self.served = ServedLanes(QUEUE, declared)

    def ends(self, *ended: str | None) -> None:
        outcomes: list[Outcome] = [Done(Lease(QUEUE, id, 0, START)) for id in range(1, len(ended) + 1)]
        self.jobs += len(ended)
        self.served.count({id: lane for id, lane in enumerate(ended, 1) if lane is not None}, outcomes)

    async def write(self) -> None:
        await self.served.write(self.app.storage, self.name, self.jobs)


async def test_workers_add_up_and_those_that_have_left_still_count(app: App) -> None:
    one, other = Counting(app, "one"), Counting(app, "other")
    one.ends("a", "a", "b", None)
    other.ends("a", None)
    await one.write()
    await other.write()
    assert await read_served(app.storage, QUEUE) == Served(6, {"a": 3, "b": 1})
    assert await read_served(app.storage, "rep") == Served()


async def test_an_hour_is_remembered_in_slots(app: App, clock: ManualClock) -> None:
    one = Counting(app, "one")
    for _ in range(SLOTS):
        one.ends("a", "b")
        await one.write()
        clock.advance(STEP / 1000)
    assert (await read_served(app.storage, QUEUE)).jobs == 2 * (SLOTS - 1), "the first slot is an hour old"
    one.ends("c")
    await one.write()
    assert await read_served(app.storage, QUEUE) == Served(23, {"a": 11, "b": 11, "c": 1})
    clock.advance(3600)
    assert await app.storage.documents(PREFIX) == [], "it ends by itself"


async def test_a_clock_that_was_set_back_leaves_no_future(app: App) -> None:
    one = Counting(app, "one")
    one.ends("a")
    async with App("memory://", clock=ManualClock(START + 24 * STEP)) as ahead:
        await one.served.write(ahead.storage, "one", one.jobs)
    one.ends("b")
    await one.write()
    assert await read_served(app.storage, QUEUE) == Served(1, {"b": 1})


async def test_only_what_has_changed_is_written(app: App) -> None:
    calls: list[Call] = []
    store = observe(app.storage, calls.append)
    one = Counting(app, "one", declared=False)
    one.ends(None, None)
    await one.served.write(store, "one", one.jobs)
    assert calls == [], "no lane, no rules"
    one.ends("a")
    for _ in range(3):
        await one.served.write(store, "one", one.jobs)
    assert [call.verb for call in calls] == ["look", "write"]
    assert await read_served(app.storage, QUEUE) == Served(1, {"a": 1})
    one.ends(None)
    await one.write()
    assert (await read_served(app.storage, QUEUE)).jobs == 2, "from the first lane on all jobs are counted"


async def test_a_queue_with_rules_is_written_without_any_lane(app: App) -> None:
    one = Counting(app, "one")
    one.ends(None)
    await one.write()
    assert await read_served(app.storage, QUEUE) == Served(1, {})


async def test_of_very_many_lanes_the_largest_are_kept(app: App) -> None:
    one = Counting(app, "one")
    one.ends(*(f"{n:0{LANE}}" for n in range(3 * KEPT)), *["big"] * 3)
    await one.write()
    one.ends(*["late"] * 2, *["big"])
    await one.write()
    found = await read_served(app.storage, QUEUE)
    assert (found.jobs, len(found.lanes), found.lanes["big"], found.lanes["late"]) == (3 * KEPT + 6, MOST, 4, 2)


async def test_long_names_make_no_document_that_is_too_large(app: App, clock: ManualClock) -> None:
    one = Counting(app, "one")
    for _ in range(SLOTS):
        one.ends(*("🦊" * (LANE - 4) + f"{n:04}" for n in range(MOST)), "big", "big")
        await one.write()
        clock.advance(STEP / 1000)
    (document,) = await app.storage.documents(PREFIX)
    assert len(document.value) <= allowed.document and len(document.name) <= DOCUMENT_NAME
    before, allowed.document = allowed.document, 100_000
    try:
        one.ends("big")
        await one.write()
    finally:
        allowed.document = before
    assert (await read_served(app.storage, QUEUE)).lanes["big"] == 23


async def test_a_damaged_document_is_left_out(app: App) -> None:
    one = Counting(app, "one")
    one.ends("a")
    await one.write()
    for name, value in {"b": b"{", "c": b"[1]", "d": b'[{"number": -1}]', "e": b""}.items():
        await app.storage.write(f"{PREFIX}{QUEUE}/{name}", value)
    assert await read_served(app.storage, QUEUE) == Served(1, {"a": 1})


async def test_lanes_show_their_share_of_the_hour(app: App) -> None:
    one = Counting(app, "one")
    one.ends("a", "a", "gone", "gone", "gone", "small", None, None)
    await one.write()
    await lanes.change(app, QUEUE, {"limit": 1})
    await app.enqueue_many(QUEUE, [1, 2], lane="b")
    await app.enqueue(QUEUE, 1, lane="a")
    found = await lanes.get(app, QUEUE)
    shown = [(each.lane, each.ready + each.held, each.runs, each.runs_share) for each in found.lanes]
    assert shown == [("b", 2, 0, 0.0), ("a", 1, 2, 0.25), ("gone", 0, 3, 0.375), ("small", 0, 1, 0.125)]
    assert (found.runs, found.count) == (8, 2)
    assert [each.lane for each in (await lanes.get(app, QUEUE, 3)).lanes] == ["b", "a", "gone"]
    assert [each.lane for each in (await lanes.get(app, QUEUE, 1)).lanes] == ["b"]
    assert (await lanes.get(app, QUEUE, 0)).runs == 0


async def test_a_worker_counts_what_it_ran(app: App) -> None:
    failed: list[int] = []

    @app.handler(QUEUE, lanes=Lanes(limit=2), max_attempts=2, retry=0.0)
    async def report(n: int) -> None:
        if n == 3 and not failed:
            failed.append(n)
            raise ValueError("not yet")

    await report.enqueue_many(range(5), lane="a")
    await report.enqueue_many(range(4), lane="b")
    await report.enqueue(9)
    await app.run_until_idle()
    found = await read_served(app.storage, QUEUE)
    assert (found.jobs, sum(found.lanes.values())) == (11, 10), "a run that failed is one, too"
    assert sorted(found.lanes) == ["a", "b"]


async def test_a_worker_that_runs_on_writes_at_its_stop(app: App) -> None:
    done = asyncio.Event()

    @app.handler(QUEUE)
    async def report() -> None:
        done.set()

    await report.enqueue(lane="a")
    async with running(app):
        await done.wait()
    assert await read_served(app.storage, QUEUE) == Served(1, {"a": 1})
