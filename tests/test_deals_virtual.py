"""The deals example's virtual time: it jumps when there is nothing to do, and never while a call is on its way."""

from __future__ import annotations

import asyncio

import pytest
from examples.deals.api import DealsApi, Terms
from examples.deals.virtual import ApiClock, CountedClient, LoopClock, VirtualLoop, run_virtually

from accoda import App
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.settings import Settings


def test_a_day_of_sleep_takes_no_time() -> None:
    async def main(loop: VirtualLoop) -> tuple[float, int]:
        clock = LoopClock(loop, 5_000)
        await asyncio.sleep(86_400)
        return loop.time(), clock.now()

    assert run_virtually(main) == (86_400.0, 86_405_000)


def test_a_clock_wakes_at_its_moment_and_not_a_millisecond_before() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        clock, woken = LoopClock(loop, 1_700_000_000_000), []
        moments = [clock.now() + offset for offset in (1, 7, 333, 1_001, 59_999, 86_399_999)]
        for moment in moments:
            clock.call_at(moment, lambda: woken.append(clock.now()))
        cancelled = clock.call_at(moments[0], lambda: woken.append(0))
        cancelled()
        await asyncio.sleep(90_000)
        assert woken == moments
        return woken

    assert len(run_virtually(main)) == 6


def test_time_stands_still_while_a_call_is_on_its_way_and_passes_while_the_api_lets_it_wait() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        took = []
        async with DealsApi(Terms(capacity=1_000), ApiClock(loop, 0)) as api:
            client = CountedClient(api.url, loop.traffic)
            hurry = asyncio.create_task(asyncio.sleep(0.001))  # a timer that would be due long before a real answer
            for _ in range(20):
                began = loop.time()
                await client.deals("toys")
                took.append(loop.time() - began)
            await hurry
            await client.close()
        assert loop.traffic.begun == loop.traffic.asleep == 0
        async with DealsApi(Terms(latency=10.0, seed=3), ApiClock(loop, 0)) as api:
            client = CountedClient(api.url, loop.traffic)
            began = loop.time()
            await asyncio.gather(client.get("/tokens"), client.get("/tokens"))
            took.append(loop.time() - began)
            await client.close()
        return took

    *at_once, slow = run_virtually(main)
    assert at_once == [0.0] * 20
    assert 5 <= slow <= 15


def test_leases_are_kept_in_virtual_time() -> None:
    async def main(loop: VirtualLoop) -> int:
        runs = 0
        async with App("memory://", clock=LoopClock(loop, 0)) as app:

            @app.handler("long", lease=10)
            async def long(_: None) -> None:
                nonlocal runs
                runs += 1
                await asyncio.sleep(100)

            await app.enqueue("long")
            worker = Worker(app, WorkerOptions(settings=Settings.load((), environ={})))
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(200)
            worker.shutdown()
            await running
            assert (await app.storage.stats()).queues["long"].done == 1
        return runs

    assert run_virtually(main) == 1


def test_an_error_that_the_runtime_logs_is_not_overlooked() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with App("memory://", clock=LoopClock(loop, 0)) as app:

            @app.handler("one")
            async def one(_: None) -> None: ...

            def broken(stats: object) -> None:
                raise LookupError("a mistake of ours")

            worker = Worker(app, WorkerOptions(settings=Settings.load((), environ={}), on_stats=broken))
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(1)
            worker.shutdown()
            await running

    with pytest.raises(RuntimeError, match=r"errors were logged.*a mistake of ours"):
        run_virtually(main)
