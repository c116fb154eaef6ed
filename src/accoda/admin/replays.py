"""Replays that go on by themselves: the dead letters that fit a filter, so many a second, through crashes.

A replay is a job of `accoda.replays` with its id as the key. Each step brings what the step before it has planned, one
second's worth of ids, and is settled as `Done(then=[the next step])`: one atomic step, so there is always exactly one.
A step that is repeated after a crash revives the same ids, and those that were revived already are no longer dead.

What it has done so far stands in the job itself while it goes on, and in the document `replays/{id}` when it has ended.
"""

from __future__ import annotations

import os
from math import isfinite
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accoda.admin.cursors import Place
from accoda.admin.letters import DeadFilter, Wanted, gather, wanted
from accoda.admin.moments import shown
from accoda.admin.reviving import Revived, revive_all
from accoda.admin.store import now_of
from accoda.errors import Conflict, InvalidInput, NotFound, StorageError
from accoda.model import Bury, Done, Job, JobInfo, NewJob, Retry
from accoda.payload import read_json
from accoda.storage.backoff import Backoff
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

QUEUE = "accoda.replays"
PREFIX = "replays/"
KEPT = 7 * 86_400.0
LEASE = 60.0
NAP = 30.0
AT_ONCE = 500
"""Jobs of one step where no rate is told."""
MOST_AT_ONCE = 1000
"""Jobs of one step, however high the rate: their ids are the step's data, and no store stands still for them."""
LOOKED_AT = 5000
"""Records that one step looks at for the next: a filter that matches little is gone through in many steps."""
FASTEST = 10_000.0

ReplayStatus = Literal["running", "finished", "stopped"]


class Step(Struct, frozen=True, kw_only=True):
    """The data of a replay's job: what is wanted, what is to be revived now, where to look on, what is done."""

    which: Wanted
    rate: float | None
    started_at: int
    ids: tuple[int, ...] = ()
    at: Place | None = None
    looked: bool = False
    done: Revived = Revived()
    status: ReplayStatus = "running"


class ReplayView(Struct, rename="camel", frozen=True, kw_only=True):
    """A replay. `held` stay dead, because another job holds their key; `gone` were no longer there."""

    id: str
    status: ReplayStatus
    queue: str | None = None
    fingerprint: str | None = None
    rate: float | None = None
    started_at: str
    matched: int = 0
    revived: int = 0
    held: int = 0
    gone: int = 0

    @classmethod
    def of(cls, id: str, step: Step, status: ReplayStatus | None = None) -> ReplayView:
        return cls(
            id=id,
            status=status or step.status,
            queue=step.which.queue,
            fingerprint=step.which.fingerprint,
            rate=step.rate,
            started_at=shown(step.started_at) or "",
            matched=step.done.matched,
            revived=step.done.revived,
            held=step.done.held,
            gone=step.done.gone,
        )


def check_rate(rate: float | None) -> None:
    """Refuse what is no number of jobs a second."""
    if rate is None:
        return
    if (
        isinstance(rate, bool)
        or not isinstance(rate, (int, float))
        or not isfinite(rate)
        or not 0.001 <= rate <= FASTEST
    ):
        raise InvalidInput("rate", f"must be jobs a second, from 0.001 to {FASTEST:,.0f}, not {rate!r:.60}")


async def start_replay(app: App, filter: DeadFilter, rate: float | None = None) -> ReplayView:
    """Begin to revive the dead letters that fit, at most `rate` a second. It goes on wherever a worker or service runs.

    Those that die while it goes on are not revived a second time.
    """
    check_rate(rate)
    store = await app.connections.get()
    now = await now_of(store, QUEUE)
    step = Step(which=wanted(filter, now), rate=rate, started_at=now)
    id = os.urandom(8).hex()
    await store.enqueue([_job(id, step)])
    return ReplayView.of(id, step)


async def replay_state(app: App, id: str) -> ReplayView:
    """How far a replay is."""
    store = await app.connections.get()
    # The job first: when it is gone, what it left is there.
    step = _step((await store.peek(QUEUE, id)).job) if _is_id(id) else None
    if step is not None:
        return ReplayView.of(id, step)
    ended = await store.read(PREFIX + id) if _is_id(id) else None
    step = None if ended is None else read_json(ended.value, Step)
    if step is None:
        raise NotFound("replay", id, "those that have ended are remembered for a week")
    return ReplayView.of(id, step)


async def list_replays(app: App) -> list[ReplayView]:
    """Replays that go on, and those that have ended in the last week; the latest first."""
    store = await app.connections.get()
    found: dict[str, ReplayView] = {}
    for document in await store.documents(PREFIX):
        if (ended := read_json(document.value, Step)) is not None:
            id = document.name.removeprefix(PREFIX)
            found[id] = ReplayView.of(id, ended)
    for state in ("ready", "delayed", "taken"):
        for job in await store.browse(QUEUE, state, None, 1000):
            if job.key is not None and (step := _step(job)) is not None:
                found[job.key] = ReplayView.of(job.key, step)
    return sorted(found.values(), key=lambda view: (view.started_at, view.id), reverse=True)


async def stop_replay(app: App, id: str) -> ReplayView:
    """End a replay before its end. What is revived stays so; the step that runs now may still revive its share."""
    store = await app.connections.get()
    while True:
        job = (await store.peek(QUEUE, id)).job if _is_id(id) else None
        step = _step(job)
        if job is None or step is None:
            view = await replay_state(app, id)
            if view.status == "running":
                continue  # its next step came between the two looks
            raise Conflict(f"replay {id} is {view.status} already")
        # A step that ends meanwhile is followed by another job, which the next look finds.
        if await store.drop(QUEUE, job.id, job.waiters):
            stopped = replace(step, status="stopped")
            await store.write(PREFIX + id, msgspec.json.encode(stopped), ttl=KEPT)
            return ReplayView.of(id, stopped)


class Replayer:
    """The duty of `accoda.replays`."""

    queue = QUEUE

    async def run_once(self, store: Store) -> int:
        """Do the steps that are due."""
        settled = 0
        for job in await store.take(QUEUE, 10, lease=LEASE, worker="replayer"):
            settled += await self._do(store, job)
        return settled

    async def run(self, store: Store) -> None:
        """Do what comes due, for ever. Cancelled in a step, it leaves a lease, at whose end the step is repeated."""
        backoff = Backoff()
        while True:
            try:
                if not await self.run_once(store):
                    await store.wait([QUEUE], NAP)
                backoff.reset()
            except StorageError:
                await backoff.nap()

    async def _do(self, store: Store, job: Job) -> bool:
        step = _decode(job.data)
        if step is None or job.key is None:
            return not await store.settle([Bury(job.lease, "unreadable: it is no step of a replay")])
        try:
            after = await advance(store, step, again=job.attempts > 0)
        except BaseException:
            # Whatever it is (the store is away, we are told to stop): the step goes back, unchanged, if that is heard.
            await _put_back(store, job)
            raise
        if after.status == "running":
            pause = 0.0 if not after.ids else _pause(after.rate)
            return not await store.settle([Done(job.lease, then=[_job(job.key, after, pause)])])
        # The document first: if we are killed between the two, the step is repeated, and finds nothing more to do.
        await store.write(PREFIX + job.key, msgspec.json.encode(after), ttl=KEPT)
        return not await store.settle([Done(job.lease)])


async def advance(store: Store, step: Step, again: bool = False) -> Step:
    """Revive what is planned, and plan what comes next."""
    done = step.done.plus(await revive_all(store, step.ids, step.which.until, again=again))
    if step.looked and step.at is None:
        return replace(step, ids=(), done=done, status="finished")
    found = await gather(store, step.which, step.at, _share(step.rate), LOOKED_AT)
    ids = tuple(job.id for job in found.jobs)
    after = replace(step, ids=ids, at=found.next, looked=True, done=done)
    return after if ids or found.next is not None else replace(after, status="finished")


def _share(rate: float | None) -> int:
    """The jobs of one step: a second's worth, unless that is very many."""
    return AT_ONCE if rate is None else max(1, min(MOST_AT_ONCE, int(rate)))


def _pause(rate: float | None) -> float:
    """Seconds from one step to the next, so that the rate is kept: a second, as a rule."""
    return 0.0 if rate is None else _share(rate) / rate


def _job(id: str, step: Step, delay: float = 0.0) -> NewJob:
    return NewJob(QUEUE, _encoder.encode(step), key=id, delay=delay or None)


async def _put_back(store: Store, job: Job) -> None:
    try:
        await store.settle([Retry(job.lease, delay=1.0, reason="interrupted")])
    except StorageError:
        return


def _step(job: JobInfo | None) -> Step | None:
    return None if job is None else _decode(job.data)


def _decode(data: bytes) -> Step | None:
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
        return None


def _is_id(id: str) -> bool:
    return 0 < len(id) <= 64 and id.isascii() and id.isalnum()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Step)
