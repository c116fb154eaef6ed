"""`app.testing()`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, TypeVar, Unpack, overload

from accoda.app_testing.draining import DrainedApp, drain, run_ready
from accoda.app_testing.reading import JobReader, ReadApp, Target, queue_of
from accoda.app_testing.runs import Ended, JobRun, RunLog
from accoda.app_testing.store import TrialConnections, is_machinery, run_now
from accoda.app_testing.waiting import Expected, WaitingJob, check_expected, fits, listed, wanted
from accoda.clock import ManualClock
from accoda.connections import Connections
from accoda.errors import InvalidInput
from accoda.model import Enqueued, JobInfo
from accoda.runtime.handler import Handler
from accoda.runtime.middleware import Middleware
from accoda.times import EPOCH, milliseconds

T = TypeVar("T")
V = TypeVar("V")


class LendingFace(Protocol):
    """`app.sync`."""

    lends_thread: bool

    def run(self, call: Coroutine[Any, Any, V]) -> V: ...


class TestedApp(DrainedApp, ReadApp, Protocol):
    """What testing mode needs of an app. It puts its own connections and middleware in place for a while."""

    connections: Connections
    middleware: tuple[Middleware, ...]

    @property
    def sync(self) -> LendingFace: ...


class Trial:
    """What `app.testing()` gives: inside its `with` (or `async with`), nothing of the app leaves the process.

    The app's own store is not touched, and is in place again afterwards. Only `drain` is awaited, and has a form
    without `await`: `jobs.sync.drain()`.
    """

    __test__ = False  # pytest does not take it for a class of tests

    def __init__(self, app: TestedApp, *, inline: bool = False, now: datetime | int | None = None) -> None:
        self.app = app
        self.inline = inline
        """Whether a job runs at once, in the call that enqueues it. May be changed at any time."""
        self.clock = ManualClock() if now is None else ManualClock(milliseconds("now", now))
        self._connections = TrialConnections(self.clock, self._enqueued)
        self._reader = JobReader(app, self._connections.store)
        self._log = RunLog(self._reader.shown)
        self._put_back: Callable[[], None] | None = None
        self._drains: list[Coroutine[Any, Any, int]] = []

    def __enter__(self) -> Trial:
        if self._put_back is not None:
            raise RuntimeError("this trial is under way already; call app.testing() for another")
        app, connections, middleware, lent = (
            self.app,
            self.app.connections,
            self.app.middleware,
            self.app.sync.lends_thread,
        )

        def put_back() -> None:
            app.connections, app.middleware, app.sync.lends_thread = connections, middleware, lent

        self._put_back = put_back
        app.connections, app.middleware, app.sync.lends_thread = self._connections, (self._log, *middleware), True
        self._forget_demands()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._put_back is not None:
            self._put_back()
            self._put_back = None
            self._forget_demands()
            self._check_drains(error)

    async def __aenter__(self) -> Trial:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def _forget_demands(self) -> None:
        for demand in self.app.demands.values():
            demand.forget()

    def _check_drains(self, error: BaseException | None) -> None:
        """Refuse a test that ends well although it did not await what it drained: nothing has run in it."""
        forgotten = [call for call in self._drains if inspect.getcoroutinestate(call) == inspect.CORO_CREATED]
        self._drains.clear()
        for call in forgotten:
            call.close()  # else Python warns of it, too
        if forgotten and error is None:
            raise RuntimeError("the test called drain() without awaiting it, so nothing ran: await accoda_jobs.drain()")

    # -- time

    @property
    def now(self) -> datetime:
        """The present moment of the clock, which stands still until it is moved."""
        return EPOCH + timedelta(milliseconds=self.clock.now())

    def advance(self, seconds: float = 0.0, **more: float) -> None:
        """Move the clock: `advance(30)`, or by the words of a timedelta, `advance(days=1, hours=2)`."""
        self.clock.advance(seconds + timedelta(**more).total_seconds())

    def travel_to(self, moment: datetime | int) -> None:
        """Move the clock to a moment, which is not in its past."""
        ahead = milliseconds("moment", moment) - self.clock.now()
        if ahead < 0:
            raise InvalidInput("moment", f"is before the clock's, {self.now}; start there: app.testing(now=…)")
        self.clock.advance(ahead / 1000)

    # -- running jobs

    def drain(self, *targets: Target, with_scheduled: bool = False) -> Coroutine[Any, Any, int]:
        """Run what is ready, and what that enqueues, of these queues or of all; give the number of runs.

        It does the ticks of schedules and moves flows too. Jobs that start later, retries among them, stay. With
        `with_scheduled` the clock is moved from one such job to the next until none is left.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # a call without `await` would do nothing, and a test could pass by that
            raise RuntimeError("drain() is awaited on an event loop; without one: sync.drain()") from None
        call = self._drain(targets, with_scheduled)
        self._drains.append(call)
        return call

    @property
    def sync(self) -> SyncTrial:
        """For tests without `await`: `jobs.sync.drain()`."""
        return SyncTrial(self)

    def _drain(self, targets: Sequence[Target], with_scheduled: bool) -> Coroutine[Any, Any, int]:
        queues = [queue_of(target) for target in targets] or self._reader.handled()
        return drain(self.app, self._reader, queues, self.clock if with_scheduled else None)

    async def _enqueued(self, told: Sequence[Enqueued]) -> None:
        if self.inline and not is_machinery():
            await run_now(self._connections.store, self._run_ready, told)

    async def _run_ready(self) -> None:
        await run_ready(self.app, self._reader, list(self.app.handlers))

    # -- what has run

    def runs(self, target: Target | None = None, ended: Ended | None = None) -> list[JobRun]:
        """Every run so far, in order; of one queue or handler, or with one end, if you say so."""
        self._reader.check(target)
        return [
            run
            for run in self._log.runs
            if (target is None or self._reader.is_of(target, run.queue, run.type)) and ended in (None, run.ended)
        ]

    # A queue alone does not say of which type its payloads are, a handler does.
    @overload
    def payloads(self, target: str, ended: Ended | None = None) -> list[Any]: ...
    @overload
    def payloads(self, target: Handler[T, Any, Any], ended: Ended | None = None) -> list[T]: ...

    def payloads(self, target: Any, ended: Ended | None = None) -> list[Any]:
        """The payloads of those runs."""
        return [run.payload for run in self.runs(target, ended)]

    def assert_no_failures(self) -> None:
        """That every run ended well; else the first error is raised, so that its traceback shows."""
        __tracebackhide__ = True
        for run in self._log.runs:
            if run.error is not None:
                raise AssertionError(f"job {run.id} of {run.queue} failed: {run.error!r}") from run.error

    # -- what waits

    @overload
    def waiting(
        self, target: str | None = None, payload: Any = ..., **expected: Unpack[Expected]
    ) -> list[WaitingJob[Any]]: ...
    @overload
    def waiting(
        self, target: Handler[T, Any, Any], payload: Any = ..., **expected: Unpack[Expected]
    ) -> list[WaitingJob[T]]: ...

    def waiting(self, target: Any = None, payload: Any = ..., **expected: Unpack[Expected]) -> list[WaitingJob[Any]]:
        """The jobs that wait, ready, delayed or held, in the order of their ids: of one queue or handler, or all."""
        check_expected(expected)
        self._reader.check(target)
        return [job for job in self._reader.waiting(target) if fits(job, payload, expected)]

    @overload
    def assert_enqueued(
        self, target: str, payload: Any = ..., *, count: int, **expected: Unpack[Expected]
    ) -> list[WaitingJob[Any]]: ...
    @overload
    def assert_enqueued(
        self, target: str, payload: Any = ..., *, count: None = None, **expected: Unpack[Expected]
    ) -> WaitingJob[Any]: ...
    @overload
    def assert_enqueued(
        self, target: Handler[T, Any, Any], payload: Any = ..., *, count: int, **expected: Unpack[Expected]
    ) -> list[WaitingJob[T]]: ...
    @overload
    def assert_enqueued(
        self, target: Handler[T, Any, Any], payload: Any = ..., *, count: None = None, **expected: Unpack[Expected]
    ) -> WaitingJob[T]: ...

    def assert_enqueued(
        self, target: Any, payload: Any = ..., *, count: int | None = None, **expected: Unpack[Expected]
    ) -> Any:
        """That such a job waits, and give it; with `count`, that exactly so many do, and give all of them."""
        __tracebackhide__ = True
        found = self.waiting(target, payload, **expected)
        if count is None and found:
            return found[0]
        if count is not None and len(found) == count:
            return found
        what = wanted(queue_of(target), payload, expected)
        told = f"no {what} waits" if count is None else f"a {what} waits {len(found)} times, not {count}"
        raise AssertionError(told + self._instead(queue_of(target)))

    def refute_enqueued(self, target: Target, payload: Any = ..., **expected: Unpack[Expected]) -> None:
        """That no such job waits."""
        __tracebackhide__ = True
        found = self.waiting(target, payload, **expected)
        if found:
            what = wanted(queue_of(target), payload, expected)
            raise AssertionError(f"no {what} should wait, but there is{listed(found, self.clock.now())}")

    def assert_dead(self, target: Target, reason: str = "") -> JobInfo:
        """That such a job is among the dead letters, with these words in its reason; gives the first."""
        __tracebackhide__ = True
        self._reader.check(target)
        queue, dead = queue_of(target), self._reader.jobs(target, "dead")
        for job in dead:
            if reason in (job.reason or ""):
                return job
        found = ", ".join(f"job {job.id}: {job.reason}" for job in dead) or "none"
        raise AssertionError(f"a job of {queue} should be dead because of {reason!r}; dead are: {found}")

    def _instead(self, queue: str) -> str:
        """What there is in the place of a job that was missed."""
        waiting = self._reader.waiting()
        here = [job for job in waiting if job.queue == queue]
        told = f"; waiting in {queue}:{listed(here, self.clock.now())}" if here else f"; nothing waits in {queue}"
        if ends := [run.ended for run in self.runs(queue)]:
            told += f"\n{queue} has run: " + ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends))
        others = dict.fromkeys(job.queue for job in waiting if job.queue != queue)
        return told + (f"\njobs wait in: {', '.join(others)}" if others else "")


class SyncTrial:
    """`jobs.sync`: what a trial awaits, without `await`. Handlers that are `def` run in the thread that calls."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def drain(self, *targets: Target, with_scheduled: bool = False) -> int:
        """Run what is ready, and what that enqueues: see `Trial.drain`."""
        return self._trial.app.sync.run(self._trial._drain(targets, with_scheduled))
