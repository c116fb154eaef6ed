"""From the id of a result to its job.

| enqueued                       | the id                    | the job is found                                  |
| ------------------------------ | ------------------------- | ------------------------------------------------- |
| at once, or in the transaction | the job's own             | by it                                             |
| after the commit               | a name                    | by the document of the name                       |
| through the outbox             | the row's id, "-", a name | in the row; then by its key; then by the document |

A name travels in the job's headers, and the document `accoda.django/result/{name}` has the id of its job. It is written
right after the commit, and by every run: so a job is found also where the process that enqueued it died in between.
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
from accoda.transactions.outbox import read_jobs

NAMES = "accoda.django/result/"
_OF_ROW = re.compile(r"([0-9a-f]{32})-([0-9a-f]{24})")


async def name_job(store: Store, name: str, id: int, keep_for: float) -> None:
    """Say which job a name is of."""
    await store.write(NAMES + name, str(id).encode(), ttl=keep_for + KEPT)


async def stored_job(store: Store, result: str) -> JobInfo | None:
    """The job of a result, if it is in the store."""
    if result.isascii() and result.isdecimal():
        return await _by_id(store, result)
    row = _OF_ROW.fullmatch(result)
    name = row[2] if row else result
    if not name.isalnum():
        return None
    while True:
        if (found := await store.read(NAMES + name)) is not None:
            return await _by_id(store, found.value.decode())
        if row is None:
            return None
        for queue in (await store.stats()).queues:
            if (job := (await store.look(ByKey(queue, KEY + name))).job) is not None:
                return job
        # It may have begun, been done and left its key behind between the two looks: then it has its document now.
        if await store.read(NAMES + name) is None:
            return None


def id_of_row(row: str, name: str) -> str:
    """The id of a result whose job is in a row of the outbox."""
    return f"{UUID(row).hex}-{name}"


def row_of(result: str) -> str | None:
    """The row of the outbox that the id of a result names."""
    found = _OF_ROW.fullmatch(result)
    return None if found is None else str(UUID(found[1]))


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


async def _by_id(store: Store, id: str) -> JobInfo | None:
    if str(int(id)) != id or int(id) >= 1 << 63:
        return None
    return (await store.look(ById(int(id)))).job
