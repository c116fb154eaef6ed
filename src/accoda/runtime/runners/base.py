"""How handlers are run: on the loop, in a thread, in a process. One protocol for all three, and what they share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from accoda.errors import HandlerTimeout, InvalidInput, WorkerStopped
from accoda.retry import Failed, Result
from accoda.runtime.batch import Batch
from accoda.runtime.handler import Handler
from accoda.runtime.middleware import Middleware, wrap

log = logging.getLogger("accoda.runners")

GRACE = 1.0
"""Seconds that a handler gets to end after it was stopped; then its batch goes on without it."""


class Runner(Protocol):
    """Runs one handler's batches."""

    async def run(self, batch: Batch[Any], timeout: float | None) -> None:
        """Hand the batch to the handler, and come back when each of its jobs has a result in `batch.results`.

        Whatever the handler raises becomes the result of its job, or of the jobs of its batch of which it had said
        nothing. `timeout` (seconds) holds for one call of the handler; what it is over for fails with `HandlerTimeout`.
        If `run` itself is cancelled, the handler is stopped and `CancelledError` goes on to the caller.
        """
        ...

    def stop(self, batch: Batch[Any], ids: Collection[int], error: BaseException) -> None:
        """Stop running these jobs of a batch: what is not finished fails with `error`, as soon as it can be stopped.

        A handler that takes a whole batch is stopped only when none of its unfinished jobs is left. Call it on the
        loop of `run`. A batch that is not being run is left alone.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and processes."""
        ...


class Run:
    """One batch on its way through its handler."""

    __slots__ = ("batch", "begun", "chain", "error", "fixed", "given_up", "timeout")

    def __init__(self, batch: Batch[Any], timeout: float | None) -> None:
        self.batch = batch
        self.timeout = timeout
        self.fixed: dict[int, Result] = {}
        self.error: BaseException | None = None
        """Why a handler of whole batches, or the middleware, ended early: what it raised, or what stopped it."""
        self.begun = False
        self.chain: asyncio.Task[None] | None = None
        self.given_up: asyncio.Future[None] | None = None

    def fix(self, ids: Iterable[int], error: BaseException) -> bool:
        """Fail those of the jobs that have no result, whatever is said of them later. False: there was none."""
        failed = Failed(error)
        fixed = False
        for id in ids:
            # `setdefault` is one atomic step: of the handler's thread and this one, exactly one decides.
            if self.batch.results.setdefault(id, failed) is failed:
                self.fixed[id] = failed
                fixed = True
        return fixed

    def ids(self) -> list[int]:
        return [job.id for job in self.batch.taken]

    def has_all_results(self) -> bool:
        results = self.batch.results
        return len(results) >= len(self.batch) and all(job.id in results for job in self.batch.taken)

    def raise_error(self) -> None:
        """What ended the handler goes through the middleware, unless it would end more than this batch."""
        error, self.error = self.error, None  # a middleware may swallow it
        if isinstance(error, Exception):
            raise error
        if error is not None:  # sys.exit, or a CancelledError of the handler's own making
            self.batch.finish(error)


class HopRun(Run):
    """A batch whose handler is called from another thread. `over` is set when the last call ended or was given up."""

    __slots__ = ("loop", "over")

    def __init__(self, batch: Batch[Any], timeout: float | None) -> None:
        super().__init__(batch, timeout)
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()

    def end(self, error: BaseException | None = None) -> None:
        """From whatever thread: the calls are over. `error` is raised where `over` is awaited."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)


R = TypeVar("R", bound=Run)


class BaseRunner(Generic[R]):
    """The part that is the same everywhere: middleware, results, and what it means to be stopped.

    A runner gives `_handle`, which calls the handler, and `_halt`, which stops calls that are under way.
    """

    grace = GRACE

    def __init__(self, handler: Handler[Any, Any, Any], middleware: Sequence[Middleware] = ()) -> None:
        self._handler = handler
        self._invoke = invoker(handler)
        self._layers = wrap(self._inside, middleware) if middleware else None
        self._runs: dict[Batch[Any], R] = {}
        self._strays: set[asyncio.Task[None]] = set()

    def _make_run(self, batch: Batch[Any], timeout: float | None) -> R:
        raise NotImplementedError

    async def _handle(self, run: R) -> None:
        """Call the handler for the jobs that have no result yet, and come back when they have one."""
        raise NotImplementedError

    def _halt(self, run: R, ids: Collection[int]) -> None:
        """Stop the calls that run these jobs. Their results are fixed already."""
        raise NotImplementedError

    async def run(self, batch: Batch[Any], timeout: float | None) -> None:
        run = self._runs[batch] = self._make_run(batch, timeout)
        try:
            if self._layers is None:
                await self._handle(run)
            else:
                await self._through_middleware(run)
        except asyncio.CancelledError:  # only our caller's: those of handlers and middleware are caught further inside
            run.fix(run.ids(), WorkerStopped("the worker ended while the job ran"))
            raise
        except Exception as error:
            run.error = error
        finally:
            del self._runs[batch]
        batch.finish(run.error)
        if run.fixed:  # a handler that was stopped may have spoken since: too late
            batch.results.update(run.fixed)

    def stop(self, batch: Batch[Any], ids: Collection[int], error: BaseException) -> None:
        run = self._runs.get(batch)
        if run is None:
            return
        fixed = run.fix(ids, error)
        whole = run.has_all_results() and (fixed or len(ids) >= len(batch))
        if not self._handler.takes_batch:
            self._halt(run, ids)
        elif whole:
            run.error = run.error or error
            self._halt(run, run.ids())
        if whole and run.chain is not None:
            self._hurry(run, run.chain)

    async def close(self) -> None:
        if self._strays:
            for task in self._strays:
                task.cancel()
            await asyncio.wait(tuple(self._strays), timeout=self.grace)

    def _time_out(self, run: R, ids: Collection[int]) -> None:
        """These jobs had their time."""
        self.stop(run.batch, ids, over_time(self._handler, run.timeout))

    def _stray(self, task: asyncio.Task[None], what: str) -> None:
        """A task that does not end although it was cancelled: its batch goes on without it."""
        log.warning("%s was stopped but does not end; its batch goes on without it", what)
        self._strays.add(task)
        task.add_done_callback(self._strays.discard)
        task.cancel()

    # -- middleware

    async def _inside(self, batch: Batch[Any]) -> None:
        """The innermost `run` that a middleware calls."""
        run = self._runs.get(batch)
        if run is None:
            raise InvalidInput("batch", "is not being run; a middleware passes on the batch that it was given")
        run.begun = True
        await self._handle(run)

    async def _through_middleware(self, run: R) -> None:
        loop = asyncio.get_running_loop()
        run.given_up = loop.create_future()
        chain = run.chain = loop.create_task(self._chain(run))
        try:
            await asyncio.wait((chain, run.given_up), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            chain.cancel()
            await asyncio.wait((chain,), timeout=2 * self.grace)  # the handler inside has a grace of its own
            raise
        if not chain.done():
            self._stray(chain, f"middleware of {self._handler!r}")

    async def _chain(self, run: R) -> None:
        assert self._layers is not None
        try:
            await self._layers(run.batch)
        except (KeyboardInterrupt, GeneratorExit):
            pass_on()
            raise
        except BaseException as error:
            # Nothing else may leave this task: SystemExit would end the loop, CancelledError look like our caller's.
            run.error = error

    def _hurry(self, run: R, chain: asyncio.Task[None]) -> None:
        """No job is left to run: the middleware may end what it does, but not hold the batch for ever."""
        loop = asyncio.get_running_loop()
        if not run.begun:
            chain.cancel()
        loop.call_later(2 * self.grace, chain.cancel)
        loop.call_later(3 * self.grace, self._give_up, run)

    @staticmethod
    def _give_up(run: R) -> None:
        if run.given_up is not None and not run.given_up.done():
            run.given_up.set_result(None)


def invoker(handler: Handler[Any, Any, Any]) -> Callable[[Any], Any]:
    """The handler's function as a function of one argument: the batch, or the payload."""
    function: Callable[..., Any] = handler.function
    return function if handler.takes_payload else lambda _: function()


def pass_on() -> None:
    """What the current task is about to raise ends the loop, and the task has told it so: it need not say it again."""
    task = asyncio.current_task()
    if task is not None:
        task.add_done_callback(lambda task: task.cancelled() or task.exception())


def over_time(handler: Handler[Any, Any, Any], timeout: float | None) -> HandlerTimeout:
    """The error of a run that took too long."""
    return HandlerTimeout(f"{handler.__name__} ran longer than its timeout of {timeout:g} s")
