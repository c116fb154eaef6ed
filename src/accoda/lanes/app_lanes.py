"""`app.lanes`: how the lanes of a queue are doing, and how to change their rules while workers run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict, Unpack

from accoda.flows.sync import Run
from accoda.lanes import rules
from accoda.model import Lanes, LanesInfo
from accoda.storage.protocol import Store


class LaneChanges(TypedDict, total=False):
    """What may be changed of the rules of a queue: see `Lanes`. `limits` and `weights` change the lanes that they name,
    and no others."""

    limit: int | None
    limits: Mapping[str, int | None]
    fair: bool
    weights: Mapping[str, float]
    by_cost: bool
    total: int | None
    shared: str | None


class AppLanes:
    """The lanes of the queues in an app's store."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def get(self, queue: str, *, limit: int = 100) -> LanesInfo:
        """The rules of a queue, and the `limit` lanes with most jobs waiting. This counts the jobs that have a lane;
        `limit=0` reads the rules alone, and `count` is 0."""
        return await self._store().lanes(queue, limit=limit)

    async def change(self, queue: str, **changes: Unpack[LaneChanges]) -> Lanes | None:
        """Change rules of a queue at once, and give those in force: `change("reports", limits={"customer-7": 0})`.

        `shared="github"` shares the limits with all queues that say the same; None ends that. A change holds until
        `reset`, also when a deployment declares other rules. All of the changes or none: one that cannot be used is an
        `InvalidInput`.
        """
        return await rules.change(self._store(), queue, changes)

    async def reset(self, queue: str, lane: str | None = None) -> Lanes | None:
        """Forget what was changed, of the queue or of one lane, so that the rules are those of the code; give them."""
        return await rules.reset(self._store(), queue, lane)


class SyncLanes:
    """`app.lanes`, without `await`."""

    def __init__(self, lanes: AppLanes, run: Run) -> None:
        self._lanes = lanes
        self._run = run

    def get(self, queue: str, *, limit: int = 100) -> LanesInfo:
        """The rules of a queue, and the `limit` lanes with most jobs waiting."""
        return self._run(self._lanes.get(queue, limit=limit))

    def change(self, queue: str, **changes: Unpack[LaneChanges]) -> Lanes | None:
        """Change rules of a queue at once, and give those in force."""
        return self._run(self._lanes.change(queue, **changes))

    def reset(self, queue: str, lane: str | None = None) -> Lanes | None:
        """Forget what was changed, of the queue or of one lane."""
        return self._run(self._lanes.reset(queue, lane))
