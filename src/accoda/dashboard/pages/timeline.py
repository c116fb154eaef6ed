"""What has happened to a job, in order, from what is stored of it and of its failed attempts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from accoda.operations.jobs import RunView
from accoda.operations.views import JobView

Kind = Literal["created", "waits", "failed", "lost", "taken", "done", "dead", "gap"]


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
    title = "Created" if job.schedule is None else f"Created by the schedule {job.schedule}"
    steps = [Step(kind="created", title=title, at=job.created_at)]
    known = sorted(runs, key=lambda run: (run.started_at, run.attempt))
    missing = job.attempts - len({run.attempt for run in known if run.attempt < job.attempts})
    if missing > 0:
        steps.append(_gap(job, missing, bool(known)))
    steps += [_run(run) for run in known]
    return steps + _present(job, known)


def _gap(job: JobView, missing: int, some_known: bool) -> Step:
    """Attempts that were not recorded; if none is known, the job itself has the last error."""
    times = "once" if missing == 1 else f"{missing} times"
    error = "" if some_known or job.state == "dead" else job.reason or ""
    return Step(kind="gap", title=f"Came back {times}, without a record", error=error)


def _run(run: RunView) -> Step:
    words = {
        "retry": "failed, to be retried",
        "dead": "failed, and was given up",
        "bury": "failed, and was given up",
    }
    return Step(
        kind="failed",
        title=f"Attempt {run.attempt + 1} {words.get(run.outcome, run.outcome)}",
        at=run.ended_at,
        worker=run.worker,
        ran_for=run.ran_for,
        error=run.error,
        traceback=run.traceback,
    )


def _present(job: JobView, known: Sequence[RunView]) -> list[Step]:
    number = job.attempts + 1
    match job.state:
        case "delayed":
            title = "Starts" if not job.attempts else "Starts again"
            return [Step(kind="waits", title=title, at=job.scheduled_at)]
        case "ready":
            return [Step(kind="waits", title="Ready, waiting for a worker since", at=job.scheduled_at)]
        case "taken":
            return [Step(kind="taken", title=f"Attempt {number} is running since", at=job.taken_at, worker=job.worker)]
        case "done":
            return [Step(kind="done", title="Done", at=job.ended_at, worker=job.worker)]
    told = any(run.attempt == job.attempts for run in known)
    return [Step(kind="dead", title="Dead", at=job.ended_at, error="" if told else job.reason or "")]
