"""Failures: a worker that crashes with a taken job, and dead jobs that are revived."""

from __future__ import annotations

from examples.demo.event_log import Event, EventLog, What
from examples.demo.jobs import QUEUE, read_work
from examples.demo.work import describe

from accoda.clock import Clock
from accoda.model import Done, Job, JobInfo, Remove, Revive
from accoda.storage.protocol import Storage, Store

SHORT_LEASE = 1.5
LATE_BY = 0.5
MAX_DEAD = 12
"""More dead jobs than this are removed, oldest first, so that they do not pile up in a long demo."""


class Crasher:
    """Takes a job and does not settle it in time. Its lease ends, and the job comes back by itself.

    Later it reports the job as done after all: too late, and the storage must refuse.
    """

    def __init__(self, name: str, storage: Storage, clock: Clock, log: EventLog) -> None:
        self._name = name
        self._storage = storage
        self._clock = clock
        self._log = log
        self._left: list[tuple[int, Job]] = []

    @property
    def pending(self) -> int:
        """How many late reports are still due."""
        return len(self._left)

    async def crash(self) -> None:
        """Take one job, if there is one, and abandon it."""
        for job in await self._storage.take(QUEUE, 1, lease=SHORT_LEASE, worker=self._name):
            self._left.append((self._clock.now() + round((SHORT_LEASE + LATE_BY) * 1000), job))
            self._log.note(describe(job, "crashed", self._name, "lease left open"))

    async def report_late(self) -> None:
        """Send the `Done` of jobs whose lease has ended, and log the storage's answer."""
        now = self._clock.now()
        due = [job for moment, job in self._left if moment <= now]
        self._left = [(moment, job) for moment, job in self._left if moment > now]
        refusals = await self._storage.settle([Done(job.lease) for job in due]) if due else []
        refused = {refusal.lease: refusal.why for refusal in refusals}
        for job in due:
            why = refused.get(job.lease)
            self._log.note(describe(job, "refused" if why else "done", self._name, why or "late"))


class Reviver:
    """Revives the oldest dead job, as an operator would who has fixed the cause."""

    def __init__(self, storage: Store, log: EventLog) -> None:
        self._storage = storage
        self._log = log

    async def run_once(self) -> None:
        """Revive the oldest dead job, and remove the next oldest while there are too many."""
        dead = await self._storage.browse(QUEUE, "dead", order="id", limit=100)
        too_many = max(0, len(dead) - 1 - MAX_DEAD)
        for info in dead[:1]:
            if await self._storage.change([Revive(info.id, queue=QUEUE)]):
                self._log.note(_event(info, "revived", "runs again"))
        for info in dead[1 : 1 + too_many]:
            if await self._storage.change([Remove(info.id, queue=QUEUE)]):
                self._log.note(_event(info, "removed", "too many dead"))


def _event(info: JobInfo, what: What, note: str) -> Event:
    return Event(what, info.id, read_work(info.data).kind, info.rank, info.attempts, note=note)
