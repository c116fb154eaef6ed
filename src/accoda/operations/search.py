"""Jobs that match a filter, found by bounded work: for pages of jobs, bulk changes, replays and counts.

A search goes through the store by queue name, then state, then in the order of `browse`, part by part.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Collection, Sequence
from math import isfinite

import msgspec
from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.limits import MOMENT, is_name
from accoda.model import STATES, ByKey, Cursor, JobInfo, Order, QueueStats, State
from accoda.operations.bookkeeping import bookkeeping
from accoda.operations.host import Host
from accoda.operations.job_filter import Fits, JobFilter, check_filter, ended_between, matcher
from accoda.storage.protocol import Store

EXAMINED = 1000
"""Records that are read for one part, however few of them match."""
CALLS = 100
"""Calls of `browse` for one part: a store of thousands of queues is searched part by part."""
AT_ONCE = 200
ALIVE = ("ready", "delayed", "held", "taken")
"""The states in which a job holds its key."""
_LONGEST_TOKEN = 400


class SearchCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """After a job in a queue and a state, see `Cursor`. `id` 0: before the first one."""

    queue: str
    state: State = STATES[0]
    sort: float = 0.0
    id: int = 0

    @classmethod
    def of(cls, job: JobInfo, order: Order) -> SearchCursor:
        after = job.cursor(order)
        return cls(job.queue, job.state, after.sort, after.id)

    @property
    def section(self) -> tuple[str, int]:
        return self.queue, STATES.index(self.state)

    def token(self) -> str:
        """Opaque text that a client hands back for the next page.

        >>> SearchCursor.read(SearchCursor("emails", "dead", 2.0, 7).token())
        SearchCursor(queue='emails', state='dead', sort=2.0, id=7)
        """
        return urlsafe_b64encode(_encoder.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, token: str) -> SearchCursor:
        try:
            if len(token) > _LONGEST_TOKEN or not token.isascii():
                raise ValueError
            found = _decoder.decode(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        except (ValueError, NotBase64):  # msgspec's are ValueErrors
            found = None
        good = found is not None and is_name(found.queue) and isfinite(found.sort) and 0 <= found.id < 1 << 63
        if found is None or not good or found.token() != token:
            raise InvalidInput("cursor", "is damaged; use the `next` of a page as it is, or leave it out to begin anew")
        return found


class Where(Struct, frozen=True, kw_only=True):
    """Which jobs. `fits` is asked about each; `key` is the one they all have, if known: its holder is found at once.
    `among` are the only queues that are searched; None: all of them.

    Jobs that ended before `since`, and jobs that were created or ended at `until` or later, are left out.
    """

    queue: str | None = None
    among: Collection[str] | None = None
    states: Sequence[State] = STATES
    system: bool = False
    fits: Fits | None = None
    key: str | None = None
    since: int = 0
    until: int = MOMENT

    def has(self, job: JobInfo) -> bool:
        in_time = job.created_at < self.until and self.since <= (job.ended_at or 0) < self.until
        return in_time and (self.fits is None or self.fits(job))

    @property
    def selects(self) -> bool:
        """Whether some jobs of the states may be left out."""
        return self.fits is not None or self.since > 0 or self.until < MOMENT


class Found(Struct):
    """Some of the jobs, and where to continue; None: there are no more."""

    jobs: list[JobInfo]
    next: SearchCursor | None = None
    examined: int = 0


class Search:
    """One part of a search: up to `limit` jobs, of at most `examine` records that are read for it."""

    def __init__(self, store: Store, where: Where, limit: int, *, order: Order = "id", examine: int = EXAMINED) -> None:
        self._store = store
        self._where = where
        self._limit = limit
        self._order = order
        self._examine = examine
        self._calls = 0
        self._found = Found([])

    async def run(self, after: SearchCursor | None = None, starts: list[SearchCursor] | None = None) -> Found:
        """The next jobs after a cursor. They may be few, or none, and still have a next part."""
        for start in _from(await self.starts() if starts is None else starts, after):
            if not await self._through(start):
                break
        return self._found

    async def starts(self) -> list[SearchCursor]:
        """Where jobs may be, in order. In a queue that is named, all states are searched."""
        where = self._where
        if where.queue is not None:
            return [SearchCursor(where.queue, state) for state in where.states]
        stats = (await self._store.stats()).queues
        hidden = frozenset() if where.system else await bookkeeping(self._store, stats)
        among = stats if where.among is None else where.among
        names = [name for name in sorted(stats) if name not in hidden and name in among]
        return [SearchCursor(name, state) for name in names for state in where.states if _may_have(stats[name], state)]

    async def _through(self, at: SearchCursor) -> bool:
        """Search one queue's jobs in a state; False: this part ends here."""
        where, found = self._where, self._found
        while True:
            wanted = AT_ONCE if where.selects else self._limit + 1 - len(found.jobs)
            room = min(self._examine - found.examined, wanted)
            if room <= 0 or self._calls >= CALLS:
                found.next = at
                return False
            jobs = await self._browse(at, room)
            self._calls += 1
            for job in jobs:
                if self._order == "id" and job.created_at >= where.until and at.state in ALIVE:
                    return True  # by id is by creation: all that follow were created later too
                if where.has(job):
                    if len(found.jobs) == self._limit:
                        found.next = at  # there is one more: the next part begins after the last of this one
                        return False
                    found.jobs.append(job)
                at = SearchCursor.of(job, self._order)
                found.examined += 1
            if len(jobs) < room or self._by_key(at):
                return True

    def _by_key(self, at: SearchCursor) -> bool:
        return self._where.key is not None and at.state in ALIVE

    async def _browse(self, at: SearchCursor, limit: int) -> list[JobInfo]:
        if not self._by_key(at):
            after = Cursor(at.sort, at.id) if at.id else None
            return await self._store.browse(at.queue, at.state, order=self._order, after=after, limit=limit)
        job = None if at.id else (await self._store.look(ByKey(at.queue, self._where.key or ""))).job
        return [job] if job is not None and job.state == at.state else []


def where_of(host: Host, filter: JobFilter, states: Sequence[State] = STATES, until: int = MOMENT) -> Where:
    """Where to search for the jobs that match a filter, are in one of the states, and came before `until`."""
    check_filter(filter)
    since, before = ended_between(filter)
    return Where(
        queue=filter.queue,
        states=[state for state in states if filter.state in (None, state)],
        system=filter.system,
        fits=matcher(host, filter),
        key=filter.key,
        since=since,
        until=min(until, before),
    )


def _from(every: list[SearchCursor], after: SearchCursor | None) -> list[SearchCursor]:
    """Those from a cursor on. One of another filter continues from its place, but not into what this one leaves out."""
    if after is None:
        return every
    here = [after] if any(start.section == after.section for start in every) else []
    return here + [start for start in every if start.section > after.section]


def _may_have(stats: QueueStats, state: State) -> bool:
    # `done` and `cancelled` count events: a queue that ever finished or cancelled a job may still keep some.
    count: int = getattr(stats, state)
    return count > 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SearchCursor)
