"""From the id of a result to its job.

| enqueued                       | the id        | the job is found                                  |
| ------------------------------ | ------------- | ------------------------------------------------- |
| at once, or in the transaction | the job's own | by it                                             |
| after the commit               | a name        | by the document of the name                       |
| through the outbox             | a name        | in the row; then by its key; then by the document |

A name travels in the job's headers, and the document `accoda.django/result/{name}` has the id of its job. It is written
right after the commit, and by every run: so a job is found also where the process that enqueued it died in between.
A name is the id of the row in the outbox, or would be.

A job that has a key of its own cannot have the name as its key. If it goes through the outbox, its document has that
key until its first run. The job that holds the key may be an earlier one, of which this is a duplicate. Names grow with
time, so a later one can be told from it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from uuid import UUID

import msgspec
from django.db import connections
from django.utils import timezone

from accoda.django.jobs import KEY, NAME
from accoda.django.results import KEPT
from accoda.envelope import unwrap
from accoda.errors import VersionConflict
from accoda.model import ById, ByKey, JobInfo, NewJob
from accoda.storage.protocol import Store
from accoda.transactions.outbox import new_id, read_jobs

NAMES = "accoda.django/result/"
_NAME = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


async def name_job(store: Store, name: str, id: int, keep_for: float) -> None:
    """Say which job a name is of."""
    await store.write(NAMES + name, str(id).encode(), ttl=keep_for + KEPT)


async def name_key(store: Store, name: str, job: NewJob, keep_for: float) -> None:
    """Say by which key the job of a name can be found, unless a run has said which job it is."""
    with suppress(VersionConflict):
        value = msgspec.json.encode((job.queue, job.key))
        await store.write(NAMES + name, value, version=0, ttl=keep_for + KEPT)


async def stored_job(store: Store, result: str) -> JobInfo | None:
    """The job of a result, if it is in the store."""
    if _NAME.fullmatch(result) is None:
        return await _by_id(store, result)
    if (job := await _by_document(store, result)) is not None:
        return job
    for queue in (await store.stats()).queues:
        if (job := (await store.look(ByKey(queue, KEY + result))).job) is not None:
            return job
    # It may have run to its end between the two looks, and have left its key: then it has its document now.
    return await _by_document(store, result)


def new_name() -> str:
    """A name for a job that has no id yet."""
    return UUID(new_id()).hex


def row_of(result: str) -> str | None:
    """The row of the outbox that the id of a result names; None: it names a job."""
    return None if _NAME.fullmatch(result) is None else str(UUID(result))


def read_row(database: str, row: str) -> NewJob | None:
    """The job of a row of the outbox, if this connection sees it: from inside its transaction too."""
    with connections[database].cursor() as cursor:
        cursor.execute("SELECT jobs FROM accoda_outbox WHERE id = %s", [row])
        found = cursor.fetchone()
    return None if found is None else read_jobs(bytes(found[0]), 0.0)[0]


def as_ready(job: NewJob) -> JobInfo:
    """A job that is not in the store yet, as it will be there."""
    now = round(timezone.now().timestamp() * 1000)
    return JobInfo(
        id=0,
        queue=job.queue,
        state="ready",
        data=job.data,
        rank=job.rank,
        cost=job.cost,
        key=job.key,
        attempts=0,
        created_at=now,
        start_time=job.start_at or now,
        prev_start_time=None,
        waiters=0,
    )


async def _by_document(store: Store, name: str) -> JobInfo | None:
    found = await store.read(NAMES + name)
    if found is None:
        return None
    if not found.value.startswith(b"["):
        return await _by_id(store, found.value.decode())
    job = (await store.look(ByKey(*msgspec.json.decode(found.value, type=tuple[str, str])))).job
    if job is None or _moment_of(job) > _written_at(name):
        # It may have run to its end since, and is named by its id then.
        again = await store.read(NAMES + name)
        return None if again is None or again.version == found.version else await _by_id(store, again.value.decode())
    with suppress(VersionConflict):  # a duplicate has no run of its own that would say so
        await store.write(NAMES + name, str(job.id).encode(), version=found.version, ttl=job.keep_for + KEPT)
    return job


def _written_at(name: str) -> int:
    """The moment of a name, in milliseconds."""
    return int(name[:12], 16)


def _moment_of(job: JobInfo) -> int:
    """When the call of a job was: it may have come to the store much later."""
    name = unwrap(job.data)[0].headers.get(NAME)
    return job.created_at if name is None else _written_at(name)


async def _by_id(store: Store, id: str) -> JobInfo | None:
    if _NUMBER.fullmatch(id) is None or int(id) >= 1 << 63:
        return None
    return (await store.look(ById(int(id)))).job
