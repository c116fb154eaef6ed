"""Running what a test has enqueued, with the clock moved along if the test says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from accoda.app_testing.reading import JobReader
from accoda.clock import ManualClock
from accoda.flows.model import LOG
from accoda.model import JobInfo
from accoda.operations.why.records import Explanation
from accoda.storage.protocol import Store
from accoda.times import milliseconds

MOVES = 500
"""How often one `drain` moves the clock at most."""


class DrainedApp(Protocol):
    """What draining needs of an app."""

    @property
    def storage(self) -> Store: ...

    async def run_until_idle(self, queues: Iterable[str] | None = None) -> int: ...

    async def why(self, id: int) -> Explanation: ...


async def run_ready(app: DrainedApp, reader: JobReader, queues: Sequence[str]) -> int:
    """Run what can run in these queues. A worker starts all that its queues need, so it gets those that have jobs."""
    total, moved, ready = 0, True, reader.ready(queues)
    while ready and moved:
        ran = await app.run_until_idle(ready)
        before, ready = ready, reader.ready(queues)
        moved = ran > 0 or before != ready  # a flow may have moved on without a run
        total += ran
    return total


async def drain(app: DrainedApp, reader: JobReader, queues: Sequence[str], clock: ManualClock | None) -> int:
    """Run what is ready, and what that enqueues; with a `clock`, also what starts later. The number of jobs run."""
    ran = await app.run_until_idle(queues)
    if clock is None:
        return ran
    for _ in range(MOVES):
        found = await _next_job(app, queues)
        if found is None:
            return ran
        # Deadlines of flows that come before it are kept.
        deadlines = await app.storage.browse(LOG, "delayed", limit=1)
        moment = min([found[0], *(job.start_time for job in deadlines)])
        clock.advance(max(0, moment - clock.now()) / 1000)
        ran += await run_ready(app, reader, queues)
    found = await _next_job(app, queues)
    if found is not None:
        raise AssertionError(
            f"job {found[1].id} of {found[1].queue} still waits after {MOVES} moves of the clock, as if jobs enqueued "
            "themselves again and again; use advance(…) and drain() for as far as the test goes"
        )
    return ran


async def _next_job(app: DrainedApp, queues: Sequence[str]) -> tuple[int, JobInfo] | None:
    """The soonest moment at which a job of these queues can start that cannot start now."""
    found: list[tuple[int, JobInfo]] = []
    for queue in queues:
        found += [(job.start_time, job) for job in await app.storage.browse(queue, "delayed", limit=1)]
        for job in await app.storage.browse(queue, "ready", limit=1):
            moment = await _opens_at(app, job)
            if moment is not None:
                found.append((moment, job))
    return min(found, key=lambda each: (each[0], each[1].id), default=None)


async def _opens_at(app: DrainedApp, job: JobInfo) -> int | None:
    """When what keeps a ready job from running ends by itself: a pause, or a lack of tokens."""
    shut = [gate for gate in (await app.why(job.id)).gates if gate.verdict == "shut"]
    until = [gate.facts["until"] for gate in shut if "until" in gate.facts]
    return max((milliseconds("until", datetime.fromisoformat(str(each))) for each in until), default=None)
