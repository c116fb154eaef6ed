"""Budgets outside of jobs: waiting for tokens, and numbers of an API that cannot be right."""

import asyncio
import logging

import pytest

from accoda import App, InvalidInput, ManualClock, Observation
from accoda.budget import Ask


async def test_callers_are_served_in_the_order_in_which_they_began_to_wait() -> None:
    app = App("memory://", clock=ManualClock())
    app.budget("keepa")
    await app.wait_for_tokens("keepa", 20)
    served: list[str] = []

    async def call(name: str, cost: int) -> None:
        await app.wait_for_tokens("keepa", cost)
        served.append(name)

    async with asyncio.TaskGroup() as group:
        for number, (name, cost) in enumerate((("large", 15), ("small", 1)), 1):
            group.create_task(call(name, cost))
            while len((await app.budget_views())["keepa"].claims) < number:
                await asyncio.sleep(0)
        # What comes back is enough for the small one alone, which came later: it waits behind the large one.
        await app.books.observe(Observation("keepa", 10, app.now()))
        await asyncio.sleep(0.01)
        assert served == []
        await app.books.observe(Observation("keepa", 20, app.now()))
    assert sorted(served) == ["large", "small"]
    assert (await app.budget_views())["keepa"].used_today == 36


async def test_a_caller_that_is_cancelled_keeps_no_one_waiting() -> None:
    app = App("memory://", clock=ManualClock())
    app.budget("keepa")
    await app.wait_for_tokens("keepa", 15)
    waiting = asyncio.create_task(app.wait_for_tokens("keepa", 20))
    while not (await app.budget_views())["keepa"].claims:
        await asyncio.sleep(0)
    assert not await app.can_afford("keepa", 5), "the caller that waits comes first"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await app.can_afford("keepa", 5)


async def test_what_can_never_be_paid_is_refused_at_once() -> None:
    app = App("memory://")
    app.budget("keepa")
    with pytest.raises(InvalidInput, match="cost: can never be paid: costs 21, and budget 'keepa' holds 20 at most"):
        await app.wait_for_tokens("keepa", 21)
    with pytest.raises(InvalidInput, match="there is no budget 'kepa'"):
        await app.can_afford("kepa", 1)


def test_a_script_waits_without_await() -> None:
    app = App("memory://")
    app.budget("keepa", headroom=0.5)
    app.sync.wait_for_tokens("keepa", 5, timeout=5)
    assert app.sync.can_afford("keepa", 5) and not app.sync.can_afford("keepa", 6), "the headroom is for urgent jobs"
    app.sync.close()


@pytest.mark.parametrize("where", ["job", "outside"])
async def test_a_refill_in_that_cannot_be_seconds_is_passed_over_with_a_warning(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://")
    app.budget("keepa")
    ran = []

    @app.handler("deals", budget="keepa", cost=20)
    async def deals(n: int) -> None:
        ran.append(n)
        if where == "job":
            app.current.budget.observe(left=0, refill_in=40_000)  # milliseconds, as the API says it

    with app.testing() as trial, caplog.at_level(logging.WARNING, "accoda"):
        if where == "outside":
            await app.books.observe(Observation("keepa", 0, app.now(), refill_in=40_000))
        else:
            await deals.enqueue(0)
            await app.run_until_idle()
        await deals.enqueue(1)
        await app.run_until_idle()
        assert ran == [0][: where == "job"]
        trial.advance(61)
        await app.run_until_idle()
        assert ran[-1] == 1
    [warning] = [record.getMessage() for record in caplog.records if record.name == "accoda.budget"]
    assert warning.startswith("budget 'keepa': refill_in=40000 is passed over, because it is refilled every 60 s")
    assert "divide milliseconds by 1000" in warning


async def test_a_refill_in_that_is_a_little_late_is_believed() -> None:
    app = App("memory://", clock=ManualClock())
    app.budget("keepa")
    await app.books.observe(Observation("keepa", 0, app.now(), refill_in=61.5))
    answer = await app.books.reserve(Ask("deals", ("keepa",), 1))
    assert getattr(answer, "until", 0) == app.now() + 61_500
