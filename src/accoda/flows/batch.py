"""A batch: jobs of one kind that are counted together, and what runs when all of them have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, Unpack

from accoda.errors import FlowEnded, InvalidInput
from accoda.flows.builder import Flow, StoresFlows
from accoda.flows.chains import JobCall
from accoda.flows.flows import Flows
from accoda.flows.graph import NodeSpec
from accoda.flows.log import Add, Close, Stop, notes
from accoda.flows.model import FlowInfo, When
from accoda.flows.nodes import UNSAID, HasJobs, Node, NodeOptions, Nodes, Placing, Work
from accoda.model import NewJob
from accoda.storage.protocol import Store

MEMBERS = "members"
"""The gate that members belong to."""
OnEnd = JobCall | HasJobs | None
"""What runs at the end of a batch: a handler, or `handler.job(payload)`."""
_WHEN: dict[str, When] = {"on_done": "all_done", "on_ended": "all_ended", "on_any_dead": "any_dead"}


class StoresBatches(StoresFlows, Protocol):
    """What stores a batch: the app."""

    storage: Store

    @property
    def flows(self) -> Flows: ...


class FlowBatch:
    """`async with app.batch("import-7", on_done=report) as batch: await batch.enqueue_many(load, rows)`.

    Members start at once. What is to run at the end waits until the block is left and all members have ended, those
    that members add included. Members that are done may add more: `app.current.flow.add(…)`. If the block raises, the
    batch is cancelled.
    """

    def __init__(self, app: StoresBatches, flow: Flow, ends: Mapping[str, OnEnd]) -> None:
        self._app = app
        self._flow = flow
        self._numbering = asyncio.Lock()
        self._numbered = 0
        """The number of the last member."""
        self._unsure: list[NodeSpec] = []
        """Members after that one that may be stored or not: the call that was to store them failed."""
        self._open = False
        gate = flow.nodes.gate(MEMBERS)
        for word, end in ends.items():
            if end is not None:
                _add_end(flow, word, end, gate, _WHEN[word])

    @property
    def id(self) -> str:
        """What the batch is found by: `app.flows.get(batch.id)`."""
        return self._flow.id

    async def __aenter__(self) -> Self:
        info = await self._flow.start()
        if info.state in ("cancelled", "expired"):  # only one with a key may be: its members would not run
            raise FlowEnded(self.id, info.state, "it takes no more members; give the batch another key")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        await self._tell(notes(self.id, Close() if kind is None else Stop()))

    async def enqueue(self, handler: Work, payload: object = None, **options: Unpack[NodeOptions]) -> None:
        """Add one member."""
        await self.enqueue_many(handler, [payload], **options)

    async def enqueue_many(self, handler: Work, payloads: Iterable[object], **options: Unpack[NodeOptions]) -> None:
        """Add a member for each payload: all of them or none."""
        if not self._open:
            raise InvalidInput(
                "batch", f"{self._flow.name!r} is not open: add members inside `async with app.batch(…)`"
            )
        rows = list(payloads)
        # Members are known by their numbers, and one whose number is taken is passed over. So calls at the same time
        # are numbered one after the other, and a number that may be stored is only given to the same member again.
        async with self._numbering:
            members = self._members(handler, rows, options)
            if self._unsure and members != self._unsure:
                self._numbered += len(self._unsure)
                members = self._members(handler, rows, options)
            self._unsure = members
            if members:
                await self._tell(notes(self.id, Add(tuple(members), MEMBERS)))
            self._unsure = []
            self._numbered += len(members)

    def _members(self, handler: Work, payloads: Sequence[object], options: NodeOptions) -> list[NodeSpec]:
        nodes = Nodes(self._app.new_job, self)
        for number, payload in enumerate(payloads, self._numbered + 1):
            nodes.add(handler, payload, Placing(f"{number}"), options)
        return nodes.specs

    async def info(self) -> FlowInfo:
        """The batch as it is now."""
        return await self._app.flows.get(self.id)

    async def _tell(self, jobs: list[NewJob]) -> None:
        await self._app.storage.enqueue(jobs)


def _add_end(flow: Flow, word: str, end: JobCall | HasJobs, gate: Node, when: When) -> None:
    if not isinstance(end, JobCall):
        takes_payload = getattr(end, "takes_payload", False)
        end = JobCall(end, flow.name if takes_payload else None)
    name = end.name or word
    if name.isdecimal():
        raise InvalidInput("name", f"node {name!r}: numbers are the names of the members; give it another name")
    payload = None if end.payload is UNSAID else end.payload
    flow.nodes.add(end.handler, payload, Placing(name, gate, when), end.options)
