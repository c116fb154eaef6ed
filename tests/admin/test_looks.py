"""Workers, budgets, demands and the overview."""

import pytest

from accoda import App, ManualClock, Waiter
from accoda.admin import budgets, demands, overview, workers
from accoda.budget import Ask
from accoda.errors import NotFound
from accoda.model import NewJob
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode


async def beat(app: App, clock: ManualClock, name: str = "w", problem: str = "") -> None:
    now = clock.now()
    states = (ProcessorState("a", 3, 7, now - 2000), ProcessorState())
    value = Heartbeat(name, name, "host", 7, now - 60_000, now - 1000, ("a", "b"), 2, states, problem=problem)
    await app.storage.write(f"worker/{name}", encode(value))


async def test_workers_are_seen_by_their_heartbeats(app: App, clock: ManualClock) -> None:
    await beat(app, clock, "w2", "the store is slow")
    await beat(app, clock, "w1")
    await app.storage.write("worker/broken", b"{")
    first, second = await workers.list(app)
    assert (first.id, first.busy, first.max_processors, first.queues) == ("w1", 1, 2, ["a", "b"])
    assert (first.beat_age, first.started_at) == (1.0, "2023-11-14T22:12:20.000Z")
    assert (first.processors[0].busy_for, first.processors[1].busy_for) == (2.0, None)
    assert second.problem == "the store is slow"


async def test_budgets_are_seen_by_an_app_that_does_not_declare_them(clock: ManualClock) -> None:
    declares = App("memory://", clock=clock)
    declares.budget("keepa", capacity=20, refill=20, per=60)
    await declares.books.reserve(Ask("deals", ("keepa",), head_cost=5, worker="w1"))
    stranger = App("memory://", clock=clock)
    stranger.connections = declares.connections
    [view] = await budgets.list(stranger)
    assert (view.name, view.capacity, view.reserved) == ("keepa", 20, 5)
    assert [(each.worker, each.amount) for each in view.reservations] == [("w1", 5)]
    assert await budgets.get(stranger, "keepa") == view
    with pytest.raises(NotFound):
        await budgets.get(stranger, "none")


async def test_demands_are_seen_by_an_app_that_does_not_declare_them(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> int:
        return 1

    await deals.request("a", Waiter("anna"))
    await deals.upkeep_once(await app.connections.get(), "w1")
    stranger = App("memory://", clock=clock)
    stranger.connections = app.connections
    [view] = await demands.list(stranger)
    assert (view.queue, view.depth, view.created, view.hit_rate) == ("deals", 1, 1, 0.0)
    assert await demands.get(stranger, "deals") == view
    with pytest.raises(NotFound):
        await demands.get(stranger, "none")


async def test_the_overview_sums_up_what_is_not_ours(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a"), NewJob("a", delay=9), NewJob("b"), NewJob("accoda.webhooks")])
    await app.storage.pause("b")
    await beat(app, clock)
    clock.advance(5)
    view = await overview.overview(app)
    assert (view.totals.queues, view.totals.ready, view.totals.delayed, view.totals.paused) == (2, 2, 1, 1)
    assert (view.workers, view.processors, view.busy) == (1, 2, 1)
    assert view.totals.oldest_age == 5.0 and [queue.name for queue in view.queues] == ["a", "b"]
    assert view.rates is None


async def test_the_second_look_tells_rates(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("accoda.admin.overview.time.monotonic", lambda: now[0])
    await app.storage.enqueue([NewJob("a") for _ in range(20)])
    await overview.overview(app)
    from accoda import Done

    await app.storage.settle([Done(job.lease) for job in await app.storage.take("a", 20)])
    now[0] = 100.5
    assert (await overview.overview(app)).rates is None, "too soon to tell"
    now[0] = 110.0
    rates = (await overview.overview(app)).rates
    assert rates is not None and (rates["a"].done, rates["a"].over) == (2.0, 10.0)
