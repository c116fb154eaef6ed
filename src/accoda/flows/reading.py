"""Reads flows from a store. A reader remembers logs, so that a round costs what is new, not the whole log."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from accoda.flows.graph import NodeRecord
from accoda.flows.log import FlowLog, key_of, summary_of
from accoda.flows.model import LOG
from accoda.model import ByKey, JobInfo, Report
from accoda.storage.protocol import Store

REMEMBERED = 200
"""Flows of which a reader remembers the log."""
REMEMBERED_NODES = 200_000
"""Their nodes, all together."""
AT_ONCE = 100
"""Looks that are under way at the same time."""


class FlowReader:
    """The flows of one store, for one event loop."""

    def __init__(self) -> None:
        self._logs: OrderedDict[str, FlowLog] = OrderedDict()
        self._sizes: dict[str, int] = {}
        """How many nodes each had when it was kept."""
        self._nodes = 0

    async def read(self, store: Store, id: str) -> FlowLog | None:
        """A flow as it is now; None: there is none. The caller may change it, and then keeps or forgets it."""
        known = self._logs.get(id)
        # From the last waiter that is known, which must still be the same: a store that was put back from a backup may
        # have another log by now.
        after = max(0, known.length - 1) if known is not None else 0
        seen = await store.look(ByKey(LOG, id), waiters_after=after)
        self.forget(id)
        if seen.job is None:
            return None
        if known is not None:
            if known.record == seen.job.id and seen.waiters[:1] == (known.last,):
                known.summary = summary_of(seen.job)
                known.read(seen.waiters[1:])
                return known
            return await self.read(store, id)
        try:
            found = FlowLog(id, seen.job)
        except ValueError:  # not one of ours
            return None
        found.read(seen.waiters)
        return found if found.begun else None

    def known_of(self, id: str, inbox: int) -> int:
        """How many waiters of an inbox the flow's log has, as far as that is remembered."""
        known = self._logs.get(id)
        return 0 if known is None else known.read_of(inbox)

    def keep(self, log: FlowLog) -> None:
        """Remember a flow as the caller has it: it is what the store has."""
        self.forget(log.id)
        self._logs[log.id] = log
        self._sizes[log.id] = len(log.graph.nodes)
        self._nodes += len(log.graph.nodes)
        while len(self._logs) > REMEMBERED or (self._nodes > REMEMBERED_NODES and len(self._logs) > 1):
            self.forget(next(iter(self._logs)))

    def forget(self, id: str) -> None:
        if self._logs.pop(id, None) is not None:
            self._nodes -= self._sizes.pop(id)


async def live_jobs(store: Store, id: str, nodes: Iterable[NodeRecord]) -> dict[str, JobInfo]:
    """The jobs of nodes that were started, by the nodes' names. A job that has just ended is not among them."""
    waiting = list(nodes)
    found: dict[str, JobInfo] = {}
    for begin in range(0, len(waiting), AT_ONCE):
        some = waiting[begin : begin + AT_ONCE]
        looks = await asyncio.gather(*(store.look(ByKey(node.spec.queue, key_of(id, node.spec.name))) for node in some))
        found |= {node.spec.name: look.job for node, look in zip(some, looks, strict=True) if look.job is not None}
    return found


def document_name(id: str, job: int, attempts: int) -> str:
    """The document with a result that is too large for the job's report."""
    return f"{documents_prefix(id)}{job}-{attempts}"


def documents_prefix(id: str) -> str:
    """What the names of a flow's documents begin with."""
    return f"flow-results/{id}/"


async def body_of(store: Store, id: str, report: Report) -> bytes | None:
    """The result that a report tells of; None: there is none."""
    if report.size < 0:
        return None
    if len(report.body) == report.size:
        return report.body
    document = await store.read(document_name(id, report.id, report.attempts))
    return None if document is None else document.value
