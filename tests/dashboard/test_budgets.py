"""The page of budgets."""

from collections.abc import Iterator

import pytest
from dash import Dash
from proof.service import ServiceRunner

from accoda import App
from accoda.budget import Ask


@pytest.fixture
def keepa() -> Iterator[Dash]:
    app = App("memory://")
    app.budget("keepa", capacity=20, refill=20, per=60)

    @app.handler("prices", budget="keepa", cost=5)
    async def prices(product: str) -> None: ...

    with ServiceRunner(app) as service:
        yield Dash(service)


def test_without_budgets_it_says_how_to_declare_one(dash: Dash) -> None:
    assert "app.budget(" in dash.text("/budgets")


def test_the_meter_is_green_only_while_the_budget_is_open(keepa: Dash) -> None:
    assert '<svg class="bar " ' in keepa.text("/budgets")
    keepa.run(lambda app: app.books.reserve(Ask("prices", ("keepa",), head_cost=15, worker="w1")))
    keepa.run(lambda app: app.books.reserve(Ask("prices", ("keepa",), head_cost=15, worker="w2")))
    page = keepa.text("/budgets")
    assert 'class="state short"' in page and '<svg class="bar warn" ' in page
    assert 'aria-valuenow="' in page and '<a href="/queues/prices">prices</a>.' in page


def test_what_is_left_held_and_waited_for_is_shown(keepa: Dash) -> None:
    keepa.run(lambda app: app.books.reserve(Ask("prices", ("keepa",), head_cost=15, worker="w1")))
    keepa.run(lambda app: app.books.reserve(Ask("prices", ("keepa",), head_cost=15, worker="w2")))
    page = keepa.text("/budgets")
    assert "Workers that hold tokens" in page and "w1" in page and "Queues that wait for tokens" in page
    assert 'href="/queues/prices"' in page and 'class="state short"' in page


@pytest.mark.parametrize("span", ["1h", "24h", "7d"])
def test_every_span_is_shown(keepa: Dash, span: str) -> None:
    assert f'href="/budgets?span={span}" aria-current="page"' in keepa.text(f"/budgets?span={span}")


def test_an_unknown_span_is_refused(keepa: Dash) -> None:
    assert keepa.get("/budgets?span=nope").status == 422
