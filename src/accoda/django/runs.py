"""What runs a task in a worker: its handler, and what is done around every run.

The handler sends Django's signals and gives the context. Errors are noted by a middleware, on the worker's loop: it
also sees what no handler can see of itself, such as a timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from inspect import iscoroutinefunction
from traceback import format_exception
from types import TracebackType
from typing import Any, Protocol

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections, reset_queries
from django.utils import timezone

from accoda.app import App
from accoda.django.compat import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from accoda.django.jobs import NAME, Call, restored
from accoda.django.lookup import name_job
from accoda.django.results import (
    UNKNOWN_WORKER,
    FailedRun,
    error_of,
    moment,
    new_result,
    note_run,
    read_runs,
    set_fields,
)
from accoda.django.task import handler_options
from accoda.errors import AccodaError, BuryJob, CannotStart, WorkerStopped
from accoda.handler_options import HandlerOptions
from accoda.model import Bury
from accoda.payload import encode_result
from accoda.retry import Failed, Limits, decide, describe
from accoda.runtime.attempts import trace_of
from accoda.runtime.batch import Batch, BatchRun, Running, current, current_batch
from accoda.runtime.envelope_outcome import limits_of
from accoda.runtime.middleware import Run

log = logging.getLogger("accoda.django")


class Host(Protocol):
    """What the middleware needs of the project."""

    app: App

    def keep_for(self, path: str | None) -> float: ...


class fresh_connections:
    """Around every run: no run gets a database connection that the server has closed.

    What Django does around a request is not enough: a worker may wait for hours between two runs, and a connection that
    it keeps (CONN_MAX_AGE) may be dead by then. So every run that uses a kept connection checks it first, as
    CONN_HEALTH_CHECKS would.

    A sync task has its thread's connections. An async one has a thread of its own for all that it sends to
    `sync_to_async`, as a request under ASGI has, and its connections end with it.
    """

    def __init__(self, job: object) -> None:
        self._stack = AsyncExitStack()

    def __enter__(self) -> None:
        reset_queries()  # in DEBUG a connection keeps its queries: those of a run are not for the next one
        close_old_connections()
        connection: Any
        for connection in connections.all(initialized_only=True):
            connection.health_check_enabled = True

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        close_old_connections()

    async def __aenter__(self) -> None:
        await self._stack.enter_async_context(ThreadSensitiveContext())
        self._stack.push_async_callback(sync_to_async(connections.close_all))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()


earlier_runs: ContextVar[list[FailedRun]] = ContextVar("accoda_django_earlier_runs", default=[])  # noqa: B039 - never changed
"""The failed runs before this one of the job that runs here."""


async def note_failures(project: Host, batch: Batch[Any], run: Run) -> None:
    """A middleware: note each run that failed, before the failure is settled, and which job a result is of."""
    store = project.app.storage
    jobs = [job for job in batch if isinstance(job.payload, Call)]
    for job in jobs:
        if (result := job.headers.get(NAME)) is not None:
            await name_job(store, result, job.id, project.keep_for(job.type))
        if job.attempts:
            earlier_runs.set(await read_runs(store, job.id))
    try:
        await run(batch)
    finally:
        for job in jobs:
            outcome = batch.results.get(job.id)
            # A run that the worker itself gave up has not failed: the job has not tried.
            if isinstance(outcome, Failed) and not isinstance(outcome.error, (WorkerStopped, CannotStart)):
                await _note(project, job, outcome.error)


async def _note(project: Host, job: Running[Any], error: BaseException) -> None:
    error = cause_of(error)
    mask = job.batch.mask(job.job)
    run = FailedRun(
        worker=job.batch.worker,
        started_at=job.job.lease.taken_at,
        error=path_of(error),
        traceback=trace_of(error, mask) or mask.text(describe(error)),
    )
    try:
        await note_run(project.app.storage, job.id, run, project.keep_for(job.type))
    except AccodaError as problem:  # the outcome must not wait for it
        log.warning("the failed run of job %d is not noted: %s", job.id, problem)


def handler_of(
    backend: str, task: Task[..., Any], options: HandlerOptions
) -> tuple[Callable[[Call], Any], HandlerOptions]:
    """The handler of a task, and its options."""

    def run(call: Call) -> Any:
        sender, result = type(task_backends[backend]), running_result(backend, task, call)
        task_started.send(sender, task_result=result)
        try:
            value = as_json(task.func(*_context(task, result), *call.args, **call.kwargs))
        except BaseException as error:
            if failed(result, error):
                task_finished.send(sender, task_result=result)
            raise
        succeeded(result, value)
        task_finished.send(sender, task_result=result)
        return value

    async def run_async(call: Call) -> Any:
        sender, result = type(task_backends[backend]), running_result(backend, task, call)
        await task_started.asend(sender, task_result=result)
        try:
            value = as_json(await task.func(*_context(task, result), *call.args, **call.kwargs))
        except BaseException as error:
            if failed(result, error):
                await task_finished.asend(sender, task_result=result)
            raise
        succeeded(result, value)
        await task_finished.asend(sender, task_result=result)
        return value

    function = run_async if iscoroutinefunction(task.func) else run
    function.__name__ = function.__qualname__ = task.func.__name__
    return function, {**options, **handler_options(task), "type": task.module_path}


def running_result(backend: str, task: Task[..., Any], call: Call) -> TaskResult[..., Any]:
    """The result of the job that runs here, as it is now."""
    running: Running[Any] | None = current.get()
    assert running is not None  # a single handler is only called for a job
    job, runs = running.job, earlier_runs.get()
    started_at = moment(job.lease.taken_at)
    result = new_result(
        restored(task, backend, job.queue, job.data),
        running.headers.get(NAME, str(job.id)),
        call,
        backend,
        enqueued_at=moment(job.created_at),
    )
    set_fields(
        result,
        status=TaskResultStatus.RUNNING,
        started_at=moment(runs[0].started_at) if runs else started_at,
        last_attempted_at=started_at,
        errors=[error_of(run.error, run.traceback) for run in runs],
        worker_ids=[*(run.worker for run in runs), *[UNKNOWN_WORKER] * job.crashes, running.batch.worker],
    )
    return result


def succeeded(result: TaskResult[..., Any], value: Any) -> None:
    set_fields(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)


def failed(result: TaskResult[..., Any], error: BaseException) -> bool:
    """Note the error. True: it was the last try, so the task has FAILED; otherwise it is READY to run again."""
    cause = cause_of(error)
    result.errors.append(error_of(path_of(cause), "".join(format_exception(cause))))
    job, batch = current.get(), current_batch.get()
    limits = batch.owner.limits if isinstance(batch, BatchRun) else Limits()
    last = job is None or isinstance(decide(job.job, Failed(error), limits_of(job.job, limits)), Bury)
    if last:
        set_fields(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    else:
        set_fields(result, status=TaskResultStatus.READY)
    return last


def as_json(value: Any) -> Any:
    """A return value as JSON has it. One that cannot be stored ends the job: to run it again would not change it."""
    try:
        plain = normalize_json(value)
        encode_result(plain)  # here and not after the signals, which would say that the task was successful
    except (TypeError, ValueError, RecursionError) as error:
        raise BuryJob(f"result: {error}") from error
    return plain


def cause_of(error: BaseException) -> BaseException:
    """What went wrong: a task that buries its job because of an error failed with that error."""
    return error.__cause__ if isinstance(error, BuryJob) and error.__cause__ is not None else error


def path_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _context(task: Task[..., Any], result: TaskResult[..., Any]) -> tuple[TaskContext[Any, Any], ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()
