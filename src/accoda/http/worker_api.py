"""Work from any language: take jobs, say what became of them, keep them while they run. See docs/http-workers.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from accoda.http.call import Call
from accoda.http.operation import Reply, operation
from accoda.http.resources.common import OwnQueuePath
from accoda.http.resources.jobs import named_and_allowed
from accoda.http.settling import (
    Again,
    Fail,
    Finish,
    GiveUp,
    RefusedLease,
    Said,
    Token,
    read_leases,
    read_outcomes,
    tell,
    with_calls,
)
from accoda.http.taking import MOST, LeaseSeconds, TakenJob, TakeRequest, check_workable, take_for
from accoda.model import NotCrashed, Refused
from accoda.storage.protocol import Store

GROUP = "Work"


class Taken(Struct, frozen=True):
    """The jobs that are yours now; none: there was nothing to do."""

    jobs: list[TakenJob]


class SettleRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """What became of jobs: one step for all of them."""

    outcomes: Annotated[list[Said], Meta(min_length=1, max_length=MOST)]


class ExtendRequest(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Leases to be kept, each until `lease` seconds from now."""

    leases: Annotated[list[Token], Meta(min_length=1, max_length=MOST)]
    lease: LeaseSeconds = 60.0


class Settled(Struct, frozen=True):
    """What was not applied; empty: everything was."""

    refused: list[RefusedLease]


_BOTH = {"required": ["delay", "at"], "properties": {"delay": {"type": "number"}, "at": {"type": "string"}}}

_RULES = {"properties": {"outcomes": {"items": {"not": _BOTH}}}}
"""A retry says one of the two: no type can say that."""

_TOKEN = "lqZlbWFpbHMHAADAwmABYZs"

_JOB = TakenJob(
    id=7,
    queue="emails",
    payload={"to": "anna@example.com"},
    created_at="2030-01-01T09:00:00.000Z",
    scheduled_at="2030-01-01T09:00:00.000Z",
    lease=_TOKEN,
    lease_until="2030-01-01T09:01:00.000Z",
)


@operation(
    "POST",
    "/api/v1/queues/{name}/take",
    GROUP,
    "Take jobs to run",
    scope="work",
    queues="path",
    description="Each job is yours until its lease ends: settle it before then, or extend it. Waits up to `wait` "
    "seconds for a first job. What you do not settle comes back by itself and goes to another worker.",
    path_example={"name": "emails"},
    errors=("conflict",),
    body_optional=True,
    example=TakeRequest(count=10, lease=60.0, wait=20.0, worker="mailer-1"),
    replies={200: Reply(description="The jobs; none if there was nothing to do.", type=Taken, example=Taken([_JOB]))},
)
async def take_jobs(call: Call[TakeRequest, Any, OwnQueuePath]) -> Taken:
    return Taken(await take_for(call, call.path.name))


@operation(
    "POST",
    "/api/v1/queues/{name}/settle",
    GROUP,
    "Say what became of jobs",
    scope="work",
    queues="path",
    description="All in one step. An outcome whose lease is not yours any more changes nothing and is given back in "
    "`refused`; the others count. If anything in the request cannot be used, nothing is settled.",
    path_example={"name": "emails"},
    errors=("conflict",),
    rules=_RULES,
    example=SettleRequest(
        [
            Finish(_TOKEN, result={"sent": True}),
            Again(_TOKEN, delay=30.0, reason="the mail server is busy"),
            GiveUp(_TOKEN, reason="no such address"),
            Fail(_TOKEN, error="TypeError: to is undefined"),
        ]
    ),
    replies={200: Reply(description="What was refused.", type=Settled, example=Settled([]))},
)
async def settle_jobs(call: Call[SettleRequest, Any, OwnQueuePath]) -> Settled:
    queue, store = call.path.name, call.app.storage
    check_workable(call.app, queue, 0)
    # Of the leases, the store itself refuses those that name a queue in which their job is not.
    said = [
        replace(one, then=tuple(await named_and_allowed(call, one.then, f"outcomes[{place}].then")))
        if isinstance(one, Finish) and one.then
        else one
        for place, one in enumerate(call.body.outcomes)
    ]
    tickets, outcomes = read_outcomes(call.app, queue, said)
    refused = await store.settle(await with_calls(call.app, store, tickets, outcomes))
    await _take_back_crashes(store, refused)
    return Settled(tell(refused, [one.lease for one in said], tickets) if refused else [])


@operation(
    "POST",
    "/api/v1/queues/{name}/extend",
    GROUP,
    "Keep jobs that still run",
    scope="work",
    queues="path",
    description="Each lease that is still yours ends `lease` seconds from now. Stop work on those in `refused`.",
    path_example={"name": "emails"},
    errors=("conflict",),
    example=ExtendRequest(leases=[_TOKEN], lease=60.0),
    replies={
        200: Reply(description="What was refused.", type=Settled, example=Settled([RefusedLease(_TOKEN, 7, "lost")]))
    },
)
async def extend_leases(call: Call[ExtendRequest, Any, OwnQueuePath]) -> Settled:
    queue, tokens = call.path.name, call.body.leases
    check_workable(call.app, queue, 0)
    tickets = read_leases(tokens, queue, "leases[{}]")
    refused = await call.app.storage.extend([ticket.lease for ticket in tickets], call.body.lease)
    await _take_back_crashes(call.app.storage, refused)
    return Settled(tell(refused, tokens, tickets) if refused else [])


async def _take_back_crashes(store: Store, refused: Sequence[Refused]) -> None:
    """A worker that asks about a lease that ended is alive: that end was no crash."""
    lost = [NotCrashed(one.lease.id, queue=one.lease.queue) for one in refused if one.why == "lost"]
    if lost:
        await store.change(lost)
