"""Demands and budgets on every storage: numbers, keys, deliveries, waiters, tokens, the log."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec import Struct

from accoda import App, Batch, TokensTimeout, Waiter
from accoda.demand.waiters import JOINS, Entry
from accoda.demand.waiting import ONE_LOOK
from accoda.operations import budgets, demands, jobs, queues
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper

ASINS = ",".join(f"B{n:09}" for n in range(100))


@pytest_asyncio.fixture
async def app(url: str) -> AsyncIterator[App]:
    """The tests share a store, so each has queues and budgets of its own."""
    async with App(url) as app:
        yield app


def another(app: App) -> App:
    """Another process on the same store."""
    other = App(app.url)
    if app.connections.in_memory:
        other.connections = app.connections
    return other


class Reading(Wrapper):
    """Counts the jobs that are read through it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.jobs = 0

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        answer = await getattr(self._store, verb)(*args, **kwargs)
        if verb == "browse":
            self.jobs += len(answer)
        return answer


async def test_the_numbers_are_right_while_no_worker_runs(app: App) -> None:
    deals = app.demand("numbers")
    for key, tier in (("a", "business"), ("b", "free"), ("b", "free"), ("c", "pro")):
        await deals.request(key, Waiter(f"{key}-{tier}", tier=tier))
    view = await deals.view()
    assert (view.waiting.depth, view.waiting.bands["urgent"], view.waiting.bands["normal"]) == (3, 1, 2)
    assert view.waiting.oldest_age >= view.waiting.mean_wait >= 0
    assert (view.counts.created, view.counts.attached) == (3, 1)
    await deals.withdraw("a", "a-business")
    async with another(app) as other:
        [found] = [each for each in await demands.list(other) if each.queue == "numbers"]
    assert (found.depth, found.bands) == (2, {"urgent": 0, "normal": 2, "low": 0, "prefetch": 0})


async def test_nothing_is_read_again_if_nothing_has_changed(app: App) -> None:
    deals = app.demand("sweeps", upkeep=0.01)
    many = ONE_LOOK + 500
    store: Any = Reading(await app.connections.get())
    await store.enqueue([deals._fetch_job(f"k{n}", Entry(JOINS, "w", "free"), 28.0) for n in range(many)])

    async def sweep() -> int:
        """What a sweep reads, by a process that knows nothing yet, after the claim of the last one."""
        await store.write("demand/sweeps/sweeper", b"", ttl=0)
        await store.write("demand/sweeps/counter", b"", ttl=0)
        store.jobs = 0
        await another(app).demand("sweeps", upkeep=0.01).upkeep_once(store)
        read, store.jobs = store.jobs, 0
        seen = await demands.read_waiting(store, "sweeps")
        assert (seen.depth, store.jobs) == ((await store.stats()).queues["sweeps"].ready, 0)
        return read

    assert await sweep() == many
    assert await sweep() == 0
    await deals.request("k0", Waiter("anna", tier="business"))  # joins: it changes no counter of the store
    assert await sweep() == 0, "it is not counted yet"
    await deals.counters.flush(store)
    assert (await sweep(), await sweep()) == (many, 0)
    [taken] = await store.take("sweeps", 1)
    assert taken.key == "k0"
    assert (await sweep(), await sweep()) == (many - 1, 0)


async def test_requests_of_processes_that_end_at_once_are_counted(app: App) -> None:
    """All of them add to one document: each tries until its counts are in."""

    async def producer(n: int) -> None:
        async with another(app) as short:
            deals = short.demand("short")
            for m in range(3):
                await deals.request("books", Waiter(f"{n}-{m}"))

    await asyncio.gather(*(producer(n) for n in range(12)))
    counts = (await app.demand("short").view()).counts
    assert (counts.created, counts.attached) == (1, 35)


async def test_keys_may_have_any_length(app: App) -> None:
    refresh = app.demand("refresh", fresh_for=60)
    fetched, sent = [], []

    @refresh.fetch
    async def fetch(asins: str) -> int:
        fetched.append(asins)
        return asins.count(",") + 1

    @refresh.deliver
    async def deliver(waiter: Waiter[None], found: int) -> None:
        sent.append((waiter.id, found))

    assert len(ASINS) == 1099
    other = ASINS[:-1] + "X"
    assert (await refresh.request(ASINS, Waiter("anna"))).what == "created"
    assert (await refresh.request(ASINS, Waiter("ben"))).what == "attached"
    assert (await refresh.request(other, Waiter("carla"))).what == "created"
    shown = await demands.fetches(app, "refresh")
    assert {(each.key, each.waiters) for each in shown} == {(ASINS, 2), (other, 1)}
    stored = next(job.key for job in await app.storage.browse("refresh", "ready") if job.key and job.waiters == 1)
    assert (await refresh.request(stored, Waiter("dora"))).what == "created", "a key that looks like a hash is another"
    assert await refresh.withdraw(stored, "dora") == "cancelled"
    assert await refresh.withdraw(other, "carla") == "cancelled"
    assert await refresh.withdraw(ASINS, "ben") == "left"
    await app.run_until_idle(["refresh", "refresh.deliver"])
    assert (fetched, sent) == ([ASINS], [("anna", 100)])
    assert [each.key for each in await demands.cached(app, "refresh")] == [ASINS]
    assert (await refresh.request(ASINS, Waiter("emil"))).what == "cached" and await refresh.get(ASINS) == 100


class Filters(Struct):
    user_id: str
    min_discount: int = 0


async def test_each_waiter_is_published_what_its_filter_leaves_and_has_its_next_run(app: App) -> None:
    """What is published, and the moments of an automation, are the user's own: `deliver` is called for each waiter."""
    deals = app.demand("publish")
    published: list[tuple[str, str, list[int]]] = []
    runs: dict[str, int] = {}

    @deals.fetch
    async def fetch(category: str) -> list[int]:
        return [10, 40]

    @deals.deliver
    async def deliver(waiter: Waiter[Filters], discounts: list[int]) -> None:
        found = [each for each in discounts if each >= waiter.data.min_discount]
        if found:
            published.append((waiter.id, waiter.data.user_id, found))
        runs[waiter.id] = runs.get(waiter.id, 0) + 1

    for id, least in (("all", 0), ("some", 30), ("none", 90)):
        await deals.request("books", Waiter(id, data=Filters(f"user of {id}", least)))
    await app.run_until_idle(["publish", "publish.deliver"])
    assert sorted(published) == [("all", "user of all", [10, 40]), ("some", "user of some", [40])]
    assert runs == {"all": 1, "some": 1, "none": 1}


async def test_who_waits_can_be_seen_joined_and_left_by_key_and_by_job(app: App) -> None:
    deals = app.demand("crowd", cost=5)
    answer = await demands.request(app, "crowd", "books", Waiter("anna", "pro", 1_900_000_000_000))
    await demands.request(app, "crowd", "books", Waiter("ben"))
    await deals.request("books", Waiter("carla"))
    assert await demands.leave(app, "crowd", "books", "ben") == "left"
    async with another(app) as other:
        by_key = await demands.waiters(other, "crowd", "books")
        assert await demands.waiters_of(other, answer.id) == by_key
    assert [(each.id, each.tier, each.due) for each in by_key] == [
        ("anna", "pro", "2030-03-17T17:46:40.000Z"),
        ("carla", "free", None),
    ]
    assert await demands.waiters(app, "crowd", "toys") == []


async def test_a_budget_alone_has_20_tokens_and_can_be_used_outside_of_jobs(app: App) -> None:
    budget = app.budget("outside")
    assert (budget.capacity, budget.refill, budget.per) == (20, 20, 60)
    fast = app.budget("fast", capacity=20, refill=20, per=1)
    assert await app.can_afford("outside", 20) and not await app.can_afford("outside", 21)
    await app.wait_for_tokens("outside", 15)
    assert await app.can_afford("outside", 5) and not await app.can_afford("outside", 6)
    with pytest.raises(TokensTimeout, match="budget 'outside' could not pay 10 within"):
        await app.wait_for_tokens("outside", 10, timeout=0.05)
    assert (await app.budget_views())["outside"].claims == {}, "it does not keep others waiting"

    async def call() -> None:
        async with another(app) as other:
            other.budget_registry.add(fast)
            await other.wait_for_tokens("fast", 5, timeout=30)
            assert (await other.budget_views())["fast"].left >= -0.001, "nothing is spent that is not there"

    await asyncio.gather(*(call() for _ in range(8)))
    assert (await app.budget_views())["fast"].used_today == 40


async def test_the_log_has_the_time_of_each_call_and_is_in_no_list_of_queues(app: App) -> None:
    app.budget("logged", capacity=100, refill=1, per=60)
    deals = app.demand("paid", cost=5, budget="logged")

    @deals.fetch
    async def fetch(key: str) -> str:
        while key == "slow" and not await app.spending("paid"):  # it goes on when the call of the other is logged
            await asyncio.sleep(0.01)
        return key

    @app.handler("batched", budget="logged", cost=1, batch=10)
    async def batched(batch: Batch[float]) -> None:
        for job in batch:
            batch.budget.spent(job, 2, duration=job.payload)

    for key in ("slow", "quick"):
        await deals.request(key, Waiter("anna"))
    await batched.enqueue_many([0.05, 0.8])
    await app.run_until_idle(["paid", "batched"])
    page = await budgets.log(app, "logged")
    lines = {line.key: line for line in page.items if line.operation == "paid"}
    assert lines["quick"].duration < lines["slow"].duration
    assert (lines["slow"].cost, lines["slow"].success, lines["slow"].costs) == (5, True, {"logged": 5})
    assert sorted(line.duration for line in page.items if line.operation == "batched") == [0.05, 0.8]
    first = await budgets.log(app, "logged", since=0, limit=3)
    rest = await budgets.log(app, "logged", after=first.next)
    assert first.items + rest.items == page.items and rest.next is None
    names = {queue.name for queue in await queues.list(app)}
    listed = {job.queue for job in (await jobs.page(app, limit=500)).items}
    assert {name for name in names | listed if name.endswith(".spent")} == set()
