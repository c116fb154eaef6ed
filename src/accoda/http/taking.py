"""Taking jobs for a worker at the other end of an HTTP connection, which may be gone once they have been taken.

    take → sort out → is the caller still there? → answer
                         └─ no: give them back at once

A job that is handed to a caller whose connection then breaks is not lost: its lease ends, and it comes back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from accoda.clock import SystemClock
from accoda.envelope import JobMetadata, unwrap
from accoda.errors import Conflict, InvalidInput, StorageError
from accoda.http.call import Call, ClientGone
from accoda.http.leases import token_of
from accoda.http.resources.common import NAME_PATTERN
from accoda.limits import COST, is_name
from accoda.model import Bury, Job, Lease, Outcome, Retry, check_name, check_queue
from accoda.names import is_system
from accoda.operations.handlers import handler_of, has_hooks, options_of
from accoda.operations.moments import rfc3339
from accoda.operations.plain import decoded, plain
from accoda.operations.served import note_take
from accoda.payload import UnreadablePayload
from accoda.retry import Limits, describe, give_up, quarantine
from accoda.runtime.envelope_outcome import limits_of, mask_for, with_call
from accoda.settings.knobs import QUEUE_KNOBS
from accoda.storage.common.reconnecting import Backoff
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

MOST = 1000
"""Jobs, outcomes or leases in one request."""

LONGEST_LEASE = 86_400

LONGEST_POLL = 60

WorkerName = Annotated[str, Meta(pattern=NAME_PATTERN, description="the worker's name: letters, digits, `_`, `.`, `-`")]

LeaseSeconds = Annotated[float, Meta(ge=1, le=LONGEST_LEASE, description="seconds for which the jobs are yours")]


class TakeRequest(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a worker asks for. `wait`: seconds to wait for a first job; `maxCost`: the most that all may cost together;
    `worker`: the name that people see beside a running job (default: the token's)."""

    count: Annotated[int, Meta(ge=1, le=MOST)] = 1
    lease: LeaseSeconds = 60.0
    wait: Annotated[float, Meta(ge=0, le=LONGEST_POLL)] = 0.0
    max_cost: Annotated[int, Meta(ge=0, le=COST)] | None = None
    worker: WorkerName | None = None


CALLER_GONE = "given back: the worker that asked for it had hung up"
ALONE = "given back while a job that may be poison runs alone"
ROUNDS = 10
"""How many takes in a row may find nothing but jobs to be buried, before the worker is told to ask again."""
_TURNS = 3

log = logging.getLogger("accoda.http")


class TakenJob(Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """A job that is yours until `leaseUntil`. `payload` is whole: fields that are secret to people are not to a worker.

    `lease` is the token to settle or extend it with. `tries` counts the failed runs, `crashes` the leases that
    ended without an outcome.
    `leaseUntil` goes by the service's clock; a worker whose clock may be wrong counts from the moment when it asked.
    """

    id: int
    queue: str
    type: str | None = None
    lane: str | None = None
    name: str | None = None
    payload: Any = None
    attempts: int = 0
    tries: int = 0
    crashes: int = 0
    created_at: str
    scheduled_at: str
    prev_start_time: str | None = None
    cost: int = 0
    key: str | None = None
    waiters: int = 0
    schedule: str | None = None
    tick: str | None = None
    lease: str
    lease_until: str


def check_workable(app: App, queue: str, max_cost: int | None) -> None:
    """Refuse queues whose jobs mean something only to Accoda itself: to end one from outside would lose what it stands
    for (the next tick of a schedule, the waiters of a demand)."""
    check_queue(queue)
    options = options_of(app, queue)
    if is_system(queue):
        raise Conflict(f"{queue} is a system queue, whose jobs the service itself runs")
    # Also where this process only requests, and has no handler of it: `deals`, and its `deals.deliver` and the like.
    if queue.partition(".")[0] in app.demands or has_hooks(app, queue):
        raise Conflict(f"{queue} belongs to a demand: its jobs are run by a Python worker of this app")
    if options is not None and options.budgets and max_cost is None:
        names = " and ".join(options.budgets)
        raise InvalidInput("maxCost", f"jobs of {queue} are paid from {names}: say what you may spend with this take")


def limits_for(app: App, queue: str, type: str | None) -> Limits:
    """When to give a job up: as the app's handler of it says or, where it has none, the defaults."""
    handler = handler_of(app, queue, type)
    crashes: Any = QUEUE_KNOBS["max_crashes"].default
    if handler is None:
        return Limits(max_crashes=crashes)
    options = handler.options
    return Limits(options.retry, options.max_attempts, options.max_crashes or crashes)


def sort_out(app: App, jobs: Sequence[Job], lease_until: int) -> tuple[list[TakenJob], list[Outcome]]:
    """The jobs to hand over, and the outcomes of those that must not run now: what a Python worker does before a run.

    A job whose lease ended without an outcome is handed over alone: if it kills its worker again, no other job is hit.
    """
    until = rfc3339(lease_until)
    given: list[TakenJob] = []
    not_now: list[Outcome] = []
    for job in jobs:
        extras, data = unwrap(job.data)
        handler = handler_of(app, job.queue, extras.type)
        codec, secret = (None, ()) if handler is None else (handler.codec, handler.options.secret)
        outcome: Outcome | None = None
        if job.crashes:
            limits = limits_for(app, job.queue, extras.type)
            outcome = give_up(job, limits_of(job, limits)) or quarantine(job)
        if outcome is None and given and (job.crashes or given[0].crashes):
            outcome = Retry(job.lease, reason=ALONE, counts=False)
        if outcome is None:
            try:
                given.append(_taken(job, extras, plain(decoded(data, codec)), until))
                continue
            except UnreadablePayload as error:
                outcome = Bury(job.lease, describe(error))
        not_now.append(with_call(outcome, job, secret, mask_for(job, secret, codec)))
    return given, not_now


def _taken(job: Job, extras: JobMetadata, payload: Any, until: str) -> TakenJob:
    return TakenJob(
        id=job.id,
        queue=job.queue,
        type=extras.type,
        lane=job.lane,
        name=extras.name,
        payload=payload,
        attempts=job.attempts,
        tries=job.tries,
        crashes=job.crashes,
        created_at=_shown(job.created_at),
        scheduled_at=_shown(job.start_time),
        prev_start_time=rfc3339(job.prev_start_time),
        cost=job.cost,
        key=job.key,
        waiters=job.waiters,
        schedule=extras.schedule,
        tick=rfc3339(extras.tick),
        lease=token_of(job, extras),
        lease_until=until,
    )


async def take_for(call: Call[TakeRequest, Any, Any], queue: str) -> list[TakenJob]:
    """Jobs for the caller; waits for them as long as the caller asked."""
    ask = call.body
    check_workable(call.app, queue, ask.max_cost)
    note_take(call.app, queue)
    if ask.worker is not None:
        check_name("worker", ask.worker)
    worker = ask.worker or (call.identity.name if is_name(call.identity.name) else "")
    deadline = time.monotonic() + min(ask.wait, call.options.max_wait)
    spurious = Backoff(0.05, 1.0)
    while True:
        jobs = await _take_once(call, queue, worker)
        left = deadline - time.monotonic()
        if jobs or left <= 0:
            return jobs
        # None: the service is shutting down and lets no one wait.
        if await call.poll(call.app.storage.wait([queue], left)) is None:
            return []
        if ask.max_cost is not None:
            # A head that is too dear for this worker wakes it again and again: it would spin.
            await call.poll(spurious.nap(left))


async def _take_once(call: Call[TakeRequest, Any, Any], queue: str, worker: str) -> list[TakenJob]:
    """Take what is there; what may not run now is buried or given back on the way."""
    store, ask = call.app.storage, call.body
    for _ in range(ROUNDS):
        # Before the call, so that the moment which is told is never later than the true one by the length of the call.
        until = (call.app.connections.clock or _system).now() + round(ask.lease * 1000)
        jobs = await _take_whole(store, ask, queue, worker)
        if not jobs:
            return []
        given, not_now = sort_out(call.app, jobs, until)
        if not_now:
            await _settle(store, not_now)
        if given:
            settled = {outcome.lease for outcome in not_now}
            await _still_there(call, [job.lease for job in jobs if job.lease not in settled])
            return given
    return []


async def _take_whole(store: Store, ask: TakeRequest, queue: str, worker: str) -> list[Job]:
    """A take that is cancelled half-way may have happened all the same: what it gave goes back before the end."""
    taking = asyncio.ensure_future(store.take(queue, ask.count, lease=ask.lease, max_cost=ask.max_cost, worker=worker))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await _give_back(store, [job.lease for job in await taking])
        raise


async def _still_there(call: Call[Any, Any, Any], leases: Sequence[Lease]) -> None:
    """Give the jobs back if the caller has hung up.

    A few turns of the loop are enough for it to notice a connection that was closed while the take was under way. From
    here to the sending of the answer there is no await, so no caller can leave unnoticed in between.
    """
    try:
        await call.poll(_turns())
    except (ClientGone, asyncio.CancelledError):
        await _give_back(call.app.storage, leases)
        raise


async def _turns() -> bool:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    return True


async def _give_back(store: Store, leases: Sequence[Lease]) -> None:
    if leases:
        await _settle(store, [Retry(lease, reason=CALLER_GONE, counts=False) for lease in leases])


async def _settle(store: Store, outcomes: Sequence[Outcome]) -> None:
    """Settle jobs whose caller has gone. If the store is away, the leases end by themselves."""
    try:
        await store.settle(outcomes)
    except StorageError as error:
        log.warning("cannot settle %d jobs, their leases will end: %s", len(outcomes), error)


_system = SystemClock()
_shown = lru_cache(1024)(rfc3339)  # most jobs of a batch were enqueued together
