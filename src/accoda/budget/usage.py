"""The log of token use: one line for each run of a job that a budget paid for.

A line is itself a job, in the companion queue `{queue}.spent`: delayed for ever, never run. So it is written in the
same atomic step in which the run's job is done, on every storage, and forgotten by `purge` after `log_for`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.limits import MOMENT
from accoda.model import Cursor, JobInfo, NewJob
from accoda.storage.protocol import Store

SUFFIX = ".spent"
PIECE = 1000
"""Lines that one call reads or deletes at most."""

log = logging.getLogger("accoda.worker")


class Usage(Struct, frozen=True, array_like=True):
    """What one run of a job took.

    `operation` is its queue, `cost` what it cost in tokens, `costs` what each budget paid. `success`: the job is done.
    `duration` is how many seconds the call took: what `spent(…, duration=…)` said, else how long the handler ran (a
    handler of batches: for the whole batch). `at` is the moment of its end. `id` is the line's own: give the
    last one as `after` to read on.
    """

    at: int
    operation: str
    job: int
    key: str | None = None
    cost: int = 0
    costs: dict[str, int] = {}
    success: bool = True
    duration: float = 0.0
    id: int = 0

    @property
    def budgets(self) -> tuple[str, ...]:
        return tuple(self.costs)


def line_of(usage: Usage) -> NewJob:
    """The job that keeps a line."""
    return NewJob(usage.operation + SUFFIX, _encode(usage), start_at=MOMENT)


async def read_usage(store: Store, queue: str, since: int | None, after: int | None, limit: int) -> list[Usage]:
    """The lines of a queue, oldest first."""
    name = queue + SUFFIX
    if since is not None:
        after = await _before(store, name, since, after or 0)
    found: list[Usage] = []
    while len(found) < limit:
        want = min(PIECE, limit - len(found))
        page = await store.browse(name, "delayed", order="id", after=Cursor(0.0, after or 0), limit=want)
        found += [usage for job in page if (usage := _read(job)) is not None]
        if len(page) < want:
            break
        after = page[-1].id
    return found


async def forget_usage(store: Store, keep: Mapping[str, float], now: int) -> int:
    """Delete the lines of each queue that are older than it keeps them; count them."""
    gone = 0
    for queue, seconds in keep.items():
        before = now - round(seconds * 1000)
        while before > 0 and (deleted := await store.purge(queue + SUFFIX, "delayed", before=before, limit=PIECE)):
            gone += deleted
    if gone:
        log.info("forgot %d lines of token use", gone)
    return gone


async def _before(store: Store, name: str, since: int, low: int) -> int:
    """An id before all lines since that moment, and after nearly all that are older.

    Ids grow with time, so it is found by halving: some fifty looks at one job each, however long the log is.
    """

    async def is_late(id: int) -> bool:
        page = await store.browse(name, "delayed", order="id", after=Cursor(0.0, id), limit=1)
        return not page or page[0].created_at >= since

    if await is_late(low):
        return low
    step = 1
    while not await is_late(low + step):
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if await is_late(middle):
            high = middle
        else:
            low = middle
    return high


def _read(job: JobInfo) -> Usage | None:
    try:
        return replace(_decode(job.data), id=job.id)
    except (ValueError, RecursionError):  # not ours: it must not hide the others
        return None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Usage).decode
