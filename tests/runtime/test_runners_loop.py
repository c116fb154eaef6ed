"""Handlers on the loop: one task goes from job to job, and no job can tell."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import pytest
import pytest_asyncio
from tests.runtime import batches
from tests.runtime.batches import run

from accoda.app import App
from accoda.errors import LeaseLost
from accoda.retry import PLAIN, Failed
from accoda.runtime.batch import BatchRun, current
from accoda.runtime.runners import make_runner

Make = Callable[[Callable[..., Any]], Any]

word: ContextVar[str] = ContextVar("word", default="none")


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    runners: list[Any] = []

    def make(function: Callable[..., Any]) -> Any:
        runner: Any = make_runner(App("memory://").handler("q")(function), ())
        runner.grace = 0.1
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        await runner.close()


def batch_of(count: int) -> BatchRun:
    return batches.batch_of(*range(count))


async def test_jobs_that_never_wait_share_a_task_and_are_run_in_order(make: Make) -> None:
    seen: list[int] = []
    tasks: set[asyncio.Task[Any] | None] = set()

    async def handle(payload: int) -> None:
        seen.append(payload)
        tasks.add(asyncio.current_task())

    batch = batch_of(20)
    await run(make(handle), batch)
    assert seen == list(range(20))
    assert len(tasks) == 1 and tasks != {asyncio.current_task()}
    assert batch.results == dict.fromkeys(range(20), PLAIN)


@pytest.mark.parametrize("waits", [{0}, {7}, {19}, {5, 6, 15}, set(range(0, 20, 5)), set(range(20))])
async def test_jobs_that_wait_run_together_each_in_a_task_of_its_own(make: Make, waits: set[int]) -> None:
    tasks: dict[int, asyncio.Task[Any] | None] = {}
    together = asyncio.Barrier(len(waits))

    async def handle(payload: int) -> int:
        tasks[payload] = asyncio.current_task()
        if payload in waits:
            await together.wait()  # none gets past it before the last has come
        assert current.get().id == payload  # type: ignore[union-attr]
        assert asyncio.current_task() is tasks[payload]
        return payload

    batch = batch_of(20)
    await run(make(handle), batch, 5)
    assert not any(isinstance(result, Failed) for result in batch.results.values())
    assert len(batch.results) == 20
    waiting = [tasks[payload] for payload in waits]
    assert len(set(waiting)) == len(waits)


async def test_a_task_in_which_a_job_has_waited_runs_no_other_after_it(make: Make) -> None:
    tasks: dict[int, asyncio.Task[Any] | None] = {}

    async def handle(payload: int) -> None:
        tasks[payload] = asyncio.current_task()
        if payload % 5 == 4:
            await asyncio.sleep(0)

    await run(make(handle), batch_of(20))
    assert all(tasks[waited] is not tasks[later] for waited in range(4, 20, 5) for later in range(waited + 1, 20))


async def test_what_a_job_puts_into_its_context_is_not_seen_by_the_next(make: Make) -> None:
    seen: list[str] = []

    async def handle(payload: int) -> None:
        seen.append(word.get())
        if payload % 3 == 0:
            word.set(f"of job {payload}")

    await run(make(handle), batch_of(20))
    assert seen == ["none"] * 20


async def test_values_that_cannot_be_compared_do_no_harm_in_a_context(make: Make) -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    odd: ContextVar[Odd | None] = ContextVar("odd", default=None)
    seen: list[Odd | None] = []

    async def handle(payload: int) -> None:
        seen.append(odd.get())
        odd.set(Odd())

    batch = batch_of(10)
    await run(make(handle), batch)
    assert seen == [None] * 10
    assert batch.results == dict.fromkeys(range(10), PLAIN)


async def test_a_job_that_cancels_its_own_task_does_not_cancel_the_next(make: Make) -> None:
    async def handle(payload: int) -> None:
        if payload == 4:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        elif payload > 4:
            await asyncio.sleep(0)

    batch = batch_of(8)
    await run(make(handle), batch)
    assert batch.results == dict.fromkeys(range(8), PLAIN)


async def test_what_one_job_raises_is_its_own(make: Make) -> None:
    async def handle(payload: int) -> None:
        if payload % 2:
            raise ValueError(payload)

    batch = batch_of(9)
    await run(make(handle), batch)
    failed = {id: str(result.error) for id, result in batch.results.items() if isinstance(result, Failed)}
    assert failed == {1: "1", 3: "3", 5: "5", 7: "7"}


async def test_a_timeout_of_a_job_s_own_ends_that_job_alone(make: Make) -> None:
    async def handle(payload: int) -> None:
        async with asyncio.timeout(0.01):
            if payload == 6:
                await asyncio.Event().wait()

    batch = batch_of(12)
    await run(make(handle), batch)
    failed = {id: type(result.error) for id, result in batch.results.items() if isinstance(result, Failed)}
    assert failed == {6: TimeoutError}


async def test_a_stop_between_the_first_step_of_a_task_and_the_next_of_its_runner_stops_it(make: Make) -> None:
    """Another thread may call in at that moment. Here the loop's maker of tasks does, so that it happens each time."""
    ended: list[int] = []

    async def handle(payload: int) -> None:
        try:
            if payload == 2:
                await asyncio.Event().wait()
        finally:
            ended.append(payload)

    runner, batch, loop = make(handle), batch_of(8), asyncio.get_running_loop()
    stops = iter([(batch, [2], LeaseLost("gone"))])

    def factory(loop: asyncio.AbstractEventLoop, call: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(call, loop=loop, **options)
        for stop in stops:
            loop.call_soon(runner.stop, *stop)
        return task

    running = loop.create_task(run(runner, batch))
    loop.set_task_factory(factory)
    try:
        await asyncio.wait([running], timeout=5)
    finally:
        loop.set_task_factory(None)
    assert running.done()
    assert sorted(ended) == list(range(8))
    failed = {id: type(result.error) for id, result in batch.results.items() if isinstance(result, Failed)}
    assert failed == {2: LeaseLost}


async def test_a_batch_gives_the_same_jobs_each_time_and_new_ones_when_it_is_over() -> None:
    batch = batch_of(3)
    first = list(batch)
    assert list(batch) == first and batch[1] is first[1] and list(batch.passing()) == first
    batch.forget()
    assert [job.id for job in batch] == [0, 1, 2] and batch[1] is not first[1]
    assert len(batch) == 3 and [job.payload for job in batch] == [0, 1, 2]
    batch.bury(first[0], "still of this batch")


async def test_a_task_that_is_destroyed_with_its_loop_runs_no_other_job(make: Make) -> None:
    """Python throws GeneratorExit into its coroutine then, which must not go on to the next job."""
    ran: list[int] = []

    async def work(payload: int) -> None:
        ran.append(payload)
        await asyncio.Event().wait()

    batch = batch_of(5)
    batch.todo = batch.passing()
    driver = make(work)._drive(batch)
    task = asyncio.create_task(driver)
    await asyncio.sleep(0)
    driver.close()
    assert ran == [0]
    assert isinstance(batch.results[0], Failed)
    task.cancel()  # its coroutine is closed: there is nothing left to run
    await asyncio.wait([task])
