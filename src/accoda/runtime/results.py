"""What comes back from a job: its result, and how far it is."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from msgspec import Struct

from accoda.connections import Connections
from accoda.errors import InvalidInput, JobCancelled, JobFailed, JobNotFound, ResultTimeout
from accoda.model import ById, JobInfo, clean
from accoda.payload import Codec, UnreadablePayload, read_json
from accoda.runtime.batch import Running
from accoda.storage.protocol import Store

FIRST_LOOK, LAST_LOOK = 0.002, 0.25
"""Seconds between two looks for a result: soon at first, then less and less often."""
PROGRESS_EVERY = 0.1
PROGRESS_KEPT = 86_400.0


class Progress(Struct, frozen=True):
    """How far a job is: a fraction from 0 to 1, and a line for people."""

    fraction: float | None = None
    message: str = ""


async def wait_for_result(store: Store, id: int, timeout: float | None, type: Any) -> Any:
    """Look until the job has ended, ever less often."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_LOOK
    while True:
        job = (await store.look(ById(id))).job
        if job is None:
            raise JobNotFound(id)
        if job.state == "done":
            return _read(job, type)
        if job.state == "dead":
            raise JobFailed(id, job.reason or "no reason given")
        if job.state == "cancelled":
            raise JobCancelled(id)
        if deadline is not None and time.monotonic() >= deadline:
            raise ResultTimeout(id, timeout or 0.0, job.state)
        if job.state in ("taken", "ready", "held"):
            _will_be_kept(job)
        await asyncio.sleep(pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(LAST_LOOK, pause * 1.5)


async def write_progress(connections: Connections, job: Running[Any], fraction: float | None, message: str) -> None:
    """Store how far a job is, unless it was stored a moment ago."""
    if fraction is not None and not 0 <= fraction <= 1:
        raise InvalidInput("fraction", f"must be from 0 to 1, not {fraction!r}")
    now = time.monotonic()
    if fraction != 1 and now - job.told_at < PROGRESS_EVERY:
        return
    job.told_at = now
    value = msgspec.json.encode(Progress(fraction, clean(str(message))))
    await (await connections.get()).write(_name(job.id), value, ttl=PROGRESS_KEPT)


async def read_progress(store: Store, id: int) -> Progress | None:
    """What was last stored; None too where that cannot be read."""
    return (await progress_of(store, id))[0]


async def progress_of(store: Store, id: int) -> tuple[Progress | None, int]:
    """What was last stored, and a number that grows each time that something is."""
    document = await store.read(_name(id))
    return (None, 0) if document is None else (read_json(document.value, Progress), document.version)


def _read(job: JobInfo, type: Any) -> Any:
    if job.result is None:
        return None
    try:
        return Codec(type).decode(job.result)
    except UnreadablePayload as error:
        problem = str(error).replace("the payload", "it", 1)
        raise InvalidInput("type", f"the result of job {job.id} does not fit: {problem}") from error


def _will_be_kept(job: JobInfo) -> None:
    """A job that is not kept vanishes when it is done: say so now, not after a long wait."""
    if not job.keep_for:
        raise InvalidInput(
            "id", f"the result of job {job.id} will not be kept; give its handler (or enqueue) keep_for=3600, say"
        )


def _name(id: int) -> str:
    return f"progress/{id}"
