"""A job that may be poison runs while its process holds no other."""

import asyncio

from accoda import App, ManualClock, Worker, WorkerOptions
from accoda.runtime.poison_isolation import PoisonIsolation
from accoda.settings import Settings


async def crash(app: App, clock: ManualClock, queue: str, times: int) -> None:
    """Take everything and let the leases end, as a process does that dies."""
    for _ in range(times):
        await app.storage.take(queue, 1000, lease=1)
        clock.advance(2)
        await app.storage.stats()


async def run(app: App, queue: str, count: int, processors: int) -> None:
    settings = Settings.load(environ={}, overrides={"max_processors": processors})
    worker = Worker(app, WorkerOptions(settings=settings, managed=False))
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while (await app.storage.stats()).queues[queue].done < count:
            await asyncio.sleep(0.005)
    worker.shutdown()
    await task


async def test_nothing_else_is_in_hand_while_a_suspect_runs() -> None:
    clock = ManualClock()
    app = App("memory://", clock=clock)
    beside: dict[int, int] = {}

    @app.handler("a", batch=5, max_crashes=3)
    async def work(n: int) -> None:
        await asyncio.sleep(0.002)
        if app.current.job.crashes:
            beside[n] = (await app.storage.stats()).queues["a"].taken - 1

    await app.enqueue_many("a", range(12))
    await crash(app, clock, "a", 1)
    await app.enqueue_many("a", range(100, 150))
    await run(app, "a", 62, processors=4)
    assert beside == dict.fromkeys(range(12), 0)
    assert (await app.storage.stats()).queues["a"].dead == 0


async def test_a_suspect_goes_back_at_most_a_few_times() -> None:
    """Taken one by one as soon as the first is seen."""
    clock = ManualClock()
    app = App("memory://", clock=clock)
    attempts: list[int] = []

    @app.handler("a", batch=50, max_crashes=3)
    async def work(n: int) -> None:
        attempts.append(app.current.attempts)

    await app.enqueue_many("a", range(50))
    await crash(app, clock, "a", 1)
    await run(app, "a", 50, processors=1)
    assert max(attempts) == 2  # one crash, and once given back


async def test_a_suspect_that_runs_for_long_does_not_stop_the_others() -> None:
    clock = ManualClock()
    app = App("memory://", clock=clock)
    gate = asyncio.Event()

    @app.handler("a", batch=1, lease=0.05, max_crashes=3)
    async def work(n: int) -> None:
        if app.current.job.crashes:
            await gate.wait()
        elif n == 9:
            gate.set()

    await app.enqueue_many("a", [0])
    await crash(app, clock, "a", 1)
    await app.enqueue_many("a", range(1, 10))
    await run(app, "a", 10, processors=2)  # without the bound, the first would wait for the last for ever
    assert gate.is_set()


async def test_the_turn_waits_for_the_hands_of_the_others() -> None:
    ends: list[bool] = []
    isolation = PoisonIsolation(lambda: ends.append(True))
    me, other = object(), object()
    isolation.at_work |= {me, other}
    gaining = asyncio.create_task(isolation.begin(me, 60))
    await asyncio.sleep(0)
    assert not gaining.done()
    assert not await isolation.begin(other, 60)  # one at a time: the second puts its job down
    isolation.leave(other)
    assert await gaining
    isolation.end(other)  # not theirs
    assert isolation.owner is me and not ends
    isolation.end(me)
    assert isolation.owner is None and ends == [True]


async def test_the_wait_for_a_long_batch_is_bounded() -> None:
    isolation = PoisonIsolation()
    isolation.at_work |= {"me", "long"}
    assert await isolation.begin("me", 0.01)
