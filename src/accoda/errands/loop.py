"""The loop of a duty, and what it does with a job that it cannot finish now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from accoda.errors import StorageError
from accoda.model import Job, Retry
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Store


class Duty(Protocol):
    """The jobs of one queue of our own."""

    queue: str

    async def run_once(self, store: Store) -> int: ...


async def keep_on(duty: Duty, store: Store, nap: float, look: Callable[[Store], Awaitable[None]] | None = None) -> None:
    """Do what comes due, for ever. `look` is called before the first wait, and after each that nothing has ended.

    Cancelled in a step, a duty leaves a lease, at whose end the step is repeated.
    """
    backoff = Backoff()
    woken = False
    while True:
        try:
            if not await duty.run_once(store):
                if look is not None and not woken:
                    await look(store)
                woken = await store.wait([duty.queue], nap)
            backoff.reset()
        except StorageError:
            await backoff.nap()


async def put_back(store: Store, job: Job) -> None:
    """Give a job back that was not finished, unchanged, if that is heard."""
    try:
        await store.settle([Retry(job.lease, delay=1.0, reason="interrupted")])
    except StorageError:
        return
