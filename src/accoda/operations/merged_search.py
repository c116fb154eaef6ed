"""Jobs in one state over several queues, merged by their moment: the latest dead letter first, of whichever queue.

Ready and held jobs are not merged: ranks of different queues do not compare. The place of a job among all of them is
its own cursor, and `browse` begins after a cursor whether or not the queue has such a job, so one cursor serves all
queues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct

from accoda.model import ENDED, Cursor, JobInfo, State
from accoda.operations.search import AT_ONCE, CALLS, EXAMINED, Found, SearchCursor, Where
from accoda.storage.protocol import Store


class _Part(Struct):
    """The jobs of one queue that were read and not used yet. `more`: there may be others after them."""

    queue: str
    after: Cursor | None
    jobs: deque[JobInfo]
    more: bool = True


def is_merged(where: Where, starts: Sequence[SearchCursor]) -> bool:
    """Whether these places of a search are merged: jobs of one state that have a moment, of not too many queues."""
    has_moment = len(where.states) == 1 and where.states[0] not in ("ready", "held")
    return has_moment and where.key is None and 1 < len(starts) <= CALLS


class MergedSearch:
    """One part of a search: up to `limit` jobs, of at most `EXAMINED` records that are read for it."""

    def __init__(self, store: Store, where: Where, limit: int) -> None:
        self._store = store
        self._where = where
        self._limit = limit
        self._state: State = where.states[0]
        self._left = EXAMINED

    async def run(self, starts: Sequence[SearchCursor], after: SearchCursor | None) -> Found:
        """The next jobs after a cursor. They may be few, or none, and still have a next part."""
        cursor = None if after is None or after.state != self._state or not after.id else Cursor(after.sort, after.id)
        parts = [_Part(start.queue, cursor, deque()) for start in starts]
        # Half of what may be read, so that the queue whose turn comes most often can be read further.
        first = max(1, min(self._limit + 1, EXAMINED // 2 // len(parts)))
        await asyncio.gather(*(self._read(part, first) for part in parts))
        found, at = Found([]), after
        line = [(_place(part.jobs[0]), number) for number, part in enumerate(parts) if part.jobs]
        heapify(line)
        while line:
            number = heappop(line)[1]
            job = parts[number].jobs.popleft()
            if self._where.has(job):
                if len(found.jobs) == self._limit:
                    found.next = at
                    return found
                found.jobs.append(job)
            at = SearchCursor.of(job, "line")
            found.examined += 1
            if not await self._has_next(parts[number], len(found.jobs)):
                found.next = at
                return found
            if parts[number].jobs:
                heappush(line, (_place(parts[number].jobs[0]), number))
        return found

    async def _has_next(self, part: _Part, count: int) -> bool:
        """Read a queue further if its jobs are used up; False: no more may be read."""
        if not part.jobs and part.more:
            wanted = min(AT_ONCE if self._where.selects else self._limit + 1 - count, self._left)
            if wanted <= 0:
                return False
            await self._read(part, wanted)
        return True

    async def _read(self, part: _Part, count: int) -> None:
        self._left -= count
        found = await self._store.browse(part.queue, self._state, order="line", after=part.after, limit=count)
        part.jobs.extend(found)
        part.more = len(found) == count
        if found:
            part.after = found[-1].cursor()


def _place(job: JobInfo) -> tuple[float, int]:
    """What orders jobs of one state, as `browse` does: those that have ended, latest first."""
    after = job.cursor()
    return (-after.sort, -after.id) if job.state in ENDED else (after.sort, after.id)
