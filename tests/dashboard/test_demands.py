"""The pages of demands."""

from collections.abc import Iterator

import pytest
from dash import HOSTILE, Dash
from proof.service import ServiceRunner

from accoda import App, Waiter


@pytest.fixture
def deals() -> Iterator[Dash]:
    app = App("memory://")
    demand = app.demand("deals", cost=5, fresh_for=60, keep_for=120)

    @demand.fetch
    async def fetch(key: str) -> int:
        return 1

    @demand.deliver
    async def deliver(waiter: Waiter[None], result: int) -> None: ...

    with ServiceRunner(app) as service:
        yield Dash(service)


def test_without_demands_it_says_how_to_declare_one(dash: Dash) -> None:
    assert "app.demand(" in dash.text("/demands")


def test_a_demand_without_requests_is_empty(deals: Dash) -> None:
    assert "/demands/deals" in deals.text("/demands")
    page = deals.text("/demands/deals")
    assert "No fetches" in page and "Nothing is cached" in page and "1 min" in page
    assert deals.get("/demands/none").status == 404


def test_keys_waiters_and_freshness_are_shown(deals: Dash) -> None:
    async def ask(app: App) -> None:
        demand = app.demands["deals"]
        await demand.request("toys", Waiter("anna"))
        await app.run_until_idle(["deals", "deals.deliver"])
        await demand.request("toys", Waiter("bob"))
        await demand.request("books " + HOSTILE, Waiter("carl"))
        await demand.request("books " + HOSTILE, Waiter("dora"))
        await demand.upkeep_once(await app.connections.get())

    deals.run(ask)
    page = deals.text("/demands/deals")
    assert 'class="state fresh"' in page and "toys" in page and "&lt;script&gt;" in page and "/jobs/" in page
    page = deals.text("/demands")
    assert "25 %" in page and ">4<" in page
