"""The lanes with most jobs that wait, as samples: by choice (`/metrics?lanes=10`), because each scrape counts jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from accoda.lanes.rules import queues_with_rules
from accoda.runtime.metrics.families import LANE_JOBS
from accoda.runtime.metrics.text import Sample, text_of
from accoda.storage.protocol import Store

MOST_LANES = 100
"""Lanes of a queue on a page."""
PATIENCE = 5.0
"""Seconds in which the event loop of a worker must have read them: a handler may block it."""


async def lane_samples(store: Store, shows: Callable[[str], bool], most: int) -> list[Sample]:
    """The jobs of the `most` lanes with most jobs ready or held, for each queue that has rules and is shown."""
    queues = [queue for queue in await queues_with_rules(store) if shows(queue)]
    return [
        (LANE_JOBS.name, (queue, each.lane, state), getattr(each, state))
        for queue in queues
        for each in (await store.lanes(queue, limit=most)).lanes
        for state in ("ready", "held", "taken")
    ]


def lanes_from(
    loop: asyncio.AbstractEventLoop, store: Callable[[], Store], queues: Container[str]
) -> Callable[[int], bytes]:
    """What reads them for the server of a worker, from the threads of that server. Raises `TimeoutError`."""

    async def read(most: int) -> bytes:
        return text_of(await lane_samples(store(), queues.__contains__, most))

    def collect(most: int) -> bytes:
        reading = asyncio.run_coroutine_threadsafe(read(most), loop)
        try:
            return reading.result(PATIENCE)
        finally:
            reading.cancel()

    return collect
