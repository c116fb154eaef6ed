"""Things that go wrong: a worker that crashes with a job in hand, and dead jobs that somebody looks after."""

from __future__ import annotations

from accoda.clock import Clock
from accoda.demo.jobs import QUEUE, read_work
from accoda.demo.journal import Event, Journal, What
from accoda.demo.work import describe
from accoda.model import Done, Job, JobInfo
from accoda.storage.protocol import Storage, Store

SHORT_LEASE = 1.5
LATE_BY = 0.5
MAX_DEAD = 12
"""More dead jobs than this are removed, oldest first, so that a demo left running does not pile them up."""


class Crasher:
    """Takes a job and never settles it in time. Its lease ends and the job comes back, without anybody's help.

    Later it wakes up and reports the job as done after all: too late, and the storage must refuse.
    """

    def __init__(self, name: str, storage: Storage, clock: Clock, journal: Journal) -> None:
        self._name = name
        self._storage = storage
        self._clock = clock
        self._journal = journal
        self._left: list[tuple[int, Job]] = []

    @property
    def pending(self) -> int:
        """How many late reports are still to come."""
        return len(self._left)

    async def crash(self) -> None:
        """Take one job, if there is one, and let go of it."""
        for job in await self._storage.take(QUEUE, 1, lease=SHORT_LEASE, worker=self._name):
            self._left.append((self._clock.now() + round((SHORT_LEASE + LATE_BY) * 1000), job))
            self._journal.note(describe(job, "crashed", self._name, "lease left open"))

    async def report_late(self) -> None:
        """Send the `Done` of those jobs whose lease is over, and note what the storage says to it."""
        now = self._clock.now()
        due = [job for moment, job in self._left if moment <= now]
        self._left = [(moment, job) for moment, job in self._left if moment > now]
        refusals = await self._storage.settle([Done(job.lease) for job in due]) if due else []
        refused = {refusal.lease: refusal.why for refusal in refusals}
        for job in due:
            why = refused.get(job.lease)
            self._journal.note(describe(job, "refused" if why else "done", self._name, why or "late"))


class Caretaker:
    """Revives the oldest dead job, as a person would who has mended the cause."""

    def __init__(self, storage: Store, journal: Journal) -> None:
        self._storage = storage
        self._journal = journal

    async def run_once(self) -> None:
        """Revive the oldest dead job, and remove the next oldest while there are too many."""
        dead = await self._storage.browse(QUEUE, "dead", limit=100)
        too_many = max(0, len(dead) - 1 - MAX_DEAD)
        for info in dead[:1]:
            if await self._storage.revive([info.id]):
                self._journal.note(_event(info, "revived", "runs again"))
        for info in dead[1 : 1 + too_many]:
            if await self._storage.remove([info.id]):
                self._journal.note(_event(info, "removed", "too many dead"))


def _event(info: JobInfo, what: What, note: str) -> Event:
    return Event(what, info.id, read_work(info.data).kind, info.rank, info.attempts, note=note)
