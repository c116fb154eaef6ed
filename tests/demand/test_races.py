"""Races between joins, leaves, ranks and the end of a fetch, each played out step by step."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from accoda import App, Done, NewJob, Worker, WorkerOptions
from accoda.demand import Demand, Waiter
from accoda.demand.waiters import JOINS, Entry, write_entry
from accoda.model import ById, ByKey
from accoda.settings import Settings
from accoda.storage.protocol import Store

Step = Callable[[], Awaitable[object]]


def before(store: Store, verb: str, step: Step, monkeypatch: pytest.MonkeyPatch, *, times: int = 1) -> None:
    """Run a step right before the next calls of a verb."""
    call = getattr(store, verb)
    left = times

    async def after_the_step(*args: Any, **options: Any) -> Any:
        nonlocal left
        if left:
            left -= 1
            await step()
        return await call(*args, **options)

    monkeypatch.setattr(store, verb, after_the_step)


class Shop:
    """A demand in memory, whose deliveries are recorded."""

    def __init__(self, fresh_for: float = 0.0) -> None:
        self.app = App("memory://")
        self.calls = 0
        self.served: list[str] = []
        self.deals: Demand = self.app.demand("deals", fresh_for=fresh_for)
        self.deals.fetch(self.fetch)
        self.deals.deliver(self.deliver)

    async def fetch(self, key: str) -> str:
        self.calls += 1
        return "result"

    async def deliver(self, waiter: Waiter[None], result: str) -> None:
        self.served.append(waiter.id)

    async def run(self) -> None:
        await self.app.run_until_idle()


async def test_a_waiter_that_was_served_first_is_not_told_that_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch ends between the look and the leaving entry, and another waiter has started the next one."""
    shop = Shop()
    store = await shop.app.connections.get()
    await shop.deals.request("k", Waiter("a"))

    async def ends_and_begins() -> None:
        await shop.run()
        await shop.deals.request("k", Waiter("b"))

    before(store, "enqueue", ends_and_begins, monkeypatch)
    assert await shop.deals.withdraw("k", "a") == "absent"
    await shop.run()
    assert shop.served == ["a", "b"]


async def test_a_waiter_that_joined_the_next_fetch_meanwhile_leaves_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    store = await shop.app.connections.get()
    await shop.deals.request("k", Waiter("a"))

    async def ends_and_begins() -> None:
        await shop.run()
        await shop.deals.request("k", Waiter("b"))
        await shop.deals.request("k", Waiter("a"))

    before(store, "enqueue", ends_and_begins, monkeypatch)
    assert await shop.deals.withdraw("k", "a") == "left"
    await shop.run()
    assert shop.served == ["a", "b"]


async def test_a_waiter_that_is_carried_over_to_the_next_fetch_is_served_or_leaves_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its fetch began without a waiter, so another one follows for it; its entry of leaving comes to that one, which
    ends before anyone has looked."""
    shop = Shop()
    store = await shop.app.connections.get()
    await shop.deals.request("k", Waiter("b"))
    first = (await store.look(ByKey("deals", "k"))).job
    assert first is not None
    await shop.deals.request("k", Waiter("a"))

    async def carried_over() -> None:
        """What the end of a run that was not wanted does."""
        taken = (await store.take("deals", 1))[0]
        entry = write_entry(Entry(JOINS, "a", "free"))
        again = NewJob("deals", taken.data, key="k", on_duplicate="attach", waiter=entry)
        assert await store.settle([Done(taken.lease, (again,))]) == []
        before(store, "look", shop.run, monkeypatch)

    before(store, "enqueue", carried_over, monkeypatch)
    answer = await shop.deals.withdraw("k", "a")
    await shop.run()
    assert (answer, shop.served) == ("absent", ["a"])


async def test_a_waiter_that_left_right_before_the_end_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch ends between the leaving entry and the second look."""
    shop = Shop()
    store = await shop.app.connections.get()
    await shop.deals.request("k", Waiter("a"))
    await shop.deals.request("k", Waiter("b"))
    looks = iter((False, True, False))

    async def maybe() -> None:
        if next(looks):
            await shop.run()

    before(store, "look", maybe, monkeypatch, times=2)
    assert await shop.deals.withdraw("k", "a") == "left"
    assert shop.served == ["b"]


async def test_a_rank_on_its_way_does_not_hide_that_another_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter leaves; while the new rank is on its way another waiter joins, and the old rank fits again."""
    shop = Shop()
    store = await shop.app.connections.get()
    await shop.deals.request("k", Waiter("a"))
    await shop.deals.request("k", Waiter("b"))
    rank = (await store.look(ById(1))).job.rank  # type: ignore[union-attr]
    change = store.change
    joined: list[asyncio.Task[Any]] = []

    async def slow(changes: Any) -> int:
        applied = await change(changes)
        if not joined:  # applied, but its answer is still on the way
            joined.append(asyncio.create_task(shop.deals.request("k", Waiter("c"))))
            while (await store.look(ById(1))).job.waiters < 4:  # type: ignore[union-attr]
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
        return applied

    monkeypatch.setattr(store, "change", slow)
    assert await shop.deals.withdraw("k", "a") == "left"
    await joined[0]
    assert (await store.look(ById(1))).job.rank == rank  # type: ignore[union-attr]


@pytest.mark.parametrize("fresh_for", [0.0, 60.0])
async def test_a_stream_of_requests_does_not_keep_a_fetch_from_its_end(
    monkeypatch: pytest.MonkeyPatch, fresh_for: float
) -> None:
    """A request comes whenever the end is tried: after the first refusal it is served without joining."""
    shop = Shop(fresh_for)
    store = await shop.app.connections.get()
    await shop.deals.request("k", Waiter("first"))
    answers: list[str] = []
    settle = store.settle

    async def request_and_settle(outcomes: Any) -> Any:
        if any(isinstance(outcome, Done) and outcome.lease.queue == "deals" for outcome in outcomes):
            answers.append((await shop.deals.request("k", Waiter(f"w{len(answers)}"))).what)
        return await settle(outcomes)

    monkeypatch.setattr(store, "settle", request_and_settle)
    worker = Worker(shop.app, WorkerOptions(settings=Settings.load(environ={})))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while len(shop.served) < 3:
            await asyncio.sleep(0.01)
    assert await worker.graceful_stop(10)
    await running
    assert answers == ["attached", "cached"]
    assert shop.calls == 1
    assert sorted(shop.served) == ["first", "w0", "w1"]
    monkeypatch.undo()
    again = await shop.deals.request("k", Waiter("later"))
    assert again.what == ("cached" if fresh_for else "created")  # the end of the fetch has closed it


async def test_concurrent_requests_share_the_calls_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    store = await shop.app.connections.get()
    sizes: list[int] = []
    enqueue = store.enqueue

    async def counted(jobs: Any) -> Any:
        sizes.append(len(jobs))
        await asyncio.sleep(0)
        return await enqueue(jobs)

    monkeypatch.setattr(store, "enqueue", counted)
    answers = await asyncio.gather(*(shop.deals.request("k", Waiter(f"w{one}")) for one in range(50)))
    assert sum(sizes) == 50
    assert len(sizes) <= 3
    assert sorted(answer.waiters for answer in answers) == list(range(1, 51))
    assert [answer.what for answer in answers].count("created") == 1


async def test_a_stale_answer_does_not_cancel_the_request_for_a_fresher_result() -> None:
    shop = Shop()
    shop.deals = deals = shop.app.demand("kept", fresh_for=60, keep_for=600)
    deals.fetch(shop.fetch)
    deals.deliver(shop.deliver)
    with shop.app.testing() as trial:
        await deals.request("k", Waiter("a"))
        await shop.run()
        trial.advance(120)
        assert (await deals.request("k", Waiter("a"), fresh_after=trial.clock.now())).what == "created"
        assert (await deals.request("k", Waiter("a"))).what == "stale"
        await shop.run()
    assert shop.served == ["a", "a", "a"]
    assert shop.calls == 2
