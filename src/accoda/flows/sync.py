"""Flows without `await`: what `app.sync.flows` and `app.sync.batch` give."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar, Unpack

from accoda.flows.batch import FlowBatch
from accoda.flows.flows import Flows
from accoda.flows.model import FlowInfo, FlowState, FlowSummary
from accoda.flows.nodes import NodeOptions, Work

R = TypeVar("R")


class Run(Protocol):
    """Runs a coroutine on the thread of `app.sync`, and waits for it."""

    def __call__(self, call: Coroutine[Any, Any, R], /) -> R: ...


class SyncFlows:
    """`app.flows`, without `await`."""

    def __init__(self, flows: Flows, run: Run) -> None:
        self._flows = flows
        self._run = run

    def get(self, id: str) -> FlowInfo:
        """A flow with all its nodes. Raises `NotFound`."""
        return self._run(self._flows.get(id))

    def list(
        self, *, state: FlowState | None = None, name: str | None = None, limit: int = 100
    ) -> Sequence[FlowSummary]:
        """Flows, in the order of `app.flows.list`."""
        return self._run(self._flows.list(state=state, name=name, limit=limit))

    def result(self, id: str, *, timeout: float | None = None) -> Any:
        """Wait until a flow is done, and give what its last node returned."""
        return self._run(self._flows.result(id, timeout=timeout))

    def cancel(self, id: str) -> bool:
        """Stop a flow. False: it has ended already."""
        return self._run(self._flows.cancel(id))

    def close(self, id: str) -> bool:
        """Close a batch whose producer died before it could."""
        return self._run(self._flows.close(id))

    def retry(self, id: str) -> int:
        """Revive the dead jobs of a flow; how many."""
        return self._run(self._flows.retry(id))

    def why(self, id: str, node: str) -> str:
        """What a node waits for, in a sentence."""
        return self._run(self._flows.why(id, node))


class SyncBatch:
    """A batch that is open, without `await`."""

    def __init__(self, batch: FlowBatch, run: Run) -> None:
        self._batch = batch
        self._run = run

    @property
    def id(self) -> str:
        """What the batch is found by."""
        return self._batch.id

    def enqueue(self, handler: Work, payload: object = None, **options: Unpack[NodeOptions]) -> None:
        """Add one member."""
        self._run(self._batch.enqueue(handler, payload, **options))

    def enqueue_many(self, handler: Work, payloads: Iterable[object], **options: Unpack[NodeOptions]) -> None:
        """Add a member for each payload: all of them or none."""
        self._run(self._batch.enqueue_many(handler, payloads, **options))

    def info(self) -> FlowInfo:
        """The batch as it is now."""
        return self._run(self._batch.info())
