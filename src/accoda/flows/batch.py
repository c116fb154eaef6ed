"""A batch: jobs of one kind that are counted together, and what runs when all of them have ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Protocol, Self, Unpack

from accoda.errors import FlowEnded, InvalidInput
from accoda.flows.builder import UNSAID, Flow, HasJobs, JobCall, Node, NodeOptions, Nodes, StoresFlows, Work
from accoda.flows.flows import Flows
from accoda.flows.log import Add, Close, Stop, notes
from accoda.flows.model import FlowInfo, When
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
        self._numbered = 0
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
        nodes = Nodes(self._app.new_job, self)
        count = self._numbered
        for payload in payloads:
            count += 1
            nodes.add(handler, payload, f"{count}", (), "all_done", options)
        if nodes.specs:
            await self._tell(notes(self.id, Add(tuple(nodes.specs), MEMBERS)))
            self._numbered = count

    async def info(self) -> FlowInfo:
        """The batch as it is now."""
        return await self._app.flows.get(self.id)

    async def _tell(self, jobs: list[NewJob]) -> None:
        await self._app.storage.enqueue(jobs)


def _add_end(flow: Flow, word: str, end: JobCall | HasJobs, gate: Node, when: When) -> None:
    if isinstance(end, JobCall):
        payload = None if end.payload is UNSAID else end.payload
        flow.nodes.add(end.handler, payload, end.name or word, [gate], when, end.options)
        return
    takes_payload = getattr(end, "takes_payload", False)
    flow.nodes.add(end, flow.name if takes_payload else None, word, [gate], when, {})
