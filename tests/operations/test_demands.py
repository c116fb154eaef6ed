"""Demands, their fetches and waiters, and how fresh cached results are."""

import pytest

from accoda import App, ManualClock, Waiter
from accoda.errors import NotFound
from accoda.operations import demands


@pytest.fixture
def deals(app: App) -> object:
    demand = app.demand("deals", fresh_for=60, keep_for=120, cost=5)

    @demand.fetch
    async def fetch(key: str) -> str:
        return key

    @demand.deliver
    async def deliver(waiter: Waiter[None], result: str) -> None: ...

    return demand


async def test_waiting_fetches_are_shown_the_most_urgent_first(app: App, deals: object, clock: ManualClock) -> None:
    demand = app.demands["deals"]
    await demand.request("books", Waiter("anna", tier="free", due=clock.now() + 3_600_000))
    await demand.request("toys", Waiter("bob", tier="business"))
    await demand.request("toys", Waiter("carl", tier="pro"))
    first, second = await demands.fetches(app, "deals")
    assert (first.key, first.waiters, first.band, first.cost, first.prefetch) == ("toys", 2, "urgent", 5, False)
    assert (second.key, second.waiters) == ("books", 1) and second.score > first.score
    [anna] = await demands.waiters(app, "deals", "books")
    assert (anna.id, anna.tier, anna.due is not None, anna.delivered) == ("anna", "free", True, True)
    assert [each.id for each in await demands.waiters(app, "deals", "toys")] == ["bob", "carl"]


async def test_waiters_that_left_are_not_shown(app: App, deals: object) -> None:
    demand = app.demands["deals"]
    await demand.request("toys", Waiter("bob"))
    await demand.request("toys", Waiter("carl"))
    await demand.withdraw("toys", "bob")
    assert [each.id for each in await demands.waiters(app, "deals", "toys")] == ["carl"]


async def test_cached_results_are_fresh_then_stale_then_old(app: App, deals: object, clock: ManualClock) -> None:
    await app.demands["deals"].request("toys", Waiter("bob"))
    await app.run_until_idle(["deals", "deals.deliver"])
    [view] = await demands.cached(app, "deals")
    assert (view.key, view.freshness, view.age) == ("toys", "fresh", 0.0)
    clock.advance(61)
    assert [each.freshness for each in await demands.cached(app, "deals")] == ["stale"]
    clock.advance(60)
    assert [each.freshness for each in await demands.cached(app, "deals")] == ["old"]
    stranger = App("memory://", clock=clock)
    stranger.connections = app.connections
    assert [each.freshness for each in await demands.cached(stranger, "deals")] == ["unknown"]


async def test_demands_are_seen_by_an_app_that_does_not_declare_them(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)
    deals = app.demand("deals")

    @deals.fetch
    async def fetch(key: str) -> int:
        return 1

    await deals.request("a", Waiter("anna"))
    await deals.upkeep_once(await app.connections.get())
    stranger = App("memory://", clock=clock)
    stranger.connections = app.connections
    [view] = await demands.list(stranger)
    assert (view.queue, view.depth, view.created, view.hit_rate) == ("deals", 1, 1, 0.0)
    assert await demands.get(stranger, "deals") == view
    with pytest.raises(NotFound):
        await demands.get(stranger, "none")
