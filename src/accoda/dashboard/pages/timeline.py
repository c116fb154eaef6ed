"""What has happened to a job, in order, from what is stored of it and of its failed attempts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from accoda.dashboard.words import sentence
from accoda.operations.jobs import RunView
from accoda.operations.views import JobView

Kind = Literal["created", "waits", "failed", "lost", "taken", "done", "dead", "cancelled", "gap"]


class Step(Struct, frozen=True, kw_only=True):
    """One thing that happened; without `at`, it is not recorded when. `ran_for` is in seconds."""

    kind: Kind
    title: str
    at: str | None = None
    worker: str | None = None
    ran_for: float | None = None
    error: str = ""
    traceback: str = ""


def timeline(job: JobView, runs: Sequence[RunView]) -> list[Step]:
    """What happened to a job, the first step first."""
    title = "Enqueued" if job.schedule is None else f"Enqueued by the schedule {job.schedule}"
    steps = [Step(kind="created", title=title, at=job.created_at)]
    known = sorted(runs, key=lambda run: (run.started_at, run.attempt))
    missing = job.attempts - len({run.attempt for run in known if run.attempt < job.attempts})
    steps += _unrecorded(job, missing, bool(known))
    steps += [_run(run) for run in known]
    return steps + _present(job, known)


def _unrecorded(job: JobView, missing: int, some_known: bool) -> list[Step]:
    """Returns to the queue without a record of a run: leases that were lost, and others. If no run is known, the job
    itself has the last error."""
    lost = max(0, min(missing, job.crashes))
    error = "" if some_known or job.state == "dead" else job.reason or ""
    steps = []
    if missing > lost:
        steps.append(
            Step(kind="gap", title=f"Returned to the queue {_times(missing - lost)}, not recorded", error=error)
        )
    if lost:
        steps.append(Step(kind="lost", title=f"Lease ended {_times(lost)} without an outcome"))
    return steps


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _run(run: RunView) -> Step:
    words = {
        "retry": "failed, will retry",
        "dead": "failed, no retries left",
        "bury": "failed, no retries left",
    }
    return Step(
        kind="failed",
        title=f"{sentence(run.attempt_text)} {words.get(run.outcome, run.outcome)}",
        at=run.ended_at,
        worker=run.worker,
        ran_for=run.ran_for,
        error=run.error,
        traceback=run.traceback,
    )


def _present(job: JobView, known: Sequence[RunView]) -> list[Step]:
    match job.state:
        case "delayed":
            title = "Starts" if not job.attempts else "Starts again"
            return [Step(kind="waits", title=title, at=job.scheduled_at)]
        case "ready":
            return [Step(kind="waits", title="Became ready", at=job.scheduled_at)]
        case "held":
            return [Step(kind="waits", title="Held until its lane has a place, due", at=job.scheduled_at)]
        case "taken":
            title = f"{sentence(job.attempt_text)} running for"
            return [Step(kind="taken", title=title, at=job.taken_at, worker=job.worker)]
        case "done":
            return [Step(kind="done", title="Done", at=job.ended_at, worker=job.worker)]
        case "cancelled":
            return [Step(kind="cancelled", title="Cancelled", at=job.ended_at)]
    told = any(run.attempt == job.attempts for run in known)
    return [Step(kind="dead", title="Dead", at=job.ended_at, error="" if told else job.reason or "")]
