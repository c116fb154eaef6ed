"""Moves flows on: takes the inbox of a flow, works out what follows, and stores that with the new state in one step.

    take (lease) ──► read inbox and log ──► decide ──► Done(lease, then=[next nodes, the log's next round])

Every join fires exactly once, and here is why. A job has one accepted outcome, and the store reports it in the same
step. Only the holder of the inbox's lease can write a round, and the round, the jobs of the nodes that it starts and
the end of the inbox are one step: before it nothing has happened, and the lease ends by itself; after it the log says
which nodes were started, so no later holder starts them again. The log that the holder read is the latest one, because
nobody else could write a round since it took the inbox; if its lease was lost meanwhile, its step is refused.

No report is forgotten: `Done` says how many waiters of the inbox were read, and is refused if there are more. Then the
same step is made as a `Retry`, which keeps the inbox with its waiters; the round says how many of them it has read.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from accoda.envelope import FlowPlace, unwrap, wrap
from accoda.errors import StorageClosed, StorageError
from accoda.flows.graph import NodeRecord
from accoda.flows.log import FAR, FlowLog, Round, Stop, Summary, key_of, notes, round_jobs, summary_of
from accoda.flows.members import IN_ENVELOPE, joined, small_results
from accoda.flows.model import LOG, FlowState
from accoda.flows.reading import FlowReader, documents_prefix, live_jobs
from accoda.limits import allowed
from accoda.model import REPORTS, Bury, ById, Cancel, Done, Job, NewJob, Outcome, Retry
from accoda.queue_access import FOLLOW_UPS
from accoda.retry import describe
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

LEASE = 10.0
"""Seconds: short, so that flows soon move on when a coordinator dies. A round that takes longer extends it."""
AT_ONCE = 50
"""Flows that are taken at once."""
WAIT = 60.0
"""Seconds after which it looks again, even if nothing woke it."""
CROWD = 50
"""With more than so many jobs of a flow stored, reports that start nothing are gathered for a moment."""
GATHERING, LONGEST_GATHERING = 0.00002, 0.02
"""Seconds for each of these jobs, and at most: the fewer are left, the sooner the join may fire."""
STOPPING_PAUSE = 0.5
"""Seconds until the jobs of a stopped flow that still run are looked for again."""
LONGEST_PAUSE = 60.0

log = logging.getLogger("accoda.flows")

OnEnd = Callable[[str, FlowState, float], None]
"""Called when a flow has ended: its name, how, and how many seconds after its start."""


class Inbox(Struct, frozen=True):
    """What was read of a flow's inbox at a moment: its waiters, but for the first `after`, which the log has."""

    after: int
    waiters: Sequence[bytes]
    at: int


class Step(Struct):
    """What a round does: all of it is stored in one step."""

    log: FlowLog
    inbox: Job
    read: int
    """How many waiters of the inbox were read."""
    then: list[NewJob]
    again_in: float | None = None
    """There is more to do by itself, after so many seconds."""
    ended: FlowState | None = None

    def outcome(self, *, keep: bool = False) -> Outcome:
        """The step; `keep`: as one that cannot be refused because the inbox has grown."""
        if keep or self.again_in is not None:
            return Retry(self.inbox.lease, delay=self.again_in or 0.0, counts=False, then=self.then)
        return Done(self.inbox.lease, self.then, waiters=self.read)


class Coordinator:
    """A system job: any number of coordinators, in any number of processes, share the work."""

    queue = REPORTS

    def __init__(self, on_end: OnEnd | None = None, *, worker: str = "flows", lease: float = LEASE) -> None:
        self._on_end = on_end
        self._worker = worker
        self._lease = lease
        self._reader = FlowReader()

    async def run_once(self, store: Store) -> int:
        """Move on the flows that something happened to; how many."""
        inboxes = await store.take(self.queue, AT_ONCE, lease=self._lease, worker=self._worker)
        if not inboxes:
            return 0
        prepared = await self._hold(store, inboxes, [self._prepare(store, inbox) for inbox in inboxes])
        steps = [one for one in prepared if isinstance(one, Step)]
        rest: list[Outcome] = [one for one in prepared if not isinstance(one, Step)]
        if rest:
            await store.settle(rest)
        for some in _portions(steps):
            await self._settle(store, some)
        return len(inboxes)

    async def run(self, store: Store) -> None:
        """Move flows on as it comes, until cancelled."""
        await run_rounds(self.run_once, store, self.queue, "no flow moves on")

    async def _hold(
        self, store: Store, inboxes: Sequence[Job], work: Sequence[Awaitable[Step | Outcome]]
    ) -> list[Step | Outcome]:
        """Wait for the work, and keep the leases of the inboxes while it lasts."""
        whole = asyncio.gather(*work)
        try:
            while not (await asyncio.wait([whole], timeout=self._lease / 3))[0]:
                await store.extend([inbox.lease for inbox in inboxes], self._lease)
        finally:
            whole.cancel()  # of no effect where it is done
        return await whole

    async def _prepare(self, store: Store, inbox: Job) -> Step | Outcome:
        """The step of a flow, or what becomes of an inbox that no step follows from."""
        try:
            id = inbox.key or ""
            after = self._reader.known_of(id, inbox.id)
            seen, flow = await asyncio.gather(
                store.look(ById(inbox.id), waiters_after=after), self._reader.read(store, id)
            )
            if flow is not None and after > flow.read_of(inbox.id):
                # The store was put back from a backup since, and the log that was remembered is another one.
                after, seen = 0, await store.look(ById(inbox.id), waiters_after=0)
            if flow is None:  # its time was over, and nobody waits for it
                return Done(inbox.lease, waiters=after + len(seen.waiters))
            return await self._step(store, flow, inbox, Inbox(after, seen.waiters, seen.at))
        except StorageError:
            raise
        except Exception as error:  # a mistake of ours, or an inbox that others wrote: other flows must go on
            log.exception("flow %s: it cannot be moved on, and is tried again", inbox.key)
            pause = min(LONGEST_PAUSE, 0.5 * 2 ** min(inbox.tries, 10))
            return Retry(inbox.lease, delay=pause, reason=f"it cannot be moved on: {describe(error)}")

    async def _step(self, store: Store, flow: FlowLog, inbox: Job, seen: Inbox) -> Step:
        graph, now, read = flow.graph, seen.at, seen.after + len(seen.waiters)
        events = flow.new_events(inbox.id, seen.after, seen.waiters)
        for event in events:
            flow.take(event, now)
        stopping = graph.stopping()
        taken_back = await _take_back(store, flow, stopping) if stopping else 0
        starting = list(islice(graph.startable, FOLLOW_UPS))
        if not events and not starting and not stopping:
            return Step(flow, inbox, read, [])
        jobs = [node_job(flow, graph.nodes[number]) for number in starting]
        graph.start(starting, now)
        step = Step(flow, inbox, read, jobs)
        if graph.startable:
            step.again_in = 0.0
        elif stopping:
            step.again_in = 0.0 if taken_back else STOPPING_PAUSE  # their reports are there already
        elif not starting and graph.counts["started"] > CROWD:
            step.again_in = min(LONGEST_GATHERING, GATHERING * graph.counts["started"])
        round = Round(now, os.urandom(8), inbox.id, read, tuple(events), tuple(starting))
        before, flow.summary = flow.summary, _summary(flow, now)
        if flow.summary.state != "running" and before.state == "running":
            step.ended = flow.summary.state
        flow.inbox = (inbox.id, read)
        renewed = round_jobs(flow.id, round, flow.summary, _wake_at(flow))
        flow.length += len(renewed)
        flow.last = renewed[-1].waiter or b""
        step.then += renewed
        return step

    async def _settle(self, store: Store, steps: Sequence[Step]) -> None:
        refused = {each.lease: each.why for each in await store.settle([step.outcome() for step in steps])}
        grown = [step for step in steps if refused.get(step.inbox.lease) == "grown"]
        if grown:
            lost = {each.lease for each in await store.settle([step.outcome(keep=True) for step in grown])}
            refused = {lease: why for lease, why in refused.items() if why != "grown" or lease in lost}
        for step in steps:
            if step.inbox.lease in refused:
                continue  # another has it by now, and reads the log itself
            self._reader.keep(step.log)
            if step.ended is not None:
                self._tell_end(step)

    def _tell_end(self, step: Step) -> None:
        summary, flow = step.log.summary, step.log
        seconds = max(0, (summary.ended_at or 0) - flow.created_at) / 1000
        level = logging.INFO if summary.state == "done" else logging.WARNING
        log.log(level, "flow %s (%s) ended after %.3g s: %s", summary.name, flow.id, seconds, summary.state)
        if self._on_end is not None:
            self._on_end(summary.name, summary.state, seconds)


class FlowTimers:
    """A system job: deadlines of flows, and the end of those that were kept long enough."""

    queue = LOG

    async def run_once(self, store: Store) -> int:
        """See to the records whose moment has come; how many."""
        records = await store.take(self.queue, AT_ONCE, lease=LEASE, worker="flows")
        for record in records:
            await store.settle([await self._end(store, record)])
        return len(records)

    async def run(self, store: Store) -> None:
        """See to them as it comes, until cancelled."""
        await run_rounds(self.run_once, store, self.queue, "no flow expires")

    async def _end(self, store: Store, record: Job) -> Outcome:
        id = record.key or ""
        info = (await store.look(ById(record.id))).job
        try:
            summary = None if info is None else summary_of(info)
        except ValueError:
            return Bury(record.lease, "this is no record of a flow; remove it")
        if summary is None:
            return Done(record.lease)
        if summary.state == "running":
            # The note first: if this process dies before the record is put back, it is told twice, which changes
            # nothing. The record's own outcome may be refused, because the coordinator has renewed it.
            await store.enqueue(notes(id, Stop(expired=True)))
            return Retry(record.lease, at=FAR, counts=False)
        for document in await store.documents(documents_prefix(id)):
            await store.write(document.name, b"", ttl=0)
        return Done(record.lease)


async def run_rounds(round: Callable[[Store], Awaitable[int]], store: Store, queue: str, trouble: str) -> None:
    """Round after round as jobs come, until cancelled."""
    backoff = Backoff(0.1, 5.0)
    while True:
        try:
            if not await round(store):
                await store.wait([queue], WAIT)
            backoff.reset()
        except StorageClosed:
            raise
        except StorageError as error:
            log.warning("the store is away and %s; trying again: %s", trouble, error)
            await backoff.nap()


def node_job(flow: FlowLog, node: NodeRecord) -> NewJob:
    """The job of a node that may start."""
    spec = node.spec
    metadata, payload = unwrap(spec.data)
    takes: Literal["", "one", "list"] = ""
    if spec.takes_results:
        takes = "one" if len(flow.graph.parents(node)) == 1 else "list"
    place = FlowPlace(id=flow.id, node=spec.name, takes_results=takes)
    room = (allowed.payload - len(spec.data) - 1000) // (2 if takes else 1)  # where they are the payload as well
    results = small_results(flow.graph, node, min(IN_ENVELOPE, room))
    if results is None:
        data = wrap(payload, replace(metadata, flow=replace(place, read=True)))
    else:
        data = joined(metadata, payload, place, results)
    return NewJob(
        spec.queue,
        data,
        rank=spec.rank,
        delay=spec.delay,
        start_at=spec.start_at,
        cost=spec.cost,
        key=key_of(flow.id, spec.name),
        keep_for=spec.keep_for,
        reports_to=flow.id,
        lane=spec.lane,
    )


def _summary(flow: FlowLog, now: int) -> Summary:
    graph, summary = flow.graph, flow.summary
    state = graph.state()
    if state == "running" and summary.state != "running":  # revived: its deadline was for the first time
        summary = replace(summary, deadline=None, expires_in=None)
    ended_at = None if state == "running" else summary.ended_at if summary.state == state else now
    return replace(
        summary, state=state, ended_at=ended_at, counts=graph.summary(), progress=graph.progress(), open=graph.open
    )


def _wake_at(flow: FlowLog) -> int:
    """When the record's moment comes: the deadline of a flow that runs, the end of keeping one that has ended.

    A failed flow is kept as long as one of its dead jobs, which may be revived.
    """
    summary = flow.summary
    if summary.state == "running":
        deadline = summary.deadline_at(flow.created_at)
        return FAR if deadline is None or flow.graph.stopped is not None else deadline
    if flow.graph.counts["dead"]:
        return FAR
    return (summary.ended_at or 0) + round(summary.keep_for * 1000)


async def _take_back(store: Store, flow: FlowLog, nodes: Sequence[NodeRecord]) -> int:
    """Cancel the jobs of a stopped flow; how many. They report that themselves; to do it twice changes nothing."""
    jobs = await live_jobs(store, flow.id, nodes)
    return await store.change([Cancel(job.id, queue=job.queue) for job in jobs.values()]) if jobs else 0


def _portions(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps in parts of about a thousand jobs each, so that no settle takes too long."""
    parts: list[list[Step]] = []
    many = 0
    for step in steps:
        if not parts or many + len(step.then) > FOLLOW_UPS:
            parts.append([])
            many = 0
        parts[-1].append(step)
        many += len(step.then)
    return parts
