"""One action on the jobs of a plan, and what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from accoda.errors import AccodaError, StorageError
from accoda.model import Rank, State
from accoda.storage.protocol import Store

TOGETHER = 50
"""Questions about single jobs that are on their way at once."""


class Planned(Struct, frozen=True, array_like=True):
    """A job as it was when it was planned. `rank` is the one that it shall have."""

    queue: str
    id: int
    attempts: int
    state: State
    waiters: int
    rank: float


class Did(Struct, frozen=True):
    """How many were changed; were not, because they were no longer as planned; or the store would not have it."""

    changed: int = 0
    skipped: int = 0
    failed: int = 0
    problem: str = ""

    def plus(self, other: Did) -> Did:
        return Did(
            self.changed + other.changed,
            self.skipped + other.skipped,
            self.failed + other.failed,
            other.problem or self.problem,
        )


async def act(store: Store, action: str, planned: Sequence[Planned], again: bool) -> Did:
    """Do it to all of them. `again`: it was begun before, and how far that came is not known."""
    if not planned:
        return Did()
    before = 0
    if again:
        left = await _untouched(store, planned)
        before, planned = len(planned) - len(left), left
    try:
        changed = await _ACTIONS[action](store, planned) if planned else 0
    except StorageError:
        raise
    except AccodaError as error:
        return Did(changed=before, failed=len(planned), problem=str(error)[:500])
    if again and action == "priority":  # the ranks may be right since the first time
        changed = len(planned)
    return Did(changed=before + changed, skipped=len(planned) - changed)


async def _untouched(store: Store, planned: Sequence[Planned]) -> list[Planned]:
    """Those that are still as they were planned. The others are taken for dealt with by the try before: they are gone,
    are in another state, or came back since. So nothing is revived twice that has died again in between."""
    left: list[Planned] = []
    for first in range(0, len(planned), TOGETHER):
        some = planned[first : first + TOGETHER]
        found = await asyncio.gather(*(store.find(plan.id) for plan in some))
        for plan, job in zip(some, found, strict=True):
            if job is not None and (job.attempts, job.state) == (plan.attempts, plan.state):
                left.append(plan)
    return left


async def _retry(store: Store, planned: Sequence[Planned]) -> int:
    dead = [plan.id for plan in planned if plan.state == "dead"]
    delayed = [plan.id for plan in planned if plan.state == "delayed"]
    changed = await store.revive(dead) if dead else 0
    return changed + (await store.start_now(delayed) if delayed else 0)


async def _cancel(store: Store, planned: Sequence[Planned]) -> int:
    """One by one, because a drop spares what has ended meanwhile, and what more are waiting for than were seen."""
    changed = 0
    for first in range(0, len(planned), TOGETHER):
        some = planned[first : first + TOGETHER]
        changed += sum(await asyncio.gather(*(store.drop(plan.queue, plan.id, plan.waiters) for plan in some)))
    return changed


async def _delete(store: Store, planned: Sequence[Planned]) -> int:
    return await store.remove([plan.id for plan in planned])


async def _rerank(store: Store, planned: Sequence[Planned]) -> int:
    return await store.rerank([Rank(plan.queue, plan.id, plan.rank) for plan in planned])


_ACTIONS: dict[str, Callable[[Store, Sequence[Planned]], Awaitable[int]]] = {
    "retry": _retry,
    "cancel": _cancel,
    "delete": _delete,
    "priority": _rerank,
}
