"""Handlers that do not end when they are told to: their batch goes on without them, and no other is hit."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from tests.runtime.batches import batch_of, run

from accoda.app import App
from accoda.errors import HandlerTimeout, WorkerStopped
from accoda.retry import Failed, Finished
from accoda.runtime.batch import Batch
from accoda.runtime.runners.interrupt import HandlerStopped, Turn, _raise_in, came_back, claim, interrupt, shielded
from accoda.runtime.runners.loop import LoopRunner
from accoda.runtime.runners.thread import ThreadRunner


def is_timeout(batch: Batch[Any], index: int) -> bool:
    result = batch.results[index]
    return isinstance(result, Failed) and isinstance(result.error, HandlerTimeout)


async def test_an_async_handler_that_swallows_its_cancellation_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    free = asyncio.Event()

    async def stubborn(payload: str) -> str:
        while payload == "slow" and not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()
        return payload

    runner = LoopRunner(App("memory://").handler("q")(stubborn))
    runner.grace = 0.05
    batch = batch_of("slow", "a")
    with caplog.at_level(logging.WARNING, "accoda.runners"):
        await run(runner, batch, 0.05)
    assert is_timeout(batch, 0)
    assert isinstance(batch.results[1], Finished)
    assert "job 0 of <handler stubborn of queue q> was stopped but does not end" in caplog.text
    free.set()
    await runner.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert is_timeout(batch, 0), "what it said at last came too late"


async def test_a_batch_handler_that_speaks_after_it_was_stopped_is_too_late() -> None:
    async def late(batch: Batch[Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for job in batch:
                batch.done(job)

    runner = LoopRunner(App("memory://").handler("q")(late))
    batch = batch_of(1, 2)
    await run(runner, batch, 0.02)
    assert is_timeout(batch, 0)
    assert is_timeout(batch, 1)


async def test_a_job_that_is_stopped_before_its_first_step_never_begins() -> None:
    ran = []

    async def handler(payload: int) -> None:
        ran.append(payload)

    runner = LoopRunner(App("memory://").handler("q")(handler))
    batch = batch_of(1, 2)
    running = asyncio.create_task(run(runner, batch))
    asyncio.get_running_loop().call_soon(runner.stop, batch, [0], WorkerStopped("bye"))
    await running
    assert ran == [2]
    assert isinstance(batch.results[0], Failed)


async def test_a_thread_that_is_stuck_is_given_up_and_its_neighbours_take_no_notice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    free, threads, ended = threading.Event(), list[threading.Thread](), threading.Event()

    def stuck(payload: str) -> str:
        threads.append(threading.current_thread())
        if payload == "slow":
            free.wait(60)  # in C: no exception gets in
            ended.set()
        return payload

    runner = ThreadRunner(App("memory://").handler("q")(stuck))
    runner.grace = 0.05
    held: list[asyncio.Future[None]] = []
    batch = batch_of("a", "slow", "b", "slow", "c")
    batch.hold = held.append
    with caplog.at_level(logging.WARNING, "accoda.runners"):
        await run(runner, batch, 0.5)
    assert all(isinstance(batch.results[n], Finished) for n in (0, 2, 4))
    assert is_timeout(batch, 1) and is_timeout(batch, 3)
    assert len(threads) == 5 and threads[1] is not threads[3]
    assert caplog.text.count("its thread is given up") == 2
    assert len(held) == 2 and not any(one.done() for one in held)

    free.set()  # they come back, too late
    async with asyncio.timeout(10):
        await asyncio.gather(*held)
    await runner.close()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert not ended.is_set(), "the exception was raised as soon as Python had the thread again"
    assert is_timeout(batch, 1)


async def test_a_thread_that_was_given_up_takes_no_more_jobs() -> None:
    free, ran = threading.Event(), []

    def stuck(batch: Batch[str]) -> None:
        free.wait(60)
        ran.append(len(batch))

    runner = ThreadRunner(App("memory://").handler("q")(stuck))
    runner.grace = 0.05
    batch = batch_of("a", "b")
    await run(runner, batch, 0.05)
    assert is_timeout(batch, 0)
    assert is_timeout(batch, 1)
    free.set()
    await runner.close()
    assert not ran


async def test_a_def_handler_that_swallows_the_exception_is_over_its_time_all_the_same() -> None:
    def swallow(payload: str) -> str:
        try:
            while payload == "slow":
                time.sleep(0.001)
        except BaseException:
            return "swallowed"
        return payload

    runner = ThreadRunner(App("memory://").handler("q")(swallow))
    batch = batch_of("slow", "a")
    await run(runner, batch, 0.05)
    assert is_timeout(batch, 0)
    assert isinstance(batch.results[1], Finished)
    await runner.close()


async def test_each_single_job_has_the_whole_timeout_from_its_own_start() -> None:
    def nap(payload: int) -> None:
        time.sleep(0.15)

    runner = ThreadRunner(App("memory://").handler("q")(nap))
    batch = batch_of(1, 2, 3, 4)
    await run(runner, batch, 0.4)  # 0.6 s in sum
    assert all(isinstance(result, Finished) for result in batch.results.values())
    await runner.close()


def test_a_thread_that_hangs_does_not_keep_the_interpreter() -> None:
    program = """
import asyncio, time
from accoda.app import App
from accoda.runtime.runners.thread import ThreadRunner
from tests.runtime.batches import batch_of, run

app = App("memory://")

@app.handler
def hang(payload: int) -> None:
    time.sleep(600)

async def main():
    runner = ThreadRunner(hang)
    runner.grace = 0.01
    await run(runner, batch_of(1), 0.01)
    await runner.close()
    print("over")

asyncio.run(main())
"""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=path, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "over\n"


def test_an_interruption_never_arrives_outside_of_its_turn() -> None:
    """Turns that end at just the moment in which they are interrupted, again and again."""

    shown: list[Turn] = []
    over = threading.Event()
    counts = {"hit": 0, "finished": 0}
    escaped: list[BaseException] = []

    def call(item: int) -> int:
        if item % 10 == 0:
            time.sleep(0)  # a chance for the other thread
        for _ in range(item % 50):
            pass
        return item

    def work() -> None:
        try:
            while counts["hit"] < 500:
                number = counts["hit"] + counts["finished"]
                turn = Turn(number, threading.get_ident())
                if shielded(turn, shown.append, call) is None:
                    counts["hit"] += 1
                    assert came_back(turn)
                else:
                    counts["finished"] += 1
            sum(range(1000))
        except BaseException as error:
            escaped.append(error)
        over.set()

    thread = threading.Thread(target=work)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        sent = 0
        while not over.is_set():
            if shown:
                sent += interrupt(shown[-1]) is not None
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert not escaped
    assert counts["hit"] == sent == 500


def interrupt_now(turn: Turn) -> None:
    """From another thread, while this one stands still."""
    thread = threading.Thread(target=interrupt, args=(turn,))
    thread.start()
    thread.join()


def test_an_interruption_at_the_moment_when_a_turn_is_shown_stays_inside() -> None:
    turn = Turn(1, threading.get_ident())
    assert shielded(turn, interrupt_now, lambda item: item) is None
    assert came_back(turn)


def test_an_interruption_at_the_moment_when_a_turn_ends_stays_inside() -> None:
    class Token(list[bool]):
        """The interrupter is quicker by a hair."""

        def pop(self, *args: Any) -> bool:
            if not asked:
                asked.append(True)
                interrupt_now(turn)
            return super().pop(*args)

    asked: list[bool] = []
    turn = Turn(1, threading.get_ident())
    turn.token = Token([True])
    assert shielded(turn, lambda turn: None, lambda item: item) is None
    assert came_back(turn)


def test_a_turn_does_not_end_before_the_interruption_that_was_decided_has_come() -> None:
    turn = Turn(1, threading.get_ident())

    def slow_interrupter() -> None:
        time.sleep(0.02)
        _raise_in(turn.thread, HandlerStopped)
        turn.stay = [True]

    def call(item: int) -> int:
        assert claim(turn.token), "the interrupter has decided, but not sent anything yet"
        threading.Thread(target=slow_interrupter).start()
        return item

    assert shielded(turn, lambda turn: None, call) is None
    assert came_back(turn)


def test_a_turn_that_is_over_is_not_interrupted() -> None:
    turn = Turn(1, threading.get_ident())
    assert shielded(turn, lambda turn: None, lambda item: item) == 1
    assert interrupt(turn) is None


def test_the_exception_is_none_that_handlers_catch_by_accident() -> None:
    assert not issubclass(HandlerStopped, Exception)
