"""From the id of a result to its job.

| enqueued                       | the id        | the job is found                                  |
| ------------------------------ | ------------- | ------------------------------------------------- |
| at once, or in the transaction | the job's own | by it                                             |
| after the commit               | a name        | by the document of the name                       |
| through the outbox             | a name        | in the row; then by its key; then by the document |

A name travels in the job's headers, and the document `accoda.django/result/{name}` has the id of its job. It is written
right after the commit, and by every run: so a job is found also where the process that enqueued it died in between.
A name is the id of the row in the outbox, or would be.
"""

from __future__ import annotations

import re
from uuid import UUID

from django.db import connections
from django.utils import timezone

from accoda.django.jobs import KEY
from accoda.django.results import KEPT
from accoda.model import ById, ByKey, JobInfo, NewJob
from accoda.storage.protocol import Store
from accoda.transactions.outbox import new_id, read_jobs

NAMES = "accoda.django/result/"
_NAME = re.compile(r"[0-9a-f]{32}")


async def name_job(store: Store, name: str, id: int, keep_for: float) -> None:
    """Say which job a name is of."""
    await store.write(NAMES + name, str(id).encode(), ttl=keep_for + KEPT)


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
    return None if found is None else await _by_id(store, found.value.decode())


async def _by_id(store: Store, id: str) -> JobInfo | None:
    if not (id.isascii() and id.isdecimal()) or str(int(id)) != id or int(id) >= 1 << 63:
        return None
    return (await store.look(ById(int(id)))).job
