"""What the runtime needs of the app above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from accoda.budget.registry import BudgetRegistry
from accoda.connections import Connections
from accoda.demand.demand import Demand
from accoda.flows.coordinator import OnEnd as OnFlowEnd
from accoda.runtime.handler import QueueHandlers
from accoda.runtime.middleware import Middleware
from accoda.runtime.system_jobs import SystemJob
from accoda.storage.protocol import Store


class Host(Protocol):
    """An app, as its workers see it."""

    connections: Connections
    middleware: tuple[Middleware, ...]
    storage: Store

    @property
    def handlers(self) -> Mapping[str, QueueHandlers]: ...

    @property
    def demands(self) -> Mapping[str, Demand]: ...

    @property
    def budget_registry(self) -> BudgetRegistry: ...

    def system_jobs(self, on_flow_end: OnFlowEnd | None = None) -> Sequence[SystemJob]:
        """What every worker does beside its handlers' jobs. `on_flow_end` is told of each flow that has ended."""
        ...
