"""What may be said of a worker when it is made, and which queues it then serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from accoda.budget import Budget, BudgetView
from accoda.budget.wallet import Tally
from accoda.demand.metrics import DemandView
from accoda.errors import InvalidInput
from accoda.flows.coordinator import OnEnd as OnFlowEnd
from accoda.flows.model import FlowState
from accoda.model import Stats, check_queue
from accoda.runtime.events import Monitor
from accoda.runtime.handler import QueueHandlers
from accoda.settings import Settings


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """What may be said of a worker; what may change while it runs is in its settings instead.

    `queues` are served in that order (none: all that have a handler). With `burst` it ends when nothing is left to
    start, in flows and an outbox neither. Without `system_jobs`, these, ticks of schedules and calls of webhooks are
    left to other processes. `on_stats` gets the store's counters at each heartbeat, `on_budgets` the state of the
    budgets and what this worker counts of them, `on_demand`, at each upkeep of a demand, its numbers, and `on_flows`,
    four times a minute, how many flows are in each state. `on_flow_end` is told of each flow whose end this worker sees
    to.
    """

    queues: tuple[str, ...] = ()
    name: str = "default"
    burst: bool = False
    managed: bool = True
    system_jobs: bool = True
    settings: Settings | None = None
    monitors: tuple[Monitor, ...] = ()
    on_stats: Callable[[Stats], None] | None = None
    on_budgets: Callable[[Mapping[str, BudgetView], Mapping[str, Tally]], None] | None = None
    on_demand: Callable[[DemandView], None] | None = None
    on_flows: Callable[[Mapping[FlowState, int]], None] | None = None
    on_flow_end: OnFlowEnd | None = None


def served(handlers: Mapping[str, QueueHandlers], budgets: Mapping[str, Budget], asked: tuple[str, ...]) -> list[str]:
    """The queues that are asked for, or all that have a handler."""
    if not handlers:
        raise InvalidInput("queues", "the app has no handlers; decorate a function with @app.handler(…)")
    for queue in asked:
        check_queue(queue)
        if queue not in handlers:
            raise InvalidInput("queues", f"there is no handler for {queue!r}; there is one for {', '.join(handlers)}")
    queues = list(dict.fromkeys(asked)) or list(handlers)
    for queue in queues:
        for budget in handlers[queue].options.budgets:
            if budget not in budgets:
                known = ", ".join(budgets) or "none"
                raise InvalidInput("budget", f"{budget!r} of {queue} is not declared: app.budget(…); there is {known}")
    return queues
