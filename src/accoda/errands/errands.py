"""Errands: started by people, done step by step by whoever is there, through crashes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Generic, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.errands.loop import keep_on, put_back
from accoda.errors import Conflict, NotFound
from accoda.model import Bury, Done, Job, NewJob
from accoda.payload import read_json
from accoda.storage.protocol import Store

ErrandStatus = Literal["running", "finished", "stopped"]

KEPT = 7 * 86_400.0
"""Seconds that one is remembered after its end."""
LEASE = 60.0
NAP = 30.0


class Step(Struct, frozen=True, kw_only=True):
    """Where an errand is; each kind has its own fields beside these."""

    started_at: int
    status: ErrandStatus = "running"
    ended_at: int | None = None


S = TypeVar("S", bound=Step)


class Errands(Generic[S]):
    """The errands of one kind: jobs of a queue, whose data is a step, and documents of those that have ended."""

    def __init__(self, what: str, queue: str, prefix: str, type: type[S]) -> None:
        self.what = what
        self.queue = queue
        self.prefix = prefix
        self._type = type
        self._decoder = msgspec.msgpack.Decoder(type)

    def job_of(self, id: str, step: S, delay: float = 0.0) -> NewJob:
        """A step as a job, under the errand's id as its key."""
        return NewJob(self.queue, _encoder.encode(step), key=id, delay=delay or None)

    def decode(self, data: bytes) -> S | None:
        """The step that a job of the queue is; None where it is none."""
        try:
            return self._decoder.decode(data)
        except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
            return None

    async def remember(self, store: Store, id: str, step: S) -> None:
        """Keep what has become of one that has ended."""
        await store.write(self.prefix + id, msgspec.json.encode(step), ttl=KEPT)

    async def start(self, store: Store, step: S) -> str:
        """Begin one; its id."""
        id = os.urandom(8).hex()
        await store.enqueue([self.job_of(id, step)])
        return id

    async def find(self, store: Store, id: str) -> S:
        """How far one is, or how it ended."""
        if not _is_id(id):
            raise self._unknown(id)
        # The job first: when it is gone, what it left is there.
        job = (await store.peek(self.queue, id)).job
        step = None if job is None else self.decode(job.data)
        if step is None:
            ended = await store.read(self.prefix + id)
            step = None if ended is None else read_json(ended.value, self._type)
        if step is None:
            raise self._unknown(id)
        return step

    async def all(self, store: Store) -> list[tuple[str, S]]:
        """Those that go on, and those that have ended in the last week; the latest first."""
        found: dict[str, S] = {}
        for document in await store.documents(self.prefix):
            if (ended := read_json(document.value, self._type)) is not None:
                found[document.name.removeprefix(self.prefix)] = ended
        for state in ("ready", "delayed", "taken"):
            for job in await store.browse(self.queue, state, None, 1000):
                if job.key is not None and (step := self.decode(job.data)) is not None:
                    found[job.key] = step
        return sorted(found.items(), key=lambda one: (one[1].started_at, one[0]), reverse=True)

    async def stop(self, store: Store, id: str) -> S:
        """End one before its end. What is done stays so; the step that runs now may still do its share."""
        while True:
            seen = await store.peek(self.queue, id) if _is_id(id) else None
            job = None if seen is None else seen.job
            step = None if job is None else self.decode(job.data)
            if seen is None or job is None or step is None:
                ended = await self.find(store, id)
                if ended.status == "running":
                    continue  # its next step came between the two looks
                raise Conflict(f"{self.what} {id} is {ended.status} already")
            # A step that ends meanwhile is followed by another job, which the next look finds.
            if await store.drop(self.queue, job.id, job.waiters):
                stopped = replace(step, status="stopped", ended_at=seen.at)
                await self.remember(store, id, stopped)
                return stopped

    def _unknown(self, id: str) -> NotFound:
        return NotFound(self.what, id, "those that have ended are remembered for a week")


class Advance(Protocol[S]):
    """Does a step, and says what comes next. `again`: it was begun before, and its end is not known."""

    def __call__(self, store: Store, step: S, again: bool) -> Awaitable[S]: ...


class Stepper(Generic[S]):
    """The duty of a kind of errands."""

    def __init__(
        self, errands: Errands[S], advance: Advance[S], pause_after: Callable[[S], float], *, lease: float = LEASE
    ) -> None:
        self.queue = errands.queue
        self._errands = errands
        self._advance = advance
        self._pause_after = pause_after
        self._lease = lease

    async def run_once(self, store: Store) -> int:
        """Do the steps that are due."""
        settled = 0
        for job in await store.take(self.queue, 10, lease=self._lease, worker=self._errands.what):
            settled += await self._do(store, job)
        return settled

    async def run(self, store: Store) -> None:
        """Do what comes due, until cancelled."""
        await keep_on(self, store, NAP)

    async def _do(self, store: Store, job: Job) -> bool:
        step = self._errands.decode(job.data)
        if step is None or job.key is None:
            return not await store.settle([Bury(job.lease, f"unreadable: it is no step of a {self._errands.what}")])
        try:
            after = await self._advance(store, step, job.attempts > 0)
        except BaseException:
            # Whatever it is (the store is away, we are told to stop): the step goes back, unchanged, if that is heard.
            await put_back(store, job)
            raise
        if after.status == "running":
            following = self._errands.job_of(job.key, after, self._pause_after(after))
            return not await store.settle([Done(job.lease, then=[following])])
        # The document first: if we are killed between the two, the step is repeated, and finds nothing more to do.
        await self._errands.remember(store, job.key, replace(after, ended_at=(await store.peek(self.queue)).at))
        return not await store.settle([Done(job.lease)])


def _is_id(id: str) -> bool:
    return 0 < len(id) <= 64 and id.isascii() and id.isalnum()


_encoder = msgspec.msgpack.Encoder()
