"""What must hold when a store comes back older: from a backup, or empty. Ids and attempts come again, leases do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from accoda import App, Done, Job, NewJob, Retry, StorageError, Worker, WorkerOptions, open_storage
from accoda.settings import Settings
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import lost

Restore = Callable[[], Awaitable[None]]
"""Takes the store back to what it was at the beginning of the test: no jobs, and ids that begin again."""
COUNT = 60


async def old_leases_are_refused(url: str, restore: Restore) -> None:
    """Jobs that are taken after the return have the ids of those that were taken before; only the new leases count."""
    async with await open_storage(url) as store:
        before = await fill_and_take(store)
        await restore()
        after = await fill_and_take(store)
        assert {(job.id, job.attempts) for job in before} == {(job.id, job.attempts) for job in after}
        old, new = [job.lease for job in before], [job.lease for job in after]
        assert await store.extend(old, 60) == lost(*old)
        assert await store.settle([Done(lease, then=[NewJob("next")]) for lease in old]) == lost(*old)
        assert await store.settle([Retry(lease) for lease in old]) == lost(*old)
        assert await store.extend(new, 60) == []
        assert await store.settle([Done(lease) for lease in new]) == []
        stats = (await store.stats()).queues
        assert (stats["q"].done, stats["q"].total, "next" in stats) == (COUNT, 0, False)


async def a_busy_worker_runs_all_that_came_after(url: str, restore: Restore) -> None:
    """The worker holds jobs from before the return when it comes; each job that is acknowledged after it is run."""
    app, ran, go_on = App(url), set[str](), asyncio.Event()
    held = 0

    @app.handler("q", batch=20, timeout=600)
    async def note(name: str) -> None:
        nonlocal held
        if name.startswith("before"):
            held += 1
            await go_on.wait()
        else:
            ran.add(name)

    worker = Worker(app, WorkerOptions(settings=Settings.load(environ={}, overrides={"max_processors": 2})))
    await app.enqueue_many("q", [f"before {n}" for n in range(COUNT)])
    await worker.init()
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while held < 20:
            await asyncio.sleep(0.01)
        await restore()
        after = [f"after {n}" for n in range(COUNT)]
        await stored(app, after)
        go_on.set()
        while ran < set(after):
            await asyncio.sleep(0.01)
        worker.shutdown()
        await running
        stats = (await app.storage.stats()).queues["q"]
        assert (stats.dead, stats.total) == (0, 0)
    await app.close()


async def fill_and_take(store: Store) -> list[Job]:
    while True:
        with suppress(StorageError):  # the connection of before the return may be found to be lost only now
            await store.enqueue([NewJob("q", b"x") for _ in range(COUNT)])
            break
    return await store.take("q", COUNT, lease=600)


async def stored(app: App, payloads: list[str]) -> None:
    while True:
        with suppress(StorageError):
            await app.enqueue_many("q", payloads)
            break
