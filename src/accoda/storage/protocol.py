"""The seam between the queue and its stores: `Storage` for the hot path, `Inspector` for people.

A storage decides nothing: it applies what it is told, atomically. `accoda.testing.conformance` proves the promises.

What is due (a delayed job's start time, a lease's end, a kept result's end) is applied by the calls themselves, at the
storage's clock, before they answer, so no background process is needed. A moment has come when `now >= moment`. A lease
that ends gives the job `attempts + 1` and `crashes + 1`; its `start_time` is the moment at which that is applied.

One call applies at most `DUE_AT_ONCE` such moves, the oldest moments first, over all queues that it is about, and then
does its own work: 100,000 leases that end at the same moment make no call long. Of a storm the rest is applied by the
calls that follow, a thousand at a time. Until then `stats`, `find`, `browse`, `rerank` and `purge` may still see the
state before, and every job is still counted once. What matters is exact all the same: `settle`, `extend` and `waiters`
compare the lease's own end with the clock, so a lease that has ended is lost whether its return was applied or not;
nothing is handed out before its time; and `wait` does not sleep while something due is left in a queue that is not
paused.

A record that cannot be read stops nobody: the call that meets it makes it dead, with a reason that says what is
unreadable ("unreadable record: rank is not finite"), keeps what can be kept of it, and goes on with the others. A
document that cannot be read is none: nobody sees it, and the next write of its name puts it right.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from accoda.model import (
    Document,
    Enqueued,
    Job,
    JobInfo,
    Lease,
    NewJob,
    Outcome,
    Peek,
    Place,
    Rank,
    Refused,
    State,
    Stats,
)

MOST_PLACES = 10_000
"""How many jobs `place` counts at most, on either side."""

DUE_AT_ONCE = 1000
"""How many due moves, or unreadable records, one call deals with at most."""


class Storage(Protocol):
    """What producers and workers call."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all of them or none, in order; one answer for each.

        A key is held by a job that is ready, delayed or taken. Where it is held, `keep` changes nothing ("kept");
        `replace` gives the job the new data, rank, cost, keep_for and start time ("replaced"): it keeps its id, its
        waiters and, unless it was running, its attempts; a running one loses its lease and waits again, attempts + 1.
        Either way it begins afresh (`fresh_at` is its attempts, `crashes` is 0);
        `attach` adds the waiter and changes nothing else ("attached"). A new waiter is added by `replace` as well.
        A start moment in the past is now.
        """
        ...

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        """Lease up to `count` ready jobs, lowest rank first, then lowest id.

        With `max_cost` the summed cost stays within it, and the head is never skipped for a cheaper job behind it.
        A paused queue gives nothing.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        """Apply each outcome whose lease is current; give back the others. Empty: all were applied.

        All outcomes are applied first, then the follow-ups of those accepted are enqueued in their order, all in one
        atomic step: a job may enqueue a follow-up under its own key. `Retry` keeps the rank, sets attempts + 1,
        prev_start_time to the old start time and start_time to the new one.
        """
        ...

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        """Make each current lease end `lease` seconds from now; give back those that are lost."""
        ...

    async def rerank(self, ranks: Sequence[Rank]) -> int:
        """Apply each new rank whose job waits (ready or delayed) and has not more waiters than told; count them."""
        ...

    async def waiters(self, lease: Lease) -> list[bytes]:
        """Those who wait for a taken job, in the order in which they joined. Empty if the lease is lost."""
        ...

    async def peek(self, queue: str, key: str | None = None, *, after: int | None = None) -> Peek:
        """Look at one job without taking it: the one that holds `key` or, without a key, the one that the next `take`
        would give first (none of a paused queue; a key is held there all the same).

        Applies what is due, as `take` does; the job of a key is up to date however much else is due. With `after`, its
        waiters too, in the order in which they joined, but for the first `after` of them: they are only ever added, so
        who has seen that many needs only the rest. The job and its waiters are of one moment.
        """
        ...

    async def drop(self, queue: str, id: int, waiters: int) -> bool:
        """Remove a job that is ready, delayed or taken, unless it has more waiters than that by now.

        A running one loses its lease, and the key is free. Nobody is told "attached" to a job that a drop removes
        without having counted him. False: it has more, or it has ended, or there is no such job in that queue.
        """
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until something may be takable in one of the queues (True) or the timeout is over (False).

        Wakes for an enqueue, a start time, a lease end, a resume, in this process and in others. True at once where
        something is due that is not applied yet. A paused queue is asleep until its pause ends.
        """
        ...

    async def stats(self) -> Stats:
        """Counts of every queue that ever had a job or a pause, in O(queues)."""
        ...

    async def read(self, name: str) -> Document | None:
        """The document, unless there is none or its time to live is over."""
        ...

    async def write(self, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None) -> int:
        """Write a document and give its new version, from 1 upwards.

        With `version`, only if it is at that version (0: only if there is none), else `VersionConflict`. A document
        whose time to live is over counts as none, but for a day its versions go on, so that a version read before does
        not fit what was written since. `ttl=0` removes it.
        """
        ...

    async def documents(self, prefix: str) -> list[Document]:
        """The documents whose name starts with `prefix`, by name."""
        ...

    async def close(self) -> None:
        """Let go of everything. A second close does no harm; other calls then raise `StorageClosed`."""
        ...


class Inspector(Protocol):
    """What the command line, the HTTP API and the dashboard call."""

    async def find(self, id: int) -> JobInfo | None:
        """Everything about one job, in whatever state."""
        ...

    async def browse(self, queue: str, state: State, after: int | None = None, limit: int = 100) -> list[JobInfo]:
        """A page of the jobs in a state, by id, beginning after the id `after`."""
        ...

    async def place(self, id: int, most: int = 1000) -> Place | None:
        """Where a job stands in the line of its queue; None if there is no such job.

        Applies what is due in the queue, as `peek` does; the job itself is up to date however much else is due. One
        look, whose cost grows with log n and `most`, not with the line: exact where at most `most` jobs are ahead of
        it, or at most `most` behind it. In between the storage may answer with an estimate, which says so
        (`exact=False`), and which leaves as many jobs on either side as are known to be there.
        """
        ...

    async def remove(self, ids: Sequence[int]) -> int:
        """Delete jobs in any state and count them. A running one loses its lease."""
        ...

    async def revive(self, ids: Sequence[int]) -> int:
        """Make dead jobs ready again, attempts + 1, and count them. One whose key is held by another job stays dead.

        A revived job begins afresh: `fresh_at` is its attempts, `crashes` is 0.
        """
        ...

    async def start_now(self, ids: Sequence[int]) -> int:
        """Make delayed jobs ready now, whatever they wait for (a start time, a retry's pause), and count them.

        Their start time is now; attempts, rank, key and waiters stay as they are. Jobs in any other state are left
        alone, and one whose time has come by itself is ready already: it does not count.
        """
        ...

    async def pause(self, queue: str, until: int | None = None) -> None:
        """Hand out nothing of this queue until the moment `until` (None: until `resume`). Running jobs go on."""
        ...

    async def resume(self, queue: str) -> None:
        """End a pause."""
        ...

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        """Delete jobs of the queue in that state and count them: all, or those since before the moment `before`.

        A dead or done job counts from `ended_at`, any other from `created_at`. With `limit`, at most so many: dead and
        done jobs by `ended_at`, then id; others by id. The cost is then bounded by the limit, however many there are.
        """
        ...


class Store(Storage, Inspector, Protocol):
    """Both on one object, as an async context manager: what `open_storage` gives."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
