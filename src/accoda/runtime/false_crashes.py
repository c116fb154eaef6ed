"""Takes back crashes that were none: those of leases that ended although their worker lives.

A lease that ends without an outcome counts as a crash of its job, since the store cannot know more. While the store is
away no lease can be extended, so an outage longer than a lease costs every running job one. A worker that is told that
a lease it held is lost is alive, so it takes that crash back, with `NotCrashed`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from accoda.errors import AccodaError, StorageError
from accoda.model import Lease, NotCrashed, Refused
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

AT_ONCE = 1000
"""Crashes that are taken back in one call."""

SOON_AFTER = 0.5
"""Seconds after the end of a lease at which the store will have noticed it, if a worker waits for the queue."""

log = logging.getLogger("accoda.leases")


class FalseCrashes:
    """The lost leases of one worker whose crashes are to be taken back. Belongs to its event loop.

    Each lease is reported once. `extend` refuses a lease at most once, since it is not extended after that; `settle`
    refuses it at most once, since an outcome that was answered is not sent again. If both do, `extend` comes first: the
    run is stopped because of it, and its outcome is sent after that.

    A lease may also be lost because the job was removed or replaced, or because its outcome was applied and the answer
    was lost. `NotCrashed` then finds no crash to take back, unless the job has an older one. To take that one back does
    less harm than to leave a crash that was none.
    """

    def __init__(self) -> None:
        self._waiting: list[Lease] = []
        self._reported: set[Lease] = set()
        """Those that `extend` refused and that are not settled yet."""
        self._added = asyncio.Event()

    def not_extended(self, leases: Iterable[Lease]) -> None:
        """The store refused to extend these, and no outcome of them is on its way."""
        new = [lease for lease in leases if lease not in self._reported]
        self._reported.update(new)
        self._add(new)

    def not_settled(self, refused: Iterable[Refused]) -> None:
        """The store refused these outcomes."""
        lost = [refusal.lease for refusal in refused if refusal.why == "lost"]
        self._add([lease for lease in lost if lease not in self._reported])
        self._reported.difference_update(lost)

    def left_to_end(self, leases: Sequence[Lease], seconds: float) -> None:
        """These end by themselves within so many seconds, since their handler wanted it so. That is no crash."""
        asyncio.get_running_loop().call_later(seconds + SOON_AFTER, self._add, list(leases))

    async def run_once(self, store: Store) -> None:
        """Tell the store. What it does not answer to stays, and is told again."""
        while self._waiting:
            some = self._waiting[:AT_ONCE]
            await store.change([NotCrashed(lease.id, queue=lease.queue) for lease in some])
            del self._waiting[: len(some)]  # only now; others may have come behind them meanwhile

    async def run(self, store: Callable[[], Store]) -> None:
        """Tell the store whenever there is something to tell, for ever. `store` gives the one to use at present."""
        trouble = Backoff(0.2, 2.0)
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                try:
                    await self.run_once(store())
                    trouble.reset()
                except StorageError as error:
                    log.warning("cannot take back the crashes of lost leases, trying again soon: %s", error)
                    await trouble.nap()
                except AccodaError:
                    log.exception("the store refused to take back the crashes of %d lost leases", len(self._waiting))
                    self._waiting.clear()

    def _add(self, leases: list[Lease]) -> None:
        if leases:
            self._waiting += leases
            self._added.set()
