"""Long work that people start and watch, such as bulk changes and replays, done step by step through crashes.

Each is a job of a system queue with its id as the key, whose data says how far it is. Every step ends as
`Done(then=[the next step])`, one atomic step, so there is always exactly one. How it ended is kept in a document.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.errors import Conflict, NotFound, StorageError
from accoda.model import Bury, ByKey, Done, Job, NewJob, Remove, Retry
from accoda.operations.moments import now_of
from accoda.payload import read_json
from accoda.runtime.system_jobs import SystemJob
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

StepStatus = Literal["running", "finished", "stopped"]

KEPT = 7 * 86_400.0
"""Seconds for which an ended one is remembered."""
LEASE = 60.0
NAP = 30.0


class Step(Struct, frozen=True, kw_only=True):
    """How far the work is; each kind has its own fields beside these."""

    started_at: int
    status: StepStatus = "running"
    ended_at: int | None = None


S = TypeVar("S", bound=Step)


class StepJobs(Generic[S]):
    """The work of one kind: jobs of a queue, whose data is a step, and documents of those that have ended."""

    def __init__(self, what: str, queue: str, prefix: str, type: type[S]) -> None:
        self.what = what
        self.queue = queue
        self.prefix = prefix
        self._type = type
        self._decoder = msgspec.msgpack.Decoder(type)

    def job_of(self, id: str, step: S, delay: float = 0.0) -> NewJob:
        return NewJob(self.queue, _encoder.encode(step), key=id, delay=delay or None)

    def decode(self, data: bytes) -> S | None:
        """The step in a job's data; None if it is none."""
        try:
            return self._decoder.decode(data)
        except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
            return None

    async def remember(self, store: Store, id: str, step: S) -> None:
        """Keep what became of one that has ended."""
        await store.write(self.prefix + id, msgspec.json.encode(step), ttl=KEPT)

    async def start(self, store: Store, step: S) -> str:
        """Begin; the id."""
        id = os.urandom(8).hex()
        await store.enqueue([self.job_of(id, step)])
        return id

    async def find(self, store: Store, id: str) -> S:
        """How far one is, or how it ended."""
        if not _is_id(id):
            raise self._unknown(id)
        # The job first: once it is gone, its document is there.
        job = (await store.look(ByKey(self.queue, id))).job
        step = None if job is None else self.decode(job.data)
        if step is None:
            ended = await store.read(self.prefix + id)
            step = None if ended is None else read_json(ended.value, self._type)
        if step is None:
            raise self._unknown(id)
        return step

    async def all(self, store: Store) -> list[tuple[str, S]]:
        """Those that run, and those that have ended in the last week; the latest first."""
        found: dict[str, S] = {}
        for document in await store.documents(self.prefix):
            if (ended := read_json(document.value, self._type)) is not None:
                found[document.name.removeprefix(self.prefix)] = ended
        for state in ("ready", "delayed", "held", "taken"):
            for job in await store.browse(self.queue, state, limit=1000):
                if job.key is not None and (step := self.decode(job.data)) is not None:
                    found[job.key] = step
        return sorted(found.items(), key=lambda one: (one[1].started_at, one[0]), reverse=True)

    async def stop(self, store: Store, id: str) -> S:
        """End one early. What is done stays done; the step that runs now may still finish."""
        while True:
            seen = await store.look(ByKey(self.queue, id)) if _is_id(id) else None
            job = None if seen is None else seen.job
            step = None if job is None else self.decode(job.data)
            if seen is None or job is None or step is None:
                ended = await self.find(store, id)
                if ended.status == "running":
                    continue  # its next step came between the two looks
                raise Conflict(f"{self.what} {id} is {ended.status} already")
            # A step that ends meanwhile is followed by another job, which the next look finds.
            if await store.change([Remove(job.id, waiters=job.waiters)]):
                stopped = replace(step, status="stopped", ended_at=seen.at)
                await self.remember(store, id, stopped)
                return stopped

    def _unknown(self, id: str) -> NotFound:
        return NotFound(self.what, id, "those that have ended are remembered for a week")


class Advance(Protocol[S]):
    """Does a step and gives the next one. `again`: it was begun before, and how far that came is not known."""

    def __call__(self, store: Store, step: S, again: bool) -> Awaitable[S]: ...


class StepRunner(Generic[S]):
    """The system job that does the steps of one kind."""

    def __init__(
        self, jobs: StepJobs[S], advance: Advance[S], pause_after: Callable[[S], float], *, lease: float = LEASE
    ) -> None:
        self.queue = jobs.queue
        self._jobs = jobs
        self._advance = advance
        self._pause_after = pause_after
        self._lease = lease

    async def run_once(self, store: Store) -> int:
        """Do the steps that are due."""
        settled = 0
        for job in await store.take(self.queue, 10, lease=self._lease, worker=self._jobs.what):
            settled += await self._do(store, job)
        return settled

    async def run(self, store: Store) -> None:
        """Do what comes due, until cancelled."""
        await keep_running(self, store, NAP)

    async def _do(self, store: Store, job: Job) -> bool:
        step = self._jobs.decode(job.data)
        if step is None or job.key is None:
            return not await store.settle([Bury(job.lease, f"unreadable: it is no step of a {self._jobs.what}")])
        try:
            after = await self._advance(store, step, job.attempts > 0)
        except BaseException:
            # Whatever it is (the store is away, we are told to stop): the step goes back unchanged, if possible.
            await give_back(store, job)
            raise
        if after.status == "running":
            following = self._jobs.job_of(job.key, after, self._pause_after(after))
            return not await store.settle([Done(job.lease, then=[following])])
        # The document first: if we are killed between the two, the step is repeated, and finds nothing more to do.
        await self._jobs.remember(store, job.key, replace(after, ended_at=await now_of(store, self.queue)))
        return not await store.settle([Done(job.lease)])


async def keep_running(
    jobs: SystemJob, store: Store, nap: float, idle: Callable[[Store], Awaitable[None]] | None = None
) -> None:
    """Do what comes due, for ever. `idle` is called before the first wait, and after each wait that timed out.

    If it is cancelled in a step, the step is repeated when its lease ends.
    """
    backoff = Backoff()
    woken = False
    while True:
        try:
            if not await jobs.run_once(store):
                if idle is not None and not woken:
                    await idle(store)
                woken = await store.wait([jobs.queue], nap)
            backoff.reset()
        except StorageError:
            await backoff.nap()


async def give_back(store: Store, job: Job) -> None:
    """Return an unfinished job to the queue, unchanged, if the store can be reached."""
    try:
        await store.settle([Retry(job.lease, delay=1.0, reason="interrupted", counts=False)])
    except StorageError:
        return


def _is_id(id: str) -> bool:
    return 0 < len(id) <= 64 and id.isascii() and id.isalnum()


_encoder = msgspec.msgpack.Encoder()
