"""What every runner does alike: results, errors, contexts, middleware, and what it means to be stopped."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.runtime.batches import batch_of, run

from accoda.app import App
from accoda.errors import BuryJob, HandlerTimeout, LeaseLost, WorkerStopped
from accoda.payload import decode
from accoda.retry import Failed, Finished
from accoda.runtime.batch import Batch, Runner, current
from accoda.runtime.middleware import Middleware, Run
from accoda.runtime.runners import make_runner
from accoda.runtime.runners.layers import LayeredRunner

Make = Callable[..., Any]


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    """Makes runners that lose patience soon, and closes them."""
    runners: list[Any] = []

    def make(function: Callable[..., Any], *middleware: Middleware, grace: float = 0.1) -> Any:
        handler = App("memory://").handler("q")(function)
        runner = make_runner(handler, middleware)
        bare: Any = runner._inner if isinstance(runner, LayeredRunner) else runner
        bare.grace = grace
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        await runner.close()


def error_of(batch: Batch[Any], index: int) -> BaseException:
    result = batch.results[index]
    assert isinstance(result, Failed)
    return result.error


async def until(event: threading.Event) -> None:
    """Wait for an event of another thread without blocking the loop."""
    while not event.is_set():
        await asyncio.sleep(0.001)


async def loop_single(payload: Any) -> Any:
    return act(payload)


def thread_single(payload: Any) -> Any:
    return act(payload)


async def loop_batch(batch: Batch[Any]) -> None:
    for job in batch:
        batch.done(job, act(job.payload))


def thread_batch(batch: Batch[Any]) -> None:
    for job in batch:
        batch.done(job, act(job.payload))


def act(payload: Any) -> Any:
    if isinstance(payload, BaseException):
        raise payload
    return payload


SINGLE = [loop_single, thread_single]
WHOLE = [loop_batch, thread_batch]


@pytest.mark.parametrize("function", SINGLE + WHOLE)
async def test_what_a_handler_returns_is_the_result(make: Make, function: Callable[..., Any]) -> None:
    batch = batch_of(None, 7, {"a": [1, 2]})
    await run(make(function), batch)
    results = [batch.results[n] for n in range(3)]
    assert [decode(r.result) if isinstance(r, Finished) and r.result else r for r in results] == [
        Finished(),
        7,
        {"a": [1, 2]},
    ]


@pytest.mark.parametrize("function", SINGLE)
@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError, BuryJob])
async def test_what_a_single_handler_raises_fails_its_job_alone(
    make: Make, function: Callable[..., Any], kind: type[BaseException]
) -> None:
    batch = batch_of(1, kind("no"), 3)
    await run(make(function), batch)
    assert isinstance(error_of(batch, 1), kind)
    assert isinstance(batch.results[0], Finished)
    assert isinstance(batch.results[2], Finished)


@pytest.mark.parametrize("function", WHOLE)
@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
async def test_what_a_batch_handler_raises_fails_the_jobs_of_which_nothing_was_said(
    make: Make, function: Callable[..., Any], kind: type[BaseException]
) -> None:
    batch = batch_of(1, kind("no"), 3)
    await run(make(function), batch)
    assert isinstance(batch.results[0], Finished)
    assert isinstance(error_of(batch, 1), kind)
    assert isinstance(error_of(batch, 2), kind)


@pytest.mark.parametrize("function", SINGLE)
async def test_a_result_that_cannot_be_kept_buries_the_job_and_says_why(
    make: Make, function: Callable[..., Any]
) -> None:
    batch = batch_of(object())
    await run(make(function), batch)
    assert isinstance(error_of(batch, 0), BuryJob)
    assert "result: the handler returned a object, which cannot be stored" in str(error_of(batch, 0))


async def test_a_handler_without_a_payload_is_called_without(make: Make) -> None:
    async def bare() -> int:
        return 5

    batch = batch_of(None, None)
    await run(make(bare), batch)
    assert batch.results[1] == Finished(b"\x05")


VAR: ContextVar[str] = ContextVar("VAR", default="nothing")


async def loop_context(payload: str) -> list[Any]:
    return see(payload)


def thread_context(payload: str) -> list[Any]:
    return see(payload)


def see(payload: str) -> list[Any]:
    before = VAR.get()
    VAR.set(payload)
    job = current.get()
    assert job is not None
    return [before, VAR.get(), job.id]


@pytest.mark.parametrize("function", [loop_context, thread_context])
async def test_each_job_has_a_context_of_its_own_which_begins_with_that_of_the_middleware(
    make: Make, function: Callable[..., Any]
) -> None:
    async def outside(batch: Batch[Any], run: Run) -> None:
        VAR.set("from outside")
        await run(batch)

    batch = batch_of("a", "b")
    await run(make(function, outside), batch)
    seen = [decode(r.result) for r in batch.results.values() if isinstance(r, Finished) and r.result]
    assert seen == [["from outside", "a", 0], ["from outside", "b", 1]]
    assert VAR.get() == "nothing"
    assert current.get() is None


@pytest.mark.parametrize("function", SINGLE)
async def test_what_the_handler_itself_says_of_its_job_counts_more_than_how_it_ends(
    make: Make, function: Callable[..., Any]
) -> None:
    async def loop_says(payload: str) -> str:
        return says()

    def thread_says(payload: str) -> str:
        return says()

    def says() -> str:
        job = current.get()
        assert job is not None
        job.batch.bury(job, "enough")
        return "fine"

    batch = batch_of("a")
    await run(make(loop_says if function is loop_single else thread_says), batch)
    assert isinstance(error_of(batch, 0), BuryJob)


# -- middleware


@pytest.mark.parametrize("function", SINGLE + WHOLE)
async def test_middleware_goes_around_the_whole_batch_the_first_outermost(
    make: Make, function: Callable[..., Any]
) -> None:
    seen: list[Any] = []

    def layer(name: str) -> Middleware:
        async def around(batch: Batch[Any], run: Run) -> None:
            seen.append((name, len(batch.results)))
            await run(batch)
            seen.append((name, len(batch.results)))

        return around

    await run(make(function, layer("outer"), layer("inner")), batch_of(1, 2))
    assert seen == [("outer", 0), ("inner", 0), ("inner", 2), ("outer", 2)]


@pytest.mark.parametrize("function", SINGLE)
async def test_a_job_of_which_a_middleware_has_spoken_is_not_run(make: Make, function: Callable[..., Any]) -> None:
    async def refuse_first(batch: Batch[Any], run: Run) -> None:
        batch.bury(batch[0], "refused")
        await run(batch)

    batch = batch_of(ValueError("was run"), 2)
    await run(make(function, refuse_first), batch)
    assert isinstance(error_of(batch, 0), BuryJob)
    assert isinstance(batch.results[1], Finished)


@pytest.mark.parametrize("function", SINGLE)
@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
async def test_what_a_middleware_raises_fails_the_jobs_of_which_nothing_was_said(
    make: Make, function: Callable[..., Any], kind: type[BaseException]
) -> None:
    async def broken(batch: Batch[Any], run: Run) -> None:
        batch.done(batch[0])
        raise kind("no")

    batch = batch_of(1, 2)
    await run(make(function, broken), batch)
    assert batch.results[0] == Finished()
    assert isinstance(error_of(batch, 1), kind)


@pytest.mark.parametrize("function", WHOLE)
async def test_a_middleware_sees_what_a_batch_handler_raised_and_may_swallow_it(
    make: Make, function: Callable[..., Any]
) -> None:
    seen: list[Exception] = []

    async def swallow(batch: Batch[Any], run: Run) -> None:
        try:
            await run(batch)
        except ValueError as error:
            seen.append(error)

    batch = batch_of(1, ValueError("no"))
    await run(make(function, swallow), batch)
    assert [str(error) for error in seen] == ["no"]
    assert batch.results[1] == Finished()


async def test_a_middleware_that_passes_on_another_batch_is_told(make: Make) -> None:
    async def other(batch: Batch[Any], run: Run) -> None:
        await run(batch_of(1))

    batch = batch_of(1)
    await run(make(loop_single, other), batch)
    assert "passes on the batch that it was given" in str(error_of(batch, 0))


@pytest.mark.parametrize("function", SINGLE + WHOLE)
async def test_a_middleware_that_neither_runs_the_batch_nor_speaks_fails_its_jobs(
    make: Make, function: Callable[..., Any]
) -> None:
    async def skip(batch: Batch[Any], run: Run) -> None:
        batch.done(batch[0])

    batch = batch_of(1, 2)
    await run(make(function, skip), batch)
    assert batch.results[0] == Finished()
    assert "ended without a result" in str(error_of(batch, 1))


async def test_a_middleware_that_hangs_does_not_hold_a_batch_that_was_stopped(make: Make) -> None:
    inside = asyncio.Event()

    async def hang(batch: Batch[Any], run: Run) -> None:
        await run(batch)
        inside.set()
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if released:
                    raise

    released: list[bool] = []
    runner = make(loop_single, hang, grace=0.02)
    batch = batch_of(1, 2)
    running = asyncio.create_task(run(runner, batch))
    await inside.wait()
    runner.stop(batch, [0, 1], WorkerStopped("bye"))
    await running
    assert isinstance(batch.results[0], Finished)
    released.append(True)


async def test_a_middleware_that_waits_before_the_handler_is_stopped_at_once(make: Make) -> None:
    inside = asyncio.Event()

    async def wait(batch: Batch[Any], run: Run) -> None:
        inside.set()
        await asyncio.Event().wait()

    runner = make(loop_single, wait, grace=30)
    batch = batch_of(1)
    running = asyncio.create_task(run(runner, batch))
    await inside.wait()
    runner.stop(batch, [0], WorkerStopped("bye"))
    await running
    assert isinstance(error_of(batch, 0), WorkerStopped)


# -- stopping


class Pair:
    """The same slow handler for the loop and for a thread. Payload "slow" waits until it is stopped or let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.free = threading.Event()
        self.ended = threading.Event()

    async def on_loop(self, payload: str) -> str:
        if payload == "slow":
            self.begun.set()
            try:
                while not self.free.is_set():
                    await asyncio.sleep(0.001)
            finally:
                self.ended.set()
        return payload

    def in_thread(self, payload: str) -> str:
        if payload == "slow":
            self.begun.set()
            try:
                while not self.free.wait(0.001):
                    pass
            finally:
                self.ended.set()
        return payload

    async def batch_on_loop(self, batch: Batch[str]) -> None:
        for job in batch:
            batch.done(job, await self.on_loop(job.payload))

    def batch_in_thread(self, batch: Batch[str]) -> None:
        for job in batch:
            batch.done(job, self.in_thread(job.payload))


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.mark.parametrize("where", ["on_loop", "in_thread"])
async def test_a_job_over_its_time_fails_and_the_others_do_not(make: Make, pair: Pair, where: str) -> None:
    batch = batch_of("a", "slow", "b")
    await run(make(getattr(pair, where)), batch, 0.05)
    assert isinstance(error_of(batch, 1), HandlerTimeout)
    assert "ran longer than its timeout of 0.05 s" in str(error_of(batch, 1))
    assert isinstance(batch.results[0], Finished)
    assert isinstance(batch.results[2], Finished)
    assert pair.ended.is_set()


@pytest.mark.parametrize("where", ["batch_on_loop", "batch_in_thread"])
async def test_a_batch_over_its_time_keeps_what_was_said_and_fails_the_rest(make: Make, pair: Pair, where: str) -> None:
    batch = batch_of("a", "slow", "b")
    await run(make(getattr(pair, where)), batch, 0.05)
    assert isinstance(batch.results[0], Finished)
    assert isinstance(error_of(batch, 1), HandlerTimeout)
    assert isinstance(error_of(batch, 2), HandlerTimeout)
    assert pair.ended.is_set()


@pytest.mark.parametrize("where", ["on_loop", "in_thread"])
async def test_a_job_that_is_stopped_fails_with_the_error_given(make: Make, pair: Pair, where: str) -> None:
    runner, batch = make(getattr(pair, where)), batch_of("a", "slow", "b")
    running = asyncio.create_task(run(runner, batch))
    await until(pair.begun)
    runner.stop(batch, [1], LeaseLost("gone"))
    assert isinstance(error_of(batch, 1), LeaseLost)
    await running
    assert pair.ended.is_set()
    assert isinstance(batch.results[0], Finished)
    assert isinstance(batch.results[2], Finished)


@pytest.mark.parametrize("where", ["on_loop", "in_thread"])
async def test_a_stop_of_everything_ends_what_runs_and_begins_nothing_more(make: Make, pair: Pair, where: str) -> None:
    runner, batch = make(getattr(pair, where)), batch_of("slow", "slow", "slow")
    running = asyncio.create_task(run(runner, batch))
    await until(pair.begun)
    runner.stop(batch, [0, 1, 2], WorkerStopped("bye"))
    await running
    assert all(isinstance(error_of(batch, n), WorkerStopped) for n in range(3))


@pytest.mark.parametrize("where", ["batch_on_loop", "batch_in_thread"])
async def test_a_batch_handler_goes_on_while_a_job_is_left_to_it(make: Make, pair: Pair, where: str) -> None:
    runner, batch = make(getattr(pair, where)), batch_of("slow", "b")
    running = asyncio.create_task(run(runner, batch))
    await until(pair.begun)
    runner.stop(batch, [0], LeaseLost("gone"))
    assert not pair.ended.is_set()
    pair.free.set()
    await running
    assert isinstance(error_of(batch, 0), LeaseLost), "what it said of the lost job does not count"
    assert isinstance(batch.results[1], Finished)


@pytest.mark.parametrize("where", ["batch_on_loop", "batch_in_thread"])
async def test_a_batch_handler_is_stopped_when_no_job_is_left_to_it(make: Make, pair: Pair, where: str) -> None:
    runner, batch = make(getattr(pair, where)), batch_of("a", "slow", "b")
    running = asyncio.create_task(run(runner, batch))
    await until(pair.begun)
    runner.stop(batch, [1], LeaseLost("gone"))
    runner.stop(batch, [2], LeaseLost("gone too"))
    await running
    assert pair.ended.is_set()
    assert isinstance(batch.results[0], Finished)
    assert str(error_of(batch, 2)) == "gone too"


@pytest.mark.parametrize("where", ["on_loop", "in_thread", "batch_on_loop", "batch_in_thread"])
@pytest.mark.parametrize("layers", [0, 1])
async def test_a_run_that_is_cancelled_stops_its_handler_and_leaves_no_task_behind(
    make: Make, pair: Pair, where: str, layers: int
) -> None:
    async def through(batch: Batch[Any], run: Run) -> None:
        await run(batch)

    runner, batch = make(getattr(pair, where), *[through] * layers), batch_of("slow", "slow")
    before = asyncio.all_tasks()
    running = asyncio.create_task(run(runner, batch))
    await until(pair.begun)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(pair.ended)
    assert asyncio.all_tasks() == before
    assert all(isinstance(error_of(batch, n), WorkerStopped) for n in range(2))


async def test_a_batch_that_is_not_being_run_can_be_stopped_without_harm(make: Make) -> None:
    runner: Runner = make(loop_single)
    runner.stop(batch_of(1), [0], WorkerStopped("bye"))


def test_the_handlers_of_the_documentation_run_where_it_says() -> None:
    text = (Path(__file__).parents[2] / "docs" / "handlers.md").read_text()
    section = text.split("## Where handlers run")[1]
    example = section.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "documentation"}
    exec(compile(example, "handlers.md", "exec", dont_inherit=True), names)
    found = {queue: handler.options.run_in for queue, handler in names["app"].handlers.items()}
    assert found == {"pages": "loop", "letters": "thread", "rows": "thread", "thumbnails": "process"}
