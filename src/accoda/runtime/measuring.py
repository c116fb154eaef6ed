"""What the recorder is told of workers and budgets, from the documents in which they describe themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from accoda.history import Recorder
from accoda.history.plan import WorkerSums
from accoda.runtime.heartbeat import read_heartbeats
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App


def recorder(app: App) -> Recorder:
    """The recorder of an app."""

    async def budgets() -> Mapping[str, tuple[float, float, float, float]]:
        views = await app.budget_views()
        return {
            name: (view.left, view.reserved, view.used_today, float(view.refused_today)) for name, view in views.items()
        }

    return Recorder(worker_sums, budgets)


async def worker_sums(store: Store) -> Mapping[str, WorkerSums]:
    """What each worker that lives has done so far."""
    return {
        beat.id: WorkerSums(
            beat.started_at, {queue: (sums.jobs, sums.ran, sums.waited) for queue, sums in beat.sums.items()}
        )
        for beat in await read_heartbeats(store)
    }
