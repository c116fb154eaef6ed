"""From a stored job to Django's `TaskResult`.

The runs that failed are in the document `accoda.django/runs/{job id}`: worker, start, error. It is written before the
failure is settled, so a result that is FAILED has its errors.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

import msgspec
from django.conf import settings
from django.utils import timezone
from msgspec import Struct

from accoda.django.compat import Task, TaskError, TaskResult, TaskResultStatus
from accoda.django.jobs import Call, read_call, restored
from accoda.errors import VersionConflict
from accoda.model import JobInfo, State
from accoda.payload import UnreadablePayload, decode, read_json
from accoda.storage.protocol import Store

P = ParamSpec("P")
R = TypeVar("R")

RUNS = "accoda.django/runs/"
MOST_RUNS, MOST_TRACES = 100, 10
"""How many failed runs of a job are noted, and how many of the last have their traceback."""
KEPT = 30 * 86_400.0
"""Seconds for which the document is kept after the last run, beside the time for which results are."""
UNKNOWN_WORKER = "unknown"
"""The worker of a run that ended with the worker."""

STATUS: dict[State, TaskResultStatus] = {
    "ready": TaskResultStatus.READY,
    "delayed": TaskResultStatus.READY,
    "held": TaskResultStatus.READY,
    "taken": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}


class FailedRun(Struct, frozen=True, omit_defaults=True):
    """A run that raised. `error` is the dotted path of the exception's class."""

    worker: str
    started_at: int
    error: str
    traceback: str = ""


class StoredTaskError(TaskError):
    """An error out of the store."""

    @property
    def exception_class(self) -> type[BaseException]:
        """The class, if its module is imported here: nothing is imported because a store names it."""
        parts = self.exception_class_path.split(".")
        found: object = None
        for end in range(len(parts) - 1, 0, -1):
            if (found := sys.modules.get(".".join(parts[:end]))) is not None:
                for name in parts[end:]:
                    found = getattr(found, name, None)
                break
        if not isinstance(found, type) or not issubclass(found, BaseException):
            raise ValueError(f"{self.exception_class_path!r} is no exception of a module that is imported here.")
        return found


async def read_runs(store: Store, id: int) -> list[FailedRun]:
    """The runs of a job that failed, the oldest first."""
    found = await store.read(f"{RUNS}{id}")
    return [] if found is None else read_json(found.value, list[FailedRun]) or []


async def note_run(store: Store, id: int, run: FailedRun, keep_for: float) -> None:
    """Add a run to those that failed."""
    while True:
        found = await store.read(f"{RUNS}{id}")
        before = [] if found is None else read_json(found.value, list[FailedRun]) or []
        runs = [*before, run][-MOST_RUNS:]
        bare = [msgspec.structs.replace(one, traceback="") for one in runs[:-MOST_TRACES]]
        value = msgspec.json.encode([*bare, *runs[-MOST_TRACES:]])
        try:
            await store.write(f"{RUNS}{id}", value, version=0 if found is None else found.version, ttl=keep_for + KEPT)
            return
        except VersionConflict:  # a worker that lost its lease of the job meanwhile
            continue


def result_of(backend: str, task: Task[..., Any], id: str, job: JobInfo, runs: list[FailedRun]) -> TaskResult[..., Any]:
    """What Django shows of a job."""
    try:
        call = read_call(job.data)
    except (UnreadablePayload, ValueError):  # another program enqueued it: it is buried with the reason when it is run
        call = Call()
    result: TaskResult[..., Any] = new_result(
        restored(task, backend, job.queue, job.data), id, call, backend, enqueued_at=moment(job.created_at)
    )
    set_fields(
        result,
        status=STATUS[job.state],
        started_at=moment(runs[0].started_at if runs else job.prev_start_time if job.attempts else job.taken_at),
        last_attempted_at=moment(job.taken_at),
        finished_at=moment(job.ended_at),
        errors=_errors(job, runs),
        worker_ids=_workers(job, runs),
        _return_value=None if job.result is None else decode(job.result),
    )
    return result


def new_result(
    task: Task[P, R], id: str, call: Call, backend: str, *, enqueued_at: datetime | None
) -> TaskResult[P, R]:
    """The result of a job that has not run."""
    return TaskResult(
        task=task,
        id=id,
        status=TaskResultStatus.READY,
        enqueued_at=enqueued_at,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=call.args,
        kwargs=call.kwargs,
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def set_fields(result: TaskResult[..., Any], **values: Any) -> None:
    """Change a result in place, as Django's own backends do: it is frozen for everybody else."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def error_of(path: str, traceback: str) -> TaskError:
    return StoredTaskError(exception_class_path=path, traceback=traceback)


def moment(milliseconds: int | None) -> datetime | None:
    """A stored moment as Django keeps it: aware, or in the project's time zone without USE_TZ."""
    if milliseconds is None:
        return None
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found)


def _errors(job: JobInfo, runs: list[FailedRun]) -> list[TaskError]:
    found = [error_of(run.error, run.traceback) for run in runs]
    if job.state == "cancelled":
        return [*found, error_of("accoda.errors.JobCancelled", f"job {job.id} was cancelled")]
    if job.state == "dead" and not found:  # its payload could not be read, or its workers died
        return [error_of("accoda.errors.JobFailed", job.reason or "")]
    return found


def _workers(job: JobInfo, runs: list[FailedRun]) -> list[str]:
    """Who ran the job, run by run; the last may be under way."""
    workers = [run.worker for run in runs] + [UNKNOWN_WORKER] * job.crashes
    if job.state in ("taken", "done"):
        workers.append(job.worker or UNKNOWN_WORKER)
    return workers
