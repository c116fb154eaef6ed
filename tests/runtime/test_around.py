"""What an app puts around its handlers is entered where they are called."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests.runtime import around_jobs as jobs

from accoda import App, InvalidInput


@pytest.fixture(autouse=True)
def fresh() -> None:
    jobs.ended.clear()


@pytest.mark.parametrize("queue", ["loop", "thread", "process", "batches"])
async def test_it_is_entered_in_the_thread_task_or_process_of_the_call(queue: str) -> None:
    with jobs.app.testing():
        first = await jobs.app.enqueue(queue, 0 if queue == "batches" else False)
        await jobs.app.run_until_idle([queue])
        where, mark, pid = await jobs.app.result(first.id, timeout=5)
    assert mark == "marked"
    assert where == f"{'BatchRun' if queue == 'batches' else 'Running'} in {pid}"
    assert (pid == str(os.getpid())) == (queue != "process")
    assert jobs.where.get() == "nowhere"


async def test_what_the_handler_raises_passes_through_it() -> None:
    with jobs.app.testing() as trial:
        await jobs.in_thread.enqueue(True)
        await jobs.app.run_until_idle(["thread"])
        trial.assert_dead("thread", "ValueError: no")
    assert jobs.ended == ["saw no"]


async def test_the_first_is_outermost_and_async_ones_go_with_async_handlers() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def outer(job: Any) -> AsyncIterator[None]:
        seen.append(f"outer {job.payload}")
        yield
        seen.append("outer ends")

    @contextmanager
    def inner(job: Any) -> Iterator[None]:
        seen.append("inner")
        yield
        seen.append("inner ends")

    app = App("memory://", around=[outer, inner])

    @app.handler("a")
    async def a(n: int) -> None:
        seen.append("handler")

    await a.enqueue(7)
    await app.run_until_idle()
    assert seen == ["outer 7", "inner", "handler", "inner ends", "outer ends"]


async def test_a_def_handler_refuses_an_async_one_when_the_worker_starts() -> None:
    @asynccontextmanager
    async def waits(job: Any) -> AsyncIterator[None]:
        yield

    app = App("memory://", around=[waits])

    @app.handler("a")
    def a() -> None: ...

    with pytest.raises(InvalidInput, match=r"around: .*waits gives no plain context manager, and a is a def handler"):
        await app.run_until_idle()


def test_what_cannot_be_called_is_refused_when_the_app_is_made() -> None:
    with pytest.raises(InvalidInput, match=r"around: .* cannot be called with \(job\)"):
        App("memory://", around=[lambda: None])  # type: ignore[list-item, misc, arg-type]
