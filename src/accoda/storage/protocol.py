"""The seam between the queue and its stores: `Storage` for the hot path, `Inspector` for people, demand and flows.

A storage decides nothing: it applies what it is told, atomically. `accoda.testing.conformance` proves the promises.

What is due (a delayed job's start time, the end of a lease, the end of keeping a finished job) is applied by the calls
themselves, at the storage's clock, before they answer, so no background process is needed. A moment has come when
`now >= moment`. A lease that ends gives the job `attempts + 1` and `crashes + 1`; its `start_time` is the moment at
which that is applied.

One call applies at most `DUE_AT_ONCE` such moves, the oldest moments first, over all queues that it is about, and then
does its own work, so 100,000 leases that end at the same moment make no call long. The calls that follow apply the
rest. Until then `stats`, `browse` and `purge` may still see the state before, and every job is still counted once.
What matters is exact all the same: `settle` and `extend` compare the end of the lease with the clock, so a lease that
has ended is lost whether its return was applied or not; a call that names a job applies that job's own move; nothing is
handed out before its time; and `wait` does not sleep while something due is left in a queue that is not paused.

A job with `reports_to` tells its flow of every end and of every revival: `Done`, `Bury`, `Cancel`, `Remove`, `purge`
and `Revive` add a `Report` in the same atomic step, and nothing else does. So a flow never waits for a job that is
gone, whoever ended it.

Lanes. Where a queue has rules for its lanes, a job of a lane that becomes ready, by whatever step, is held at first.
The step ends by balancing each lane that it touched: of the lane's ready and held jobs, in the order of rank and id,
the first `limit - taken` are ready and the others held (without a limit: all are ready). So there is no count that
could be wrong, and whatever frees a place, a lease that ended included, fills it in the same step. `enqueue`, `settle`
and `purge` balance once, after all their other work; `change` after each change; other verbs after they have applied
what is due. The lanes of a step are balanced in the order of their names (by code point), each by first holding jobs
back, then letting others in, best first.

Queues whose rules have the same `Lanes.shared` are a group, and their limits hold for all of them together: of a lane's
ready and held jobs in all queues of the group, in the order of rank and id, the first `limit - taken` are ready, where
`taken` counts the lane's running jobs in all of them, and `limit` is the lowest that one of them gives the lane. A step
that touches a lane in one queue of a group balances it in all of them. A queue that shares its limits with no other is
a group of one. Turns and `total` are those of each queue. A job in the line of a paused queue keeps its place. `take`
and `wait` apply what is due in all queues of the group, queue by queue in the order of their names, each followed by
its balance; and `wait` sleeps no longer than until the next moment in one of them. For a lease of another queue may
hold the place that a job waits for, and perhaps that queue has no worker left.

A job of a lane that comes into a fair line has a turn, which orders it in place of its rank. The level is the whole
part of the rank (rounded down), L are the ready jobs of lanes in the queue whose turn (or rank) is at least the level
and below level + 1, and `length` is `Lanes.turn_of` the job. Where L has jobs of the same lane, the turn is the highest
of theirs + length. Else it is the lowest of L (the level itself if L is empty) + length * NEWCOMER, which is a little
less than one: so it comes before the next turn of those who are there. A turn that would reach level + 1 is level + 1 -
TURN. A job that stays in the line keeps its turn; one that is reranked or replaced leaves the line and comes in again.

This is self-clocked fair queueing, whose virtual time (the lowest of L) and finish times are read from the line itself:
there is no counter to keep or to lose, and a lane with nothing in the line costs nothing. Nothing is forgotten by it: a
job was taken because its turn was the lowest, so the finish time of a lane that has left the line is not above L.

The engine's own constraints keep out records that no Accoda wrote. Where an engine has none, the client that cannot
decode a record buries it: no worker stops because of it, and no job beside it is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from accoda.model import (
    Change,
    Cursor,
    Document,
    Enqueued,
    Job,
    JobInfo,
    Lanes,
    LanesInfo,
    Lease,
    Look,
    NewJob,
    Order,
    Outcome,
    Refused,
    State,
    Stats,
    Target,
)

DUE_AT_ONCE = 1000
"""How many due moves one call applies at most."""


class Storage(Protocol):
    """What producers and workers call."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all of them or none, in order; one answer for each.

        A key is held by a job that is ready, held, delayed or taken. Where it is held, `keep` changes nothing ("kept");
        `rerank` gives the job the new rank and changes nothing else ("kept"): one that waits moves in the line at once,
        a delayed or running one has the rank when it is ready or comes back;
        `attach` adds the waiter and changes nothing else ("attached"); `replace` gives the job the new data, rank,
        cost, keep_for and start time, and adds the waiter if there is one ("replaced"). A replaced job keeps its id,
        its lane, its waiters and, unless it was running, its attempts; a running one loses its lease and waits again,
        attempts + 1. Either way its `tries` and `crashes` begin again at 0.
        A start moment in the past is now.
        """
        ...

    async def take(
        self, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
    ) -> list[Job]:
        """Lease up to `count` ready jobs, lowest rank first (in a fair line: lowest turn), then lowest id.

        With `max_cost` the summed cost stays within it, and the head is never skipped for a cheaper job behind it.
        A paused queue gives nothing, and one whose `Lanes.total` jobs are taken gives no more.
        """
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> list[Refused]:
        """Apply each outcome whose lease is current; give back the others. Empty: all were applied.

        All outcomes are applied first, then the follow-ups of those accepted are enqueued in their order, then reports
        are added in the order of the outcomes, all in one atomic step: a job may enqueue a follow-up under its own key,
        and what it leaves for its flow is there before its report. `Retry` sets attempts + 1, tries + 1 if it counts,
        prev_start_time to the old start time and start_time to the new one; the rank stays unless it gives one.
        """
        ...

    async def extend(self, leases: Sequence[Lease], lease: float) -> list[Refused]:
        """Make each current lease end `lease` seconds from now; report those that are lost or cancelled."""
        ...

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Sleep until something may be takable in one of the queues (True) or the timeout is over (False).

        Wakes for an enqueue, a start time, a lease end, a resume, in this process and in others. True at once where
        something is due that is not applied yet. A paused queue is asleep until its pause ends, one whose `Lanes.total`
        jobs are taken until one of them ends.
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
    """What the command line, the HTTP API, the dashboard, demand and flows call."""

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        """Look at one job without taking it.

        Applies what is due in its queue, as `take` does; the job itself is up to date however much else is due. With
        `waiters_after`, its waiters too, except the first `waiters_after` of them: waiters are only ever added, so a
        caller that has seen that many needs only the rest. With `ahead`, its place in the line, see `Look`. Everything
        in the answer is of one moment.
        """
        ...

    async def change(self, changes: Sequence[Change]) -> int:
        """Apply each change that fits its job, and count those that were applied.

        Each is one atomic step; on storages that can, all of them are one. Not applied: the job is not there (or not in
        the `queue` that the change names), is in a state that the change is not for, or has more waiters than the
        caller has seen. A waiter is never told "attached" to a job that is then removed without having been counted.
        """
        ...

    async def browse(
        self, queue: str, state: State, *, order: Order = "line", after: Cursor | None = None, limit: int = 100
    ) -> list[JobInfo]:
        """A page of the jobs in a state, beginning after the cursor of the last job of the page before.

        In the order "line": ready jobs as `take` would hand them out; held ones by rank, then by id; delayed and taken
        ones by the moment at which they come back to the line (start time, end of the lease), then by id; dead, done
        and cancelled ones by their end, latest first, and of those that ended together the highest id first. In the
        order "id": by id, for walks over all jobs of a state.
        """
        ...

    async def pause(self, queue: str, until: int | None) -> None:
        """Hand out nothing of this queue until the moment `until` (None: until it is resumed). Running jobs go on.

        A moment that has gone resumes it: `pause(queue, 0)`. The newest call counts, whatever the pause was before.
        """
        ...

    async def set_lanes(self, queue: str, rules: Lanes | None) -> None:
        """Give a queue other rules for its lanes, or none, and balance all its lanes by them.

        Where it shared its limits, or does so now, the lanes of those queues too. Jobs that are in the line keep their
        turns, also where `fair` has changed. Several steps where the jobs to be moved are many: a step moves about a
        thousand jobs of a lane. No step lets in more than the limit, and until the last one `take` may give nothing.
        """
        ...

    async def lanes(self, queue: str, *, limit: int = 100) -> LanesInfo:
        """The rules of a queue, and its lanes with most jobs waiting in the line or held.

        This counts the ready, held and taken jobs that have a lane: it is for people. With `limit=0` it reads the rules
        alone, and applies nothing that is due.
        """
        ...

    async def purge(self, queue: str, state: State, *, before: int | None = None, limit: int | None = None) -> int:
        """Delete jobs of the queue in that state and count them: all, or those since before the moment `before`.

        A job that has ended counts from `ended_at`, any other from `created_at`. With `limit`, at most so many: ended
        jobs by `ended_at`, then id; others by id. The cost is then bounded by the limit, however many there are.
        """
        ...


class Store(Storage, Inspector, Protocol):
    """Both on one object, as an async context manager: what `open_storage` gives."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


VERBS: tuple[str, ...] = tuple(
    name for protocol in (Storage, Inspector) for name in vars(protocol) if not name.startswith("_")
)
"""The names of all verbs: what a wrapper forwards."""
