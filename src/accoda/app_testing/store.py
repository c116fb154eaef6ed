"""The store of an app in testing mode: in memory, the same for every event loop and thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, copy_context
from math import inf
from typing import Any, cast

from accoda.clock import Clock
from accoda.connections import Connections
from accoda.model import ById, Enqueued
from accoda.runtime.batch import current, current_batch
from accoda.storage.common.lease_durability import is_held_here
from accoda.storage.common.reconnecting import patience_limit
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper

RESULT_TIMEOUT = 5.0
"""Seconds after which a call that waits for a result fails the test: a job that no test runs would hang it."""
LOOK_AGAIN = 0.001

RunJobs = Callable[[], Awaitable[object]]


class TrialStore(Wrapper):
    """Passes every call on to a store in memory. `enqueued` is awaited after each `enqueue`."""

    def __init__(self, store: Store, enqueued: Callable[[Sequence[Enqueued]], Awaitable[None]]) -> None:
        self._store = store
        self._enqueued = enqueued

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        answer = await getattr(self._store, verb)(*args, **kwargs)
        if verb == "enqueue":
            await self._enqueued(answer)
        return answer


class TrialConnections(Connections):
    """Gives everyone the one store."""

    def __init__(self, clock: Clock, enqueued: Callable[[Sequence[Enqueued]], Awaitable[None]]) -> None:
        super().__init__("memory://", clock, in_trial=True)
        self.result_timeout = RESULT_TIMEOUT
        self.store = cast(Store, TrialStore(MemoryStorage(clock), enqueued))

    async def open(self) -> Store:
        return self.store

    async def put_back(self, store: Store) -> None:
        """It is everyone's."""


_inside: ContextVar[bool] = ContextVar("accoda_trial_inside", default=False)
"""Whether this is in a run of jobs that `run_now` began."""


def is_machinery() -> bool:
    """Whether the present call comes from a worker itself, not from a handler, a test or the code that it tests."""
    return _inside.get() and current.get() is None and current_batch.get() is None


async def run_now(store: Store, run: RunJobs, enqueued: Sequence[Enqueued]) -> None:
    """Run what is ready, the jobs that were just enqueued among it, before the call that enqueued them goes on."""
    context = copy_context()
    context.run(_enter)
    await asyncio.get_running_loop().create_task(_awaited(run), context=context)
    if is_held_here():
        # In a handler: another job that it enqueued may have been taken by the worker that runs the handler, and that
        # worker may need this call to end before it can go on.
        return
    for told in enqueued:
        if told.what == "created":
            await _ended(store, told.id)


async def _awaited(run: RunJobs) -> None:
    await run()


async def _ended(store: Store, id: int) -> None:
    """Another call that enqueues at the same time, in whichever thread, may have taken our job: until it has ended."""
    while True:
        job = (await store.look(ById(id))).job
        if job is None or job.state != "taken":
            return
        await asyncio.sleep(LOOK_AGAIN)


def _enter() -> None:
    """The worker that runs inside a handler belongs to no job, and waits for its store as any worker does."""
    _inside.set(True)
    current.set(None)
    current_batch.set(None)
    patience_limit.set(inf)
