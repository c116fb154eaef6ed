"""`/api/v1/jobs/{id}/why`: why a job is not running, and when it will."""

from __future__ import annotations

from accoda.http.call import Call
from accoda.http.operation import Nothing, Reply, operation
from accoda.http.resources.common import JobPath
from accoda.operations.why import Explanation, Gate, Start, why

VIEW = Explanation(
    id=41,
    queue="emails",
    state="ready",
    at="2030-01-01T09:00:00.000Z",
    line="12 jobs are ahead, 3 of them came later; starts in about 40 s (20 s to 90 s)",
    gates=(
        Gate(name="paused", verdict="open", text="the queue is not paused"),
        Gate(
            name="line",
            verdict="shut",
            text="12 jobs are ahead, 3 of them came later",
            facts={"ahead": 12, "newer": 3, "exact": 1, "ready": 40},
        ),
    ),
    position=13,
    start=Start(
        text="in about 40 s (20 s to 90 s)",
        low=20.0,
        likely=40.0,
        high=90.0,
        low_at="2030-01-01T09:00:20.000Z",
        likely_at="2030-01-01T09:00:40.000Z",
        high_at="2030-01-01T09:01:30.000Z",
    ),
    sooner=("raise its priority: accoda job 41 priority HIGH (it would be next, before 12 jobs)",),
)


@operation(
    "GET",
    "/api/v1/jobs/{id}/why",
    "Jobs",
    "Why a job is not running, and when it will",
    queues="job",
    description="The gates before it in their order, each open or shut and with its numbers; its place in the "
    "line; an estimate of its start from how fast its queue is served; and what would make it start sooner. A "
    "handful of looks, however many jobs there are.",
    path_example={"id": 41},
    replies={200: Reply(description="The answer.", type=Explanation, example=VIEW)},
    errors=("not-found",),
)
async def why_job(call: Call[None, Nothing, JobPath]) -> Explanation:
    return await why(call.app, call.path.id)
