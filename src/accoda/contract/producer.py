"""The base class of generated producers: it declares its queue's spec to the app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from accoda.app import App
from accoda.contract.wire import RecordCodec
from accoda.enqueue import EnqueueOptions, QueueSpec
from accoda.model import Enqueued
from accoda.priority import policy as policy_of

R = TypeVar("R")


class Producer(Generic[R]):
    """Enqueues records of one kind. The generated class adds a typed `enqueue`."""

    def __init__(
        self,
        app: App,
        queue: str,
        codec: RecordCodec[Any],
        *,
        type: str | None = None,
        policy: str = "strict",
        cost: int = 0,
        keep_for: float = 0.0,
    ) -> None:
        self.app = app
        self.queue = queue
        self.type = type
        app.declare(QueueSpec(queue, policy_of(policy), codec.encode, keep_for, cost, type=type))

    async def enqueue_record(self, record: R, options: EnqueueOptions | None = None) -> Enqueued:
        """Enqueue one record; its `job_id`, `attempts` and `prev_start_time` are not stored."""
        return await self.app.enqueue(self.queue, record, **self._typed(options))

    async def enqueue_many(self, records: Sequence[R], options: EnqueueOptions | None = None) -> list[Enqueued]:
        """Enqueue many records in one round trip: all of them or none."""
        return await self.app.enqueue_many(self.queue, records, **self._typed(options))

    def _typed(self, options: EnqueueOptions | None) -> EnqueueOptions:
        said = options or EnqueueOptions()
        return said if self.type is None else {**said, "type": self.type}
