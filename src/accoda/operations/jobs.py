"""Jobs, one by one and in pages: create, look at, cancel, retry, delete, change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import Conflict, InvalidInput, JobNotFound
from accoda.flows.model import LOG
from accoda.masking import NO_MASK, Mask
from accoda.model import (
    ENDED,
    REPORTS,
    ById,
    Cancel,
    Enqueued,
    JobInfo,
    Remove,
    Rerank,
    Revive,
    StartNow,
    check_duration,
    clean,
)
from accoda.names import is_system
from accoda.operations import idempotency
from accoda.operations.attempt_text import attempt_text
from accoda.operations.default_queue import with_queues
from accoda.operations.host import Host
from accoda.operations.idempotency import Once, OnceAnswer
from accoda.operations.job_filter import JobFilter
from accoda.operations.levels import LEVELS, new_rank
from accoda.operations.merged_search import MergedSearch, is_merged
from accoda.operations.moments import rfc3339
from accoda.operations.new_jobs import NewJobRequest, prepare
from accoda.operations.redaction import redacted
from accoda.operations.search import Search, SearchCursor, where_of
from accoda.operations.views import JobView, Page
from accoda.priority import Priority, read_priority
from accoda.runtime.attempts import Attempt, Ended, read_attempts
from accoda.runtime.results import FIRST_LOOK, LAST_LOOK, PROGRESS_KEPT, Progress, read_progress
from accoda.storage.protocol import Store

WAITING = ("ready", "delayed", "held")
EVERY = JobFilter()
MOST = 1000
"""Jobs of one page."""
MOST_IDS = 10_000
SCHEDULES = "accoda.schedules"
OWN = {SCHEDULES: ("schedule", "change or delete it as a schedule")} | dict.fromkeys(
    (LOG, REPORTS), ("flow", "cancel or retry it as a flow")
)
"""Queues whose jobs are something else: what, and what to do with it instead."""


class RunView(Struct, rename="camel", frozen=True, kw_only=True):
    """A failed run. `attempt_text` is which attempt it was, for people; `attempt` is the fencing number of its lease,
    0 for the first. `outcome` says whether the job was to be retried (`retry`) or given up (`bury`); `ran_for` is in
    seconds. `traceback` is its end, if it was long."""

    attempt: int
    attempt_text: str = "attempt 1"
    worker: str
    started_at: str
    ended_at: str
    ran_for: float
    outcome: Ended
    error: str
    traceback: str = ""

    @classmethod
    def of(cls, attempt: Attempt, mask: Mask) -> RunView:
        return cls(
            attempt=attempt.attempt,
            attempt_text=attempt_text(attempt.tries),
            worker=attempt.worker,
            started_at=rfc3339(attempt.started_at),
            ended_at=rfc3339(attempt.ended_at),
            ran_for=max(0, attempt.ended_at - attempt.started_at) / 1000,
            outcome=attempt.outcome,
            error=mask.text(attempt.error),
            traceback=mask.text(attempt.traceback),
        )


async def create(host: Host, requests: Sequence[NewJobRequest], *, batch: bool | None = None) -> list[Enqueued]:
    """Store all jobs that are requested, or none; one answer for each.

    `batch`: errors name the field with its job (`jobs[3].priority`); None: where there are several jobs.
    """
    where = _where(requests, batch)
    jobs = prepare(host, await with_queues(host, requests, where), where)
    return await (await host.connections.get()).enqueue(jobs) if jobs else []


async def create_once(
    host: Host,
    requests: Sequence[NewJobRequest],
    key: str,
    who: str = "",
    *,
    batch: bool | None = None,
    content: Sequence[NewJobRequest] | None = None,
) -> OnceAnswer:
    """`create` with an idempotency key: the same request again gets the same answer, which says so.

    `content` is what the caller sent, if the queues of `requests` were filled in: it stays the same request, whichever
    workers live when it is sent again. See `accoda.operations.idempotency` for what is promised.
    """
    where, once = _where(requests, batch), Once.of(who, key, requests if content is None else content)
    jobs = prepare(host, await with_queues(host, requests, where), where)
    return await idempotency.enqueue_once(await host.connections.get(), jobs, once)


async def page(
    host: Host,
    filter: JobFilter = EVERY,
    *,
    limit: int = 50,
    cursor: str | None = None,
    among: Collection[str] | None = None,
) -> Page[JobView]:
    """Jobs that match, in the order of processing: ready ones as they will be handed out, held ones by rank, delayed
    and taken ones by the moment at which they come back (start time, end of the lease), dead, done and cancelled ones
    latest first.

    Over several queues, jobs of one state are merged by that moment; ready and held ones, and jobs of several states,
    go by the queue's name, then by state, as do those of more than 100 queues.

    A page may be shorter than `limit`, or empty, and still have a next one: at most 1,000 records are read for it.
    With `among`, only these queues are searched.
    """
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise InvalidInput("limit", f"must be an integer from 1 to {MOST}, not {limit!r:.60}")
    after = None if cursor is None else SearchCursor.read(cursor)
    where = replace(where_of(host, filter), among=among)
    store = await host.connections.get()
    search = Search(store, where, limit, order="line")
    starts = await search.starts()
    if is_merged(where, starts):
        found = await MergedSearch(store, where, limit).run(starts, after)
    else:
        found = await search.run(after, starts)
    return Page([JobView.of(host, job) for job in found.jobs], None if found.next is None else found.next.token())


async def get(host: Host, id: int) -> JobView:
    """Everything about one job, with its progress."""
    store = await host.connections.get()
    return JobView.of(host, await find(store, id), await read_progress(store, id))


async def failed_runs(host: Host, id: int) -> list[RunView]:
    """The last failed runs of a job, the oldest first, as far as they were recorded.

    They are kept for three days, even if the job is gone by then.
    """
    check_id(id)
    store = await host.connections.get()
    job = (await store.look(ById(id))).job
    found = await read_attempts(store, id)
    if job is None and not found:
        raise JobNotFound(id)
    # Redacted when they were recorded, and again: this app may know of secrets that the worker did not.
    mask = NO_MASK if job is None else redacted(host, job).mask
    return [RunView.of(attempt, mask) for attempt in found]


async def cancel(host: Host, id: int) -> None:
    """Take back a job that waits or runs. One that runs is told within about a second, and its outcome is refused.

    It stays visible as cancelled for its `keep_for`.
    """
    store = await host.connections.get()
    await _find_own(store, id)
    if not await store.change([Cancel(id)]):
        job = await find(store, id)
        raise Conflict(f"job {id} is {job.state}: only a job that waits or runs can be cancelled")


async def retry(host: Host, id: int) -> JobView:
    """Run a job again, or now: a dead one is ready again, and a delayed one starts now. Others are refused, with the
    reason."""
    store = await host.connections.get()
    job = await _find_own(store, id)
    if job.state == "delayed":
        await store.change([StartNow(id)])  # if that started nothing, its time has come meanwhile
    elif job.state != "dead":
        raise Conflict(f"job {id} {_WHY_NOT_RETRIED[job.state]}")
    elif not await store.change([Revive(id)]):
        job = await find(store, id)
        if job.state == "dead":
            raise Conflict(f"job {id} stays dead: another job holds its key {job.key!r}")
    return await get(host, id)


async def revive(host: Host, ids: Sequence[int]) -> int:
    """Make these dead jobs ready again; how many were."""
    if len(ids) > MOST_IDS:
        raise InvalidInput("ids", f"must be at most {MOST_IDS:,} ids; use a filter for more")
    store = await host.connections.get()
    return await store.change([Revive(id) for id in dict.fromkeys(ids)]) if ids else 0


async def delete(host: Host, id: int) -> None:
    """Delete a job in any state. A running one loses its lease."""
    store = await host.connections.get()
    await _find_own(store, id)
    if not await store.change([Remove(id)]):
        raise JobNotFound(id)


async def set_priority(host: Host, id: int, priority: Priority | str) -> JobView:
    """Give a waiting job another level."""
    level = LEVELS[read_priority(priority)]
    store = await host.connections.get()
    job = await _find_own(store, id)
    if job.state in WAITING:
        await store.change([Rerank(id, new_rank(host, job, level))])
        job = await find(store, id)  # if it was taken meanwhile, nothing was changed
    if job.state not in WAITING:
        raise Conflict(f"job {id} is {job.state}: only a waiting job (ready, held or delayed) has a place in the line")
    return JobView.of(host, job, await read_progress(store, id))


async def set_progress(host: Host, id: int, fraction: float | None = None, message: str = "") -> None:
    """Store how far a job is: a fraction from 0 to 1, and a line for people."""
    if fraction is not None and not 0 <= fraction <= 1:
        raise InvalidInput("fraction", f"must be from 0 to 1, not {fraction!r}")
    store = await host.connections.get()
    job = await _find_own(store, id)
    if is_system(job.queue):
        raise Conflict(f"job {id} belongs to the system queue {job.queue}: only Accoda reports its progress")
    if job.state in ENDED:
        raise Conflict(f"job {id} is {job.state}: it gets no further")
    value = msgspec.json.encode(Progress(fraction, clean(message)))
    await store.write(f"progress/{id}", value, ttl=PROGRESS_KEPT)


async def wait_result(host: Host, id: int, timeout: float = 0.0) -> JobView:
    """The job when it has ended (done, dead or cancelled), with its result or reason, or as it is after `timeout`
    seconds.

    A job that is not kept is deleted when it is done, and its result with it: that is a Conflict at once.
    """
    check_duration("timeout", timeout)
    store = await host.connections.get()
    deadline, pause = time.monotonic() + timeout, FIRST_LOOK
    while True:
        job = await find(store, id)
        left = deadline - time.monotonic()
        if job.state in ENDED or left <= 0:
            return JobView.of(host, job, await read_progress(store, id))
        if not job.keep_for:
            raise Conflict(f"job {id} will not be kept when it is done: enqueue it with keepFor to see its result")
        await asyncio.sleep(min(pause, left))
        pause = min(LAST_LOOK, pause * 1.5)


def check_id(id: object) -> None:
    """Refuse what cannot be the id of a job."""
    if type(id) is not int or not 0 <= id < 1 << 63:
        raise InvalidInput("id", f"must be the number of a job, not {id!r:.60}")


async def find(store: Store, id: int) -> JobInfo:
    """A stored job. Raises JobNotFound."""
    check_id(id)
    job = (await store.look(ById(id))).job
    if job is None:
        raise JobNotFound(id)
    return job


async def _find_own(store: Store, id: int) -> JobInfo:
    """A job that may be changed as a job: a schedule may not, nor what a flow is made of."""
    job = await find(store, id)
    if job.queue in OWN:
        kind, advice = OWN[job.queue]
        raise Conflict(f"job {id} is the {kind} {job.key!r} itself; {advice}")
    return job


def _where(requests: Sequence[NewJobRequest], batch: bool | None) -> str | None:
    return "jobs" if (len(requests) != 1 if batch is None else batch) else None


_WHY_NOT_RETRIED = {
    "ready": "is ready: it runs as soon as a worker is free",
    "held": "is held: its lane is full, and it comes into the line as soon as a place in the lane is free",
    "taken": "is taken: it runs now",
    "done": "is done: enqueue it anew to run it again",
    "cancelled": "is cancelled: enqueue it anew to run it",
}
