"""Testing mode: an app's jobs in memory, with a clock that you move, and questions to ask afterwards.

def test_a_welcome_is_sent_the_next_day():
    with app.testing() as trial:
        app.sync.enqueue("welcome", User("anna"), delay=86_400)
        app.sync.run_until_idle()
        assert trial.runs("welcome") == []
        trial.advance(days=1)
        app.sync.run_until_idle()
        assert trial.payloads("welcome") == [User("anna")]
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar, cast

from msgspec import Struct

from accoda.clock import ManualClock
from accoda.connections import Connections
from accoda.envelope import type_of
from accoda.errors import BuryJob
from accoda.model import JobInfo
from accoda.payload import decode
from accoda.retry import Failed, Finished
from accoda.runtime.batch import Batch
from accoda.runtime.handler import QueueHandlers
from accoda.runtime.middleware import Middleware, Run

T = TypeVar("T")
Ended = Literal["done", "failed", "buried"]


class TestedApp(Protocol):
    """What testing mode needs of an app. It puts its own connections and middleware in place for a while."""

    connections: Connections
    middleware: tuple[Middleware, ...]

    @property
    def handlers(self) -> Mapping[str, QueueHandlers]: ...


def finished_at_once(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that waits for nothing, as those of a store in memory."""
    try:
        call.send(None)
    except StopIteration as ended:
        return cast(T, ended.value)
    call.close()
    raise RuntimeError("the store of a trial had to wait; ask it from the thread that runs the test")


class JobRun(Struct, frozen=True):
    """One run of a job, as the trial saw it."""

    queue: str
    id: int
    attempts: int
    payload: Any
    ended: Ended
    error: BaseException | None = None


class Trial:
    """What `app.testing()` gives: inside its `with` (or `async with`), nothing of the app leaves the process.

    The app's own store is not touched, and is in place again afterwards.
    """

    def __init__(self, app: TestedApp) -> None:
        self.app = app
        self.clock = ManualClock()
        self._runs: list[JobRun] = []
        self._before: tuple[Connections, tuple[Any, ...]] | None = None

    def __enter__(self) -> Trial:
        if self._before is not None:
            raise RuntimeError("this trial is under way already; call app.testing() for another")
        self._before = self.app.connections, self.app.middleware
        self.app.connections = Connections("memory://", self.clock, in_trial=True)
        self.app.middleware = (self._note, *self.app.middleware)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            self.app.connections, self.app.middleware = self._before
            self._before = None

    async def __aenter__(self) -> Trial:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def advance(self, seconds: float = 0.0, **more: float) -> None:
        """Move the clock: `advance(30)`, or by the words of a timedelta, `advance(days=1, hours=2)`."""
        self.clock.advance(seconds + timedelta(**more).total_seconds())

    def runs(self, queue: str | None = None, ended: Ended | None = None) -> list[JobRun]:
        """Every run so far, in order; of one queue, or with one end, if you say so."""
        return [run for run in self._runs if queue in (None, run.queue) and ended in (None, run.ended)]

    def payloads(self, queue: str, ended: Ended | None = None) -> list[Any]:
        """The payloads of those runs."""
        return [run.payload for run in self.runs(queue, ended)]

    def waiting(self, queue: str) -> list[Any]:
        """The payloads that wait in a queue, ready, delayed or held, as the handler will see them."""
        return [self._payload(job) for job in self._jobs(queue, "ready", "delayed", "held")]

    def assert_enqueued(self, queue: str, payload: Any = ..., *, count: int | None = None) -> None:
        """That such a job waits (exactly `count` of them, if given); the message lists what waits instead."""
        found = self.waiting(queue)
        matching = found if payload is ... else [one for one in found if one == payload]
        if not matching if count is None else len(matching) != count:
            what = "a job" if payload is ... else repr(payload)
            wanted = "" if count is None else f" {count} times"
            raise AssertionError(f"{what} should wait in {queue}{wanted}; there wait {found!r}")

    def assert_dead(self, queue: str, reason: str = "") -> JobInfo:
        """That a job of the queue is among the dead letters, with these words in its reason; gives the first."""
        dead = self._jobs(queue, "dead")
        for job in dead:
            if reason in (job.reason or ""):
                return job
        listed = ", ".join(f"job {job.id}: {job.reason}" for job in dead) or "none"
        raise AssertionError(f"a job of {queue} should be dead because of {reason!r}; dead are: {listed}")

    def assert_no_failures(self) -> None:
        """That every run ended well; else the first error is raised, so that its traceback shows."""
        for run in self._runs:
            if run.error is not None:
                raise AssertionError(f"job {run.id} of {run.queue} failed: {run.error!r}") from run.error

    async def _note(self, batch: Batch[Any], run: Run) -> None:
        try:
            await run(batch)
        except BaseException as error:
            batch.finish(error)
            raise
        finally:
            for job in batch:
                result = batch.results.get(job.id, Finished())
                failure = result.error if isinstance(result, Failed) else None
                ended: Ended = "buried" if isinstance(failure, BuryJob) else "failed" if failure else "done"
                self._runs.append(JobRun(batch.queue, job.id, job.attempts, job.payload, ended, failure))

    def _jobs(self, queue: str, *states: Literal["ready", "delayed", "held", "dead"]) -> list[JobInfo]:
        """Without `await`, wherever the test runs: a question that had to be awaited would pass if it was not."""

        async def look() -> list[JobInfo]:
            store = await self.app.connections.open()  # in memory: the one that every loop shares
            found: list[JobInfo] = []
            for state in states:
                found += await store.browse(queue, state, limit=10_000)
            return sorted(found, key=lambda job: job.id)

        return finished_at_once(look())

    def _payload(self, job: JobInfo) -> Any:
        handlers = self.app.handlers.get(job.queue)
        handler = None if handlers is None else handlers.find(type_of(job.data))
        return decode(job.data) if handler is None else handler.codec.decode(job.data)
