"""Budgets, as people see them."""

import pytest

from accoda import App, ManualClock
from accoda.budget import Ask
from accoda.errors import NotFound
from accoda.operations import budgets


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
