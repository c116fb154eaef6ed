"""Budgets in a worker: what is taken, what waits, what goes back, with a clock that tests move."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from accoda import App, Batch, InvalidInput, ManualClock, NewJob, Priority, StorageUnavailable, Worker, WorkerOptions
from accoda.budget import Observation
from accoda.connections import Connections
from accoda.errors import RateLimited, RetryLater
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage
from accoda.storage.observed import Call, Observed
from accoda.storage.protocol import Store


class Fixed(Connections):
    """Connections that give one store, whatever it is."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        super().__init__("memory://", clock)
        self.store = store

    async def open(self) -> Store:
        return self.store

    async def put_back(self, store: Store) -> None: ...


class BudgetedApp:
    """An app in memory with one budget, a clock, and a record of the calls of the store."""

    def __init__(self, **budget: Any) -> None:
        self.clock = ManualClock()
        self.calls: list[Call] = []
        self.app = App("memory://")
        self.app.connections = Fixed(Observed(MemoryStorage(self.clock), self.calls.append), self.clock)
        self.app.budget("keepa", **{"capacity": 20, "refill": 20, "per": 60, **budget})

    async def view(self, name: str = "keepa") -> Any:
        return (await self.app.budget_views())[name]

    async def idle(self) -> int:
        return await self.app.run_until_idle()


@pytest.fixture
def budgeted() -> BudgetedApp:
    return BudgetedApp()


@asynccontextmanager
async def running(app: App, **overrides: Any) -> AsyncIterator[Worker]:
    settings = Settings.load(environ={}, overrides=overrides)
    worker = Worker(app, WorkerOptions(settings=settings, managed=False, system_jobs=False))
    await worker.init()
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.shutdown()
        async with asyncio.timeout(5):
            await task


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.002)


# -- what is taken


async def test_jobs_run_as_far_as_the_tokens_go_and_the_rest_after_the_refill(budgeted: BudgetedApp) -> None:
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=5)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue_many(range(6))
    assert await budgeted.idle() == 4
    assert (await budgeted.view()).left == 0
    budgeted.clock.advance(15)
    assert await budgeted.idle() == 1
    budgeted.clock.advance(14)
    assert await budgeted.idle() == 0
    budgeted.clock.advance(1)
    assert await budgeted.idle() == 1
    assert ran == list(range(6))


async def test_a_budget_of_jobs_and_one_of_tokens_are_reserved_together() -> None:
    budgeted = BudgetedApp()
    budgeted.app.budget("requests", capacity=3, refill=3, per=60, counts="jobs")
    ran: list[int] = []

    @budgeted.app.handler("deals", budget=("requests", "keepa"), cost=1)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue_many(range(5))
    assert await budgeted.idle() == 3
    assert ((await budgeted.view()).left, (await budgeted.view("requests")).left) == (17, 0)
    await fetch.enqueue(9, cost=18, priority=Priority.HIGH)
    budgeted.clock.advance(20)  # a request came in, and the 18 tokens of the head that were missing one
    assert await budgeted.idle() == 1
    assert ran == [0, 1, 2, 9]


async def test_a_budget_that_counts_jobs_limits_their_number() -> None:
    budgeted = BudgetedApp(capacity=3, refill=3, counts="jobs")

    @budgeted.app.handler("deals", budget="keepa", cost=100)
    async def fetch(n: int) -> None: ...

    await fetch.enqueue_many(range(5))
    assert await budgeted.idle() == 3
    budgeted.clock.advance(20)
    assert await budgeted.idle() == 1


async def test_a_job_that_is_never_begun_costs_nothing(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa")
    async def fetch(n: int) -> None: ...

    await budgeted.app.storage.enqueue([NewJob("deals", b"\xc1", cost=5)])  # no payload: buried unrun
    await fetch.enqueue(1, cost=2)
    assert await budgeted.idle() == 1
    assert (await budgeted.app.storage.stats()).queues["deals"].dead == 1
    view = await budgeted.view()
    assert (view.used_today, view.reserved, view.left) == (2, 0, 18)
    assert len(await budgeted.app.spending("deals")) == 1


async def test_an_expensive_head_is_served_as_soon_as_it_is_affordable_among_cheap_ones(budgeted: BudgetedApp) -> None:
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=1, batch=5)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue_many(range(18))
    await fetch.enqueue(100, cost=15)
    await fetch.enqueue_many(range(20, 60))
    assert await budgeted.idle() == 18
    for _ in range(38):  # 2 tokens are left, 13 come in within 39 s; the cheap ones behind it must not eat them
        budgeted.clock.advance(1)
        assert await budgeted.idle() == 0
    budgeted.clock.advance(1)
    assert await budgeted.idle() == 1
    assert ran[-1] == 100


async def test_an_expensive_head_is_not_starved_by_another_queue_of_the_same_budget(budgeted: BudgetedApp) -> None:
    ran: list[str] = []

    @budgeted.app.handler("cheap", budget="keepa", cost=1)
    async def cheap(n: int) -> None:
        ran.append("cheap")

    @budgeted.app.handler("dear", budget="keepa", cost=15)
    async def dear(n: int) -> None:
        ran.append("dear")

    await cheap.enqueue_many(range(20))
    await budgeted.idle()
    await dear.enqueue(1)
    await cheap.enqueue_many(range(200))
    seconds = 0
    while "dear" not in ran:
        budgeted.clock.advance(1)
        seconds += 1
        await budgeted.idle()
    assert seconds == 48  # 15 tokens at 20 a minute, after the one cheap job that had waited before it
    assert ran.count("cheap") == 21


async def test_the_last_share_is_kept_for_urgent_work() -> None:
    budgeted = BudgetedApp(headroom=0.25)
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=5, batch=10)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue_many(range(4))
    assert await budgeted.idle() == 3
    await fetch.enqueue(7, priority=Priority.HIGH)
    assert await budgeted.idle() == 1
    assert ran == [0, 1, 2, 7]


async def test_what_counts_as_urgent_can_be_said(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("plain", budget="keepa")
    async def plain(n: int) -> None: ...
    @budgeted.app.handler("told", budget="keepa", urgent=0.0)
    async def told(n: int) -> None: ...
    @budgeted.app.handler("aging", budget="keepa", policy="aging")
    async def aging(n: int) -> None: ...

    worker = Worker(budgeted.app)
    await worker.init()
    services = worker._services
    for name, urgent in {"plain": [0, 1], "told": [0], "aging": [0, 1]}.items():
        for level in Priority:
            job = await budgeted.app.enqueue(name, 1, priority=level, delay=60)
            found = await budgeted.app.find(job.id)
            assert found is not None
            assert services[name].is_urgent(found) is (level in urgent)
    await worker._leave()


async def test_a_head_that_can_never_be_paid_is_buried_with_the_reason(budgeted: BudgetedApp) -> None:
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=1)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue(1, cost=21)
    await fetch.enqueue(2)
    assert await budgeted.idle() == 1
    (dead,) = await budgeted.app.storage.browse("deals", "dead")
    assert dead.reason == "costs 21, and budget 'keepa' holds 20 at most"
    assert ran == [2]
    assert (await budgeted.view()).left == 19


async def test_a_job_that_comes_before_one_that_can_never_be_paid_is_paid_for_itself(budgeted: BudgetedApp) -> None:
    class Racing(MemoryStorage):
        raced = False

        async def take(self, queue: str, count: int, **options: Any) -> Any:
            if not self.raced:
                self.raced = True
                await budgeted.app.enqueue("deals", 3, priority=Priority.CRITICAL, cost=4)
            return await super().take(queue, count, **options)

    budgeted.app.connections = Fixed(Racing(budgeted.clock), budgeted.clock)
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=1)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue(1, cost=21)
    await budgeted.idle()
    assert ran == [3]
    assert (await budgeted.app.storage.stats()).queues["deals"].dead == 1
    assert (await budgeted.view()).left == 16


async def test_queues_without_budgets_take_as_ever(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=1)
    async def fetch(n: int) -> None: ...
    @budgeted.app.handler("plain")
    async def plain(n: int) -> None: ...

    await plain.enqueue_many(range(30))
    budgeted.calls.clear()
    assert await budgeted.idle() == 30
    assert "look" not in {call.verb for call in budgeted.calls if call.queue == "plain"}
    assert "write" not in {call.verb for call in budgeted.calls}


# -- what is blocked


async def test_an_empty_budget_delays_no_other_queue_of_the_worker(budgeted: BudgetedApp) -> None:
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=20)
    async def fetch(n: int) -> None: ...
    @budgeted.app.handler("plain")
    async def plain(n: int) -> None:
        ran.append(n)

    await fetch.enqueue_many(range(10))
    async with running(budgeted.app) as worker:
        await until(lambda: "deals" in worker._ready_context().rotation.blocked())
        for n in range(50):
            await plain.enqueue(n)
            await until(lambda n=n: ran[-1:] == [n])  # type: ignore[misc]
        assert worker._ready_context().rotation.blocked() == ["deals"]


async def test_a_queue_that_waits_for_tokens_calls_the_store_once_in_five_seconds(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=20)
    async def fetch(n: int) -> None: ...

    await fetch.enqueue_many(range(3))
    async with running(budgeted.app, max_processors=4) as worker:
        rotation = worker._ready_context().rotation
        await until(lambda: rotation.blocked() and not rotation.busy("deals"))
        budgeted.calls.clear()
        await asyncio.sleep(0.3)
        assert {call.verb for call in budgeted.calls} <= {"stats", "write"}  # the heartbeat
        assert not [call for call in budgeted.calls if call.verb == "look"]
        for look in range(1, 4):
            budgeted.clock.advance(5)
            await until(lambda n=look: sum(call.verb == "look" for call in budgeted.calls) == n)  # type: ignore[misc]
            await until(lambda: rotation.blocked() == ["deals"])
        await asyncio.sleep(0.1)
        assert sum(call.verb == "look" for call in budgeted.calls) == 3
        assert not [call for call in budgeted.calls if call.verb == "take"]


async def test_tokens_that_come_back_in_this_process_wake_a_held_queue_at_once(budgeted: BudgetedApp) -> None:
    ran: list[int] = []
    go = asyncio.Event()

    @budgeted.app.handler("slow", budget="keepa", cost=20)
    async def slow(n: int) -> None:
        await go.wait()
        budgeted.app.current.budget.spent(3)

    @budgeted.app.handler("quick", budget="keepa", cost=10)
    async def quick(n: int) -> None:
        ran.append(n)

    await slow.enqueue(1)
    async with running(budgeted.app, max_processors=2) as worker:
        await until(lambda: worker._ready_context().rotation.busy("slow"))
        await quick.enqueue(1)
        await until(lambda: worker._ready_context().rotation.blocked() == ["quick"])
        assert ran == []
        go.set()
        await until(lambda: ran == [1])  # the clock stands still: no timer did it
    assert (await budgeted.view()).left == 7


async def test_a_budget_that_is_opened_or_observed_by_hand_wakes_a_held_queue_at_once(budgeted: BudgetedApp) -> None:
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=20)
    async def fetch(n: int) -> None:
        ran.append(n)

    await budgeted.app.books.close(["keepa"], budgeted.clock.now() + 3_600_000)
    await fetch.enqueue_many([1, 2])
    async with running(budgeted.app) as worker:
        await until(lambda: worker._ready_context().rotation.blocked())
        await budgeted.app.books.reopen(["keepa"])
        await until(lambda: ran == [1])
        await until(lambda: worker._ready_context().rotation.blocked())
        await budgeted.app.books.observe(Observation("keepa", 20, budgeted.clock.now()))
        await until(lambda: ran == [1, 2])


async def test_a_held_queue_is_no_stall(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=20)
    async def fetch(n: int) -> None: ...

    await fetch.enqueue_many(range(3))
    async with running(budgeted.app, heartbeat=0.02, stall_after=0.1) as worker:
        await until(lambda: worker._ready_context().rotation.blocked())
        await asyncio.sleep(0.4)
        assert worker.problem == ""


# -- what it cost


async def test_the_real_cost_counts_and_the_rest_comes_back(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=8)
    async def fetch(n: int) -> None:
        budgeted.app.current.budget.spent(n)

    await fetch.enqueue_many([3, 0])
    assert await budgeted.idle() == 2
    view = await budgeted.view()
    assert (view.left, view.reserved, view.used_today) == (17, 0, 3)


async def test_a_batch_says_what_each_job_cost(budgeted: BudgetedApp) -> None:
    budgeted.app.budget("requests", capacity=10, refill=10, per=60, counts="jobs")

    @budgeted.app.handler("deals", budget=("keepa", "requests"), cost=5)
    async def fetch(batch: Batch[int]) -> None:
        batch.budget.spent(batch[0], 1)
        batch.budget.spent(batch[1], 7)
        batch.budget.spent(batch[1], 0)

    await fetch.enqueue_many(range(3))
    assert await budgeted.idle() == 3
    assert ((await budgeted.view()).used_today, (await budgeted.view("requests")).used_today) == (6, 2)


async def test_jobs_of_one_take_that_run_apart_are_settled_together(budgeted: BudgetedApp) -> None:
    batches: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=3)
    async def fetch(batch: Batch[int]) -> None:
        batches.append(len(batch))
        batch.budget.observe(left=18 - 3 * sum(batches))

    await fetch.enqueue_many(range(3))
    await budgeted.app.storage.take("deals", 1, lease=1)
    budgeted.clock.advance(1)  # its worker died: it runs apart from those that lost no lease
    assert await budgeted.idle() == 3
    assert batches == [2, 1]
    view = await budgeted.view()
    assert (view.used_today, view.reserved, view.left) == (9, 0, 9)


async def test_jobs_that_are_finished_early_are_logged_early_and_paid_once(budgeted: BudgetedApp) -> None:
    go = asyncio.Event()

    @budgeted.app.handler("deals", budget="keepa", cost=4)
    async def fetch(n: int) -> None:
        if n:
            await go.wait()

    await fetch.enqueue_many([0, 1])
    async with running(budgeted.app):
        async with asyncio.timeout(5):
            while not await budgeted.app.spending("deals"):
                await asyncio.sleep(0)  # in memory nothing else would let the worker go on
        assert (await budgeted.view()).reserved == 8
        go.set()
    assert len(await budgeted.app.spending("deals")) == 2
    view = await budgeted.view()
    assert (view.reserved, view.used_today) == (0, 8)


async def test_a_failed_run_costs_what_the_job_costs(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=5, retry=3600)
    async def fetch(n: int) -> None:
        raise ValueError("no")

    await fetch.enqueue(1)
    await budgeted.idle()
    assert (await budgeted.view()).left == 15


async def test_the_apis_own_numbers_override_the_estimate(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=1, batch=1)
    async def fetch(left: int) -> None:
        budgeted.app.current.budget.observe(left=left, refill_in=30)

    await fetch.enqueue_many([7, 2])
    assert await budgeted.idle() == 2
    view = await budgeted.view()
    assert (view.left, view.observed_left, view.next_refill) == (2, 2, budgeted.clock.now() + 30_000)
    budgeted.clock.advance(29.9)
    assert (await budgeted.view()).left == 2
    budgeted.clock.advance(0.1)
    assert (await budgeted.view()).left == 20


async def test_a_job_whose_answer_told_nothing_is_taken_off_what_the_others_were_told(budgeted: BudgetedApp) -> None:
    """The API charges all four; the answer of the last could not be read."""

    @budgeted.app.handler("deals", budget="keepa", cost=5)
    async def fetch(left: int | None) -> None:
        if left is None:
            raise ValueError("broken JSON")
        budgeted.app.current.budget.observe(left=left, refill_in=30)

    await fetch.enqueue_many([15, 10, 5, None])
    assert await budgeted.idle() == 4
    assert (await budgeted.view()).left == 0


@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_notes_may_come_from_threads(budgeted: BudgetedApp, where: str) -> None:
    def say() -> None:
        budgeted.app.current.budget.observe(left=12, reset_at=budgeted.clock.now() + 90_000)
        budgeted.app.current.budget.spent(2)

    @budgeted.app.handler("a", budget="keepa", cost=1)
    async def on_loop(n: int) -> None:
        await asyncio.to_thread(say)

    @budgeted.app.handler("b", budget="keepa", cost=1)
    def in_thread(n: int) -> None:
        say()

    await budgeted.app.enqueue("a" if where == "loop" else "b", 1)
    assert await budgeted.idle() == 1
    view = await budgeted.view()
    assert (view.left, view.used_today, view.next_refill) == (12, 2, budgeted.clock.now() + 90_000)


async def test_a_closed_budget_gives_nothing_until_its_moment(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=1, batch=1)
    async def fetch(batch: Batch[int]) -> None:
        batch.budget.close(seconds=timedelta(seconds=90))

    await fetch.enqueue_many([1, 2])
    assert await budgeted.idle() == 1
    budgeted.clock.advance(89.999)
    assert await budgeted.idle() == 0
    budgeted.clock.advance(0.001)
    assert await budgeted.idle() == 1
    view = await budgeted.view()
    assert (view.refused_today, view.closed_until) == (2, budgeted.clock.now() + 90_000)


async def test_rate_limited_closes_the_budgets_and_the_job_comes_back_then_however_often(budgeted: BudgetedApp) -> None:
    attempts: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=5, max_attempts=2, batch=1)
    async def fetch(n: int) -> None:
        attempts.append(budgeted.app.current.attempts)
        if len(attempts) < 5:
            raise RateLimited(retry_after=40)

    await fetch.enqueue_many([1, 2])
    for _ in range(4):
        assert await budgeted.idle() == 1
        view = await budgeted.view()
        assert (view.used_today, view.closed_until) == (0, budgeted.clock.now() + 40_000)
        budgeted.clock.advance(40)
    assert await budgeted.idle() == 2
    assert (await budgeted.app.storage.stats()).queues["deals"].dead == 0
    assert (await budgeted.view()).refused_today == 4


async def test_one_of_several_budgets_may_be_the_limited_one(budgeted: BudgetedApp) -> None:
    budgeted.app.budget("project", capacity=100, refill=100, per=60)

    @budgeted.app.handler("deals", budget=("keepa", "project"), cost=1)
    async def fetch(n: int) -> None:
        raise RateLimited(at=budgeted.clock.now() + 5000, budget="project")

    await fetch.enqueue(1)
    await budgeted.idle()
    assert (await budgeted.view()).closed_until is None
    assert (await budgeted.view("project")).closed_until == budgeted.clock.now() + 5000


async def test_rate_limited_without_a_budget_is_a_retry(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("plain")
    async def plain(n: int) -> None:
        raise RateLimited(7)

    await plain.enqueue(1)
    await budgeted.idle()
    (job,) = await budgeted.app.storage.browse("plain", "delayed")
    assert job.start_time == budgeted.clock.now() + 7000
    with pytest.raises(InvalidInput, match="retry_after"):
        RateLimited()
    assert isinstance(RateLimited(1), RetryLater)


# -- mistakes


async def test_mistakes_in_what_a_handler_says_are_named(budgeted: BudgetedApp) -> None:
    budgeted.app.budget("project", capacity=100, refill=100, per=60)
    seen: list[str] = []

    @budgeted.app.handler("two", budget=["keepa", "project"], cost=1)
    async def two(batch: Batch[int]) -> None:
        tries: list[Callable[[], None]] = [
            lambda: batch.budget.observe(left=3),
            lambda: batch.budget.observe(left=3, budget="stranger"),
            lambda: batch.budget.observe(left=float("nan"), budget="keepa"),
            lambda: batch.budget.observe(left=1, refill_in=1, reset_at=2, budget="keepa"),
            lambda: batch.budget.spent(batch[0], -1),
            lambda: batch.budget.close(),
        ]
        for one in tries:
            with pytest.raises(InvalidInput) as caught:
                one()
            seen.append(caught.value.field)

    @budgeted.app.handler("none")
    async def none(n: int) -> None:
        with pytest.raises(InvalidInput, match="the queue none has none"):
            budgeted.app.current.budget.observe(left=1)
        seen.append("none")

    await two.enqueue(1)
    await none.enqueue(1)
    assert await budgeted.idle() == 2
    assert seen == ["budget", "budget", "left", "reset_at", "cost", "until", "none"]
    assert (await budgeted.view()).left == 19


async def test_mistakes_in_what_is_declared_are_named(budgeted: BudgetedApp) -> None:
    with pytest.raises(InvalidInput, match="declared already"):
        budgeted.app.budget("keepa", capacity=1, refill=1, per=1)
    with pytest.raises(InvalidInput, match="each budget once"):
        budgeted.app.handler("a", budget=("keepa", "keepa"))(lambda n: None)
    with pytest.raises(InvalidInput, match="the name of a budget"):
        budgeted.app.handler("b", budget=7)(lambda n: None)  # type: ignore[call-overload]

    @budgeted.app.handler("deals", budget="keeper", cost=1)
    async def fetch(n: int) -> None: ...

    with pytest.raises(InvalidInput, match=r"'keeper' of deals is not declared.*there is keepa"):
        Worker(budgeted.app)


# -- what goes back


async def test_a_take_that_fails_gives_its_tokens_back(budgeted: BudgetedApp) -> None:
    class Failing(MemoryStorage):
        fails = True

        async def take(self, queue: str, count: int, **options: Any) -> Any:
            if self.fails:
                self.fails = False
                raise StorageUnavailable("away")
            return await super().take(queue, count, **options)

    budgeted.app.connections = Fixed(Failing(budgeted.clock), budgeted.clock)
    ran: list[int] = []

    @budgeted.app.handler("deals", budget="keepa", cost=20)
    async def fetch(n: int) -> None:
        ran.append(n)

    await fetch.enqueue(1)
    assert await budgeted.idle() == 1
    assert ran == [1]


async def test_a_worker_that_stops_gives_back_what_it_did_not_begin(budgeted: BudgetedApp) -> None:
    began = asyncio.Event()

    @budgeted.app.handler("deals", budget="keepa", cost=5, batch=2)
    async def fetch(n: int) -> None:
        began.set()
        await asyncio.sleep(3600)

    await fetch.enqueue_many(range(2))
    settings = Settings.load(environ={}, overrides={})
    worker = Worker(budgeted.app, WorkerOptions(settings=settings, managed=False))
    task = asyncio.create_task(worker.run())
    await began.wait()
    assert (await budgeted.view()).reserved == 10
    assert not await worker.graceful_stop(0.01)
    await task
    view = await budgeted.view()
    assert (view.reserved, view.used_today) == (0, 10)  # both had begun


async def test_reservations_last_while_the_batch_runs(budgeted: BudgetedApp) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    @budgeted.app.handler("deals", budget="keepa", cost=20, lease=0.8)
    async def fetch(n: int) -> None:
        began.set()
        await go.wait()

    await fetch.enqueue(1)
    async with running(budgeted.app) as worker:
        await began.wait()
        wallet = worker._wallet
        assert wallet is not None
        for _ in range(20):  # far beyond the lease and its grace
            budgeted.clock.advance(0.5)
            await wallet.renew()
        assert (await budgeted.view()).reserved == 20
        go.set()
    assert (await budgeted.view()).reserved == 0


async def test_the_worker_renews_again_and_again_in_a_burst_too(budgeted: BudgetedApp) -> None:
    go = asyncio.Event()

    @budgeted.app.handler("deals", budget="keepa", cost=20, lease=0.2)
    async def fetch(n: int) -> None:
        await go.wait()

    await fetch.enqueue(1)
    for burst in (False, True):
        budgeted.clock.advance(60)
        worker = Worker(budgeted.app, WorkerOptions(managed=False, burst=burst))
        await worker.init()
        wallet = worker._wallet
        assert wallet is not None
        looks: list[int] = []
        renew = wallet.renew

        async def counted(looks: list[int] = looks, renew: Callable[[], Any] = renew) -> None:
            await renew()
            looks.append(1)

        wallet.renew = counted  # type: ignore[method-assign]
        task = asyncio.create_task(worker.run())
        await until(lambda looks=looks: len(looks) >= 3)  # type: ignore[misc]
        await worker.graceful_stop(0)
        await task


async def test_what_was_taken_and_never_begun_costs_nothing_when_the_worker_leaves(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=5)
    async def fetch(n: int) -> None: ...

    await fetch.enqueue_many(range(2))
    worker = Worker(budgeted.app)
    await worker.init()
    assert len((await worker._services["deals"].access.take(10)).jobs) == 2
    assert (await budgeted.view()).reserved == 10
    await worker._leave()
    view = await budgeted.view()
    assert (view.reserved, view.left, view.used_today) == (0, 20, 0)


async def test_a_mistake_of_ours_renews_no_reservation_for_ever(
    budgeted: BudgetedApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=5, lease=30)
    async def fetch(n: int) -> None: ...

    def broken(owner: object, jobs: object) -> Any:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("accoda.runtime.processor.open_jobs", broken)
    await fetch.enqueue(1)
    async with running(budgeted.app) as worker:
        await until(lambda: "a mistake of ours" in caplog.text)
        wallet = worker._wallet
        assert wallet is not None
        for _ in range(4):
            budgeted.clock.advance(12)
            await wallet.renew()
        assert (await budgeted.view()).reserved == 0


async def test_reservations_of_the_dead_come_back_with_their_lease(budgeted: BudgetedApp) -> None:
    began = asyncio.Event()

    @budgeted.app.handler("deals", budget="keepa", cost=20, lease=30)
    async def fetch(n: int) -> None:
        began.set()
        await asyncio.sleep(3600)

    await fetch.enqueue(1)
    worker = Worker(budgeted.app, WorkerOptions(managed=False))
    task = asyncio.create_task(worker.run())
    await began.wait()
    budgeted.clock.advance(29)
    assert (await budgeted.view()).reserved == 20  # it is not renewed: the loop of this worker is as good as dead
    budgeted.clock.advance(7)
    view = await budgeted.view()
    assert (view.reserved, view.left) == (0, 20)
    await worker.graceful_stop(0)
    await task


# -- the log


async def test_every_run_leaves_a_line_in_the_log(budgeted: BudgetedApp) -> None:
    budgeted.app.budget("requests", capacity=50, refill=10, per=60, counts="jobs")

    @budgeted.app.handler("deals", budget=("keepa", "requests"), cost=2, retry=3600, batch=1)
    async def fetch(n: int) -> None:
        budgeted.clock.advance(1.5)
        budgeted.app.current.budget.spent(n)
        if n == 3:
            raise ValueError("no")

    first = await fetch.enqueue(1, key="Informatica")
    await fetch.enqueue(3)
    middle = budgeted.clock.now() + 2000
    await budgeted.idle()
    one, two = await budgeted.app.spending("deals")
    assert (one.operation, one.cost, one.key, one.job) == ("deals", 1, "Informatica", first.id)
    assert (one.success, one.duration, one.at) == (True, 1.5, two.at - 1500)
    assert (one.costs, one.budgets) == ({"keepa": 1, "requests": 1}, ("keepa", "requests"))
    assert (two.success, two.cost, two.at) == (False, 3, budgeted.clock.now())
    assert await budgeted.app.spending("deals", limit=1) == [one]
    assert await budgeted.app.spending("deals", after=one.id) == [two]
    assert await budgeted.app.spending("deals", since=middle) == [two]
    assert await budgeted.app.spending("other") == []


async def test_the_log_is_kept_for_a_time(budgeted: BudgetedApp) -> None:
    @budgeted.app.handler("deals", budget="keepa", cost=1, log_for=timedelta(days=1))
    async def fetch(n: int) -> None: ...
    @budgeted.app.handler("silent", budget="keepa", cost=1, log_for=0)
    async def silent(n: int) -> None: ...

    await fetch.enqueue_many(range(3))
    await silent.enqueue(1)
    await budgeted.idle()
    budgeted.clock.advance(86_400)
    await fetch.enqueue(1)
    await budgeted.idle()
    assert len(await budgeted.app.spending("deals")) == 4
    assert await budgeted.app.spending("silent") == []
    budgeted.clock.advance(1)
    worker = Worker(budgeted.app)
    await worker.init()
    await worker._forget_dead()
    await worker._leave()
    assert len(await budgeted.app.spending("deals")) == 1


async def test_since_is_found_in_a_long_log_without_reading_it(budgeted: BudgetedApp) -> None:
    from accoda.budget.usage import Usage, line_of

    store = budgeted.app.storage
    moments = []
    for n in range(300):
        budgeted.clock.advance(10)
        await store.enqueue([line_of(Usage(at=budgeted.clock.now(), operation="deals", job=n))])
        moments.append(budgeted.clock.now())
    for n in (0, 1, 150, 299):
        budgeted.calls.clear()
        found = await budgeted.app.spending("deals", since=moments[n], limit=2)
        assert [line.job for line in found] == [n, n + 1][: 300 - n]
        assert len(budgeted.calls) < 40
    assert await budgeted.app.spending("deals", since=moments[-1] + 1) == []
