"""What is in the store at the end."""

from __future__ import annotations

from msgspec import Struct

from accoda.flows.model import LOG
from accoda.model import Cursor, QueueStats, State
from accoda.storage.protocol import Store
from proof.checker.facts import seen
from proof.checker.flow_logs import FinalFlow, final_flow
from proof.checker.records import Seen

_PAGE = 1_000

# Time moves a job from delayed or taken to ready or held, between these two, and from done or cancelled to gone. Looked
# at in this order, a job that moves once meanwhile is found twice, never missed; the later sight counts.
_ORDER: tuple[State, ...] = ("delayed", "taken", "ready", "held", "ready", "dead", "done", "cancelled")


class FinalState(Struct):
    """All jobs by id, the statistics by queue, and the flows by id. The store should not be used while it is read."""

    jobs: dict[int, Seen]
    queues: dict[str, QueueStats]
    flows: dict[str, FinalFlow] = {}


async def final_state(store: Store) -> FinalState:
    """Everything that is left, by `browse` and `stats`."""
    jobs: dict[int, Seen] = {}
    for state in _ORDER:
        for queue in (await store.stats()).queues:
            await _gather(store, queue, state, jobs)
    ids = [each.key for each in jobs.values() if each.queue == LOG and each.key is not None]
    flows = {flow.id: flow for id in ids if (flow := await final_flow(store, id)) is not None}
    return FinalState(jobs, dict((await store.stats()).queues), flows)


async def _gather(store: Store, queue: str, state: State, jobs: dict[int, Seen]) -> None:
    after: Cursor | None = None
    while True:
        page = await store.browse(queue, state, order="id", after=after, limit=_PAGE)
        jobs.update((info.id, seen(info)) for info in page)
        # A page may be shorter than asked for where damaged records were left out: only an empty one is the end.
        if not page:
            return
        after = page[-1].cursor("id")
