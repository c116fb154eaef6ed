"""Waits for the queues that sleep, a group at a time, and wakes those that have jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from accoda.errors import StorageError
from accoda.runtime.rotation import Rotation, WaitGroup
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Storage

WAIT = 60.0
"""Seconds that one `wait` of the storage lasts at most."""
TOGETHER = 8
"""Queues that one look covers, when it is asked which of many have jobs."""

log = logging.getLogger("accoda.worker")


class Sleeper:
    """The waits of one worker."""

    def __init__(self, rotation: Rotation, storage: Storage) -> None:
        self._rotation = rotation
        self.storage = storage
        self._trouble = Backoff(0.5, 5.0)

    async def run(self) -> None:
        """For ever; cancel it to end it."""
        async with asyncio.TaskGroup() as tasks:
            for group in self._rotation.groups:
                tasks.create_task(self._watch(group))

    async def _watch(self, group: WaitGroup) -> None:
        while True:
            await self.run_once(group)

    async def run_once(self, group: WaitGroup) -> None:
        """One wait, begun anew when another queue falls asleep."""
        # Cleared before the look: a queue that falls asleep after it ends the wait below.
        group.fell_asleep.clear()
        names = group.asleep()
        if not names:
            await group.fell_asleep.wait()
            return
        changed = asyncio.ensure_future(group.fell_asleep.wait())
        waiting = asyncio.ensure_future(self._wait(names))
        changed.add_done_callback(lambda _: waiting.cancel())
        try:
            await asyncio.wait((waiting,))
            if not waiting.cancelled():
                waiting.result()  # raises a mistake of ours
        finally:
            changed.cancel()
            waiting.cancel()
            await asyncio.gather(changed, waiting, return_exceptions=True)

    async def _wait(self, names: list[str]) -> None:
        """Wake the queues that were waited for. Here, and not where this is awaited: that would be turns of the loop
        later, and a job that comes to an idle worker waits for each of them."""
        try:
            found = await self.storage.wait(names, WAIT)
            self._trouble.reset()
        except StorageError as error:
            log.warning("cannot wait for jobs, trying again soon: %s", error)
            await self._trouble.nap()
            found = True  # look for yourselves: a take that works ends the trouble
        if found:
            self._rotation.wake(names if len(names) <= 2 else await self._takable(names))

    async def _takable(self, names: list[str]) -> list[str]:
        """Which of those that were waited for have jobs: looks are cheaper than a take for each.

        None, if another worker was faster. Nothing is lost by that: the next wait looks before it sleeps.
        """
        try:
            groups = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
            found = await self._with_jobs(groups) if len(groups) > 1 else groups
            return [name for (name,) in await self._with_jobs([[name] for group in found for name in group])]
        except StorageError:
            return names  # let the takes find out

    async def _with_jobs(self, groups: Sequence[list[str]]) -> list[list[str]]:
        found = await asyncio.gather(*(self.storage.wait(group, 0) for group in groups))
        return [group for group, takable in zip(groups, found, strict=True) if takable]
