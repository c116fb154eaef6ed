"""Fetching ahead when there is nothing else to do."""

from collections.abc import Iterable
from typing import Any

import pytest

from accoda import App, InvalidInput
from accoda.app_testing import Trial
from accoda.demand import Demand, Prefetch, Waiter
from accoda.model import ByKey

MINUTE = 60_000


def app_with(upcoming: Any, budget: str | None = None, **options: Any) -> tuple[App, Demand, list[str], list[str]]:
    app = App("memory://")
    app.budget("keepa", capacity=24, refill=1, per=3600)
    prefetch = Prefetch(upcoming=upcoming, **options)
    deals = app.demand("deals", cost=5, budget=budget, fresh_for=1800, keep_for=7200, prefetch=prefetch)
    calls: list[str] = []
    got: list[str] = []

    @deals.fetch
    async def fetch(key: str) -> str:
        calls.append(key)
        return key

    @deals.deliver
    async def deliver(waiter: Waiter, result: str) -> None:
        got.append(waiter.id)

    return app, deals, calls, got


async def tick(app: App, deals: Demand, trial: Trial) -> int:
    trial.advance(60)
    return await deals.prefetch_once(await app.connections.get())


async def test_upcoming_keys_are_fetched_ahead_the_earliest_first_up_to_the_limit() -> None:
    def upcoming(now: int, until: int) -> Iterable[tuple[str, int]]:
        assert until - now == 20 * MINUTE
        return [(f"k{n}", now + (20 - n) * MINUTE) for n in range(10)]

    app, deals, calls, _ = app_with(upcoming, look_ahead=1200, most=3)
    with app.testing() as trial:
        assert await tick(app, deals, trial) == 3
        await app.run_until_idle()
        assert sorted(calls) == ["k7", "k8", "k9"]
        assert await tick(app, deals, trial) == 3, "results still fresh when they are due are not fetched again"
        await app.run_until_idle()
        assert sorted(calls) == ["k4", "k5", "k6", "k7", "k8", "k9"]
        counts = deals.counters.mine
    assert (counts.prefetch_created, counts.prefetch_completed, counts.prefetch_converted) == (6, 6, 0)
    assert counts.prefetch_tokens == 30


async def test_tokens_are_left_for_real_requests() -> None:
    def upcoming(now: int, until: int) -> list[tuple[str, int]]:
        return [(f"k{n}", now + MINUTE) for n in range(5)]

    app, deals, calls, _ = app_with(upcoming, "keepa", least_left=10)
    with app.testing() as trial:
        assert await tick(app, deals, trial) == 2, "24 less 10 are 14: enough for two"
        await app.run_until_idle()
        assert len(calls) == 2
        assert await tick(app, deals, trial) == 0


async def test_nothing_is_fetched_ahead_while_a_request_waits() -> None:
    app, deals, _, _ = app_with(lambda now, until: [("k", now + MINUTE)])
    with app.testing() as trial:
        await deals.request("other", Waiter("a"))
        assert await tick(app, deals, trial) == 0
        await app.run_until_idle()
        assert await tick(app, deals, trial) == 1


async def test_a_real_waiter_turns_a_prefetch_into_a_normal_job() -> None:
    async def upcoming(now: int, until: int) -> list[tuple[str, int]]:
        return [("k", now + MINUTE)]

    app, deals, calls, got = app_with(upcoming)
    with app.testing() as trial:
        await tick(app, deals, trial)
        job = (await app.storage.look(ByKey("deals", "k"))).job
        assert job is not None and job.rank == 100
        assert (await deals.request("k", Waiter("a", tier="pro"))).what == "attached"
        job = (await app.storage.look(ByKey("deals", "k"))).job
        assert job is not None and job.rank == 18 + 3
        await app.run_until_idle()
        counts = deals.counters.mine
    assert (calls, got) == (["k"], ["a"])
    assert (counts.prefetch_completed, counts.prefetch_converted) == (1, 1)


async def test_a_result_that_is_fresh_now_but_not_when_it_is_due_is_fetched_again() -> None:
    due = [0]
    app, deals, calls, _ = app_with(lambda now, until: [("k", due[0])])
    with app.testing() as trial:
        await deals.request("k", Waiter("a"))
        await app.run_until_idle()
        trial.advance(minutes=15)
        due[0] = trial.clock.now() + 25 * MINUTE
        assert await tick(app, deals, trial) == 1
        await app.run_until_idle()
    assert calls == ["k", "k"]


async def test_only_one_worker_fetches_ahead() -> None:
    app, deals, _, _ = app_with(lambda now, until: [(str(now), now + MINUTE)])
    with app.testing() as trial:
        store = await app.connections.get()
        assert [await deals.prefetch_once(store), await deals.prefetch_once(store)] == [1, 0]
        await app.run_until_idle()
        assert await tick(app, deals, trial) == 1


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"upcoming": 3}, "upcoming: must be a function"),
        ({"most": -1}, "most: must be an integer >= 0"),
        ({"look_ahead": -1}, "look_ahead: must be a number of seconds"),
        ({"every": "1m"}, "every: must be a number"),
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Prefetch(**{"upcoming": print, **wrong})
