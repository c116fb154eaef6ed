"""What operations need of an app: the few attributes and calls that they use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from accoda.budget import Books, Budget
from accoda.connections import Connections
from accoda.demand.demand import Demand
from accoda.enqueue import EnqueueOptions, QueueSpec
from accoda.model import NewJob
from accoda.runtime.handler import QueueHandlers
from accoda.storage.protocol import Store


class Host(Protocol):
    """Handlers, demands and budgets of this process, and the store that their jobs are in."""

    @property
    def connections(self) -> Connections: ...
    @property
    def storage(self) -> Store: ...
    @property
    def handlers(self) -> Mapping[str, QueueHandlers]: ...
    @property
    def demands(self) -> Mapping[str, Demand]: ...
    @property
    def budgets(self) -> Mapping[str, Budget]: ...
    @property
    def books(self) -> Books: ...

    def queue_spec(self, queue: str, type: str | None = None) -> QueueSpec: ...

    def now(self) -> int: ...

    def new_job(self, queue: str, payload: object, options: EnqueueOptions) -> NewJob: ...
