"""Jobs, one by one and in pages: create, look at, cancel, retry, delete, change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from accoda.admin import idempotency
from accoda.admin.creating import prepare, prepare_one
from accoda.admin.idempotency import Once, OnceAnswer
from accoda.admin.pages import JobFilter, where_of
from accoda.admin.pages import page as page_of
from accoda.admin.queues import SCHEDULES
from accoda.admin.requests import Level, NewJobRequest
from accoda.admin.views import JobView, Page
from accoda.errors import Conflict, InvalidInput, JobNotFound
from accoda.model import Enqueued, JobInfo, Rank, check_duration, clean
from accoda.names import is_system
from accoda.runtime.results import FIRST_LOOK, LAST_LOOK, PROGRESS_KEPT, Progress, read_progress
from accoda.shown.levels import LEVELS, new_rank

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.storage.protocol import Store

__all__ = [
    "JobFilter",
    "cancel",
    "create",
    "create_once",
    "create_one",
    "delete",
    "get",
    "page",
    "prepare",
    "retry",
    "set_priority",
    "set_progress",
    "wait_result",
]

WAITING = ("ready", "delayed")
ENDED = ("dead", "done")
EVERY = JobFilter()


async def create(
    app: App,
    requests: Sequence[NewJobRequest],
    idempotency_key: str | None = None,
    who: str = "",
    *,
    batch: bool | None = None,
) -> list[Enqueued]:
    """Store all jobs that are asked for, or none; one answer for each.

    With an idempotency key, the same request again gets the same answer; see `accoda.admin.idempotency` for what that
    promises. `batch`: errors name the field with its job (`jobs[3].priority`); None: where there are several jobs.
    """
    jobs = prepare(app, requests, _where(requests, batch))
    if not jobs:
        return []
    store = app.connections.at_hand() or await app.connections.get()
    if idempotency_key is None:
        return await store.enqueue(jobs)
    return (await idempotency.enqueue_once(store, jobs, Once.of(who, idempotency_key, requests))).items


async def create_one(app: App, request: NewJobRequest) -> Enqueued:
    """`create` for one job and without a key: what most requests are, so in as few steps as it can."""
    job = prepare_one(app, request)
    store = app.connections.at_hand() or await app.connections.get()
    return (await store.enqueue((job,)))[0]


async def create_once(
    app: App, requests: Sequence[NewJobRequest], key: str, who: str = "", *, batch: bool | None = None
) -> OnceAnswer:
    """`create` with an idempotency key; the answer says whether it was given before."""
    jobs = prepare(app, requests, _where(requests, batch))
    return await idempotency.enqueue_once(await app.connections.get(), jobs, Once.of(who, key, requests))


async def page(app: App, filter: JobFilter = EVERY, *, limit: int = 50, cursor: str | None = None) -> Page[JobView]:
    """Jobs that fit, by queue name, state and id. A page may be shorter than `limit` and still have a next one: no more
    than 1,000 records are looked at for it."""
    return await page_of(app, where_of(app, filter), limit, cursor)


async def get(app: App, id: int) -> JobView:
    """Everything about one job, with how far it is."""
    store = await app.connections.get()
    return JobView.of(app, await _find(store, id), await read_progress(store, id))


async def cancel(app: App, id: int) -> None:
    """Take a job back that waits or runs. One that runs is told within about a second, and its outcome is refused."""
    job = await _find(await app.connections.get(), id)
    _check_not_schedule(job)
    if not await app.cancel(id):
        now = await _find(await app.connections.get(), id)
        raise Conflict(f"job {id} is {now.state}: only a job that waits or runs can be cancelled")


async def retry(app: App, id: int) -> JobView:
    """Run a job again, or now: a dead one is ready again, and a delayed one need not wait any longer. Others are
    refused, with the reason."""
    store = await app.connections.get()
    job = await _find(store, id)
    _check_not_schedule(job)
    if job.state == "delayed":
        await store.start_now([id])  # where that started nothing, its time has come meanwhile: it is what was wanted
    elif job.state != "dead":
        raise Conflict(f"job {id} {_WHY_NOT_RETRIED[job.state]}")
    elif not await store.revive([id]):
        job = await _find(store, id)
        if job.state == "dead":
            raise Conflict(f"job {id} stays dead: another job holds its key {job.key!r}")
    return await get(app, id)


async def delete(app: App, id: int) -> None:
    """Delete a job in whatever state. A running one loses its lease."""
    store = await app.connections.get()
    _check_not_schedule(await _find(store, id))
    if not await store.remove([id]):
        raise JobNotFound(id)


async def set_priority(app: App, id: int, level: Level) -> JobView:
    """Give a job that waits another level."""
    if level not in LEVELS:
        raise InvalidInput("priority", f"must be one of {', '.join(LEVELS)}, not {level!r:.60}")
    store = await app.connections.get()
    job = await _find(store, id)
    _check_not_schedule(job)
    if job.state in WAITING:
        await store.rerank([Rank(job.queue, id, new_rank(app, job, level))])
        # It may have been taken meanwhile, and then nothing was changed: the job itself tells.
        job = await _find(store, id)
    if job.state not in WAITING:
        raise Conflict(f"job {id} is {job.state}: only a job that waits (ready or delayed) has a place in the line")
    return JobView.of(app, job, await read_progress(store, id))


async def set_progress(app: App, id: int, fraction: float | None = None, message: str = "") -> None:
    """Say how far a job is: a fraction from 0 to 1, and a line for people."""
    if fraction is not None and not 0 <= fraction <= 1:
        raise InvalidInput("fraction", f"must be from 0 to 1, not {fraction!r}")
    store = await app.connections.get()
    job = await _find(store, id)
    _check_not_schedule(job)
    if is_system(job.queue):
        raise Conflict(f"job {id} is one of Accoda's own, of {job.queue}: nobody else does it, or says how far it is")
    if job.state in ENDED:
        raise Conflict(f"job {id} is {job.state}: it gets no further")
    value = msgspec.json.encode(Progress(fraction, clean(message)))
    await store.write(f"progress/{id}", value, ttl=PROGRESS_KEPT)


async def wait_result(app: App, id: int, timeout: float = 0.0) -> JobView:
    """The job when it has ended (`state` done or dead, with its result or reason), or as it is after `timeout` seconds.

    A job that is not kept vanishes when it is done, and nobody could see its result: that is a Conflict at once.
    """
    check_duration("timeout", timeout)
    store = await app.connections.get()
    deadline, pause = time.monotonic() + timeout, FIRST_LOOK
    while True:
        job = await _find(store, id)
        left = deadline - time.monotonic()
        if job.state in ENDED or left <= 0:
            return JobView.of(app, job, await read_progress(store, id))
        if not job.keep_for:
            raise Conflict(f"job {id} will not be kept when it is done: enqueue it with keepFor to see its result")
        await asyncio.sleep(min(pause, left))
        pause = min(LAST_LOOK, pause * 1.5)


def _where(requests: Sequence[NewJobRequest], batch: bool | None) -> str | None:
    return "jobs" if (len(requests) != 1 if batch is None else batch) else None


async def _find(store: Store, id: int) -> JobInfo:
    if type(id) is not int or not 0 <= id < 1 << 63:
        raise InvalidInput("id", f"must be the number of a job, not {id!r:.60}")
    job = await store.find(id)
    if job is None:
        raise JobNotFound(id)
    return job


def _check_not_schedule(job: JobInfo) -> None:
    if job.queue == SCHEDULES:
        raise Conflict(f"job {job.id} is the schedule {job.key!r} itself; change or delete it as a schedule")


_WHY_NOT_RETRIED = {
    "ready": "is ready: it runs as soon as a worker is free",
    "taken": "is taken: it runs now",
    "done": "is done: enqueue it anew to run it again",
}
