"""Starts flows on a store, without an app that is connected to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accoda import App
from accoda.enqueue import EnqueueOptions
from accoda.flows.batch import FlowBatch
from accoda.flows.builder import Flow
from accoda.flows.chains import JobCall
from accoda.flows.flows import Flows
from accoda.flows.model import FlowInfo
from accoda.model import NewJob
from accoda.storage.protocol import Store


class FlowStarter:
    """What `app.flow` and `app.batch` are for a bare store: every call goes through it, for example to be recorded."""

    def __init__(self, store: Store) -> None:
        self.storage = store
        self.flows = Flows(lambda: self.storage)
        self._app = App("memory://")  # only makes jobs

    def flow(self, name: str, **options: Any) -> Flow:
        return Flow(self, name, **options)

    def batch(self, name: str, ends: Mapping[str, JobCall], *, key: str | None = None) -> FlowBatch:
        return FlowBatch(self, self.flow(name, key=key), ends)

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob:
        return self._app.new_job(queue, payload, options)

    async def start_flow(self, id: str, jobs: Sequence[NewJob], connection: object = None) -> FlowInfo:
        await self.storage.enqueue(jobs)
        return await self.flows.get(id)
