"""Work from any language: take jobs, say what became of them, keep them while they run. See docs/http-workers.md."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from accoda.http.call import Call
from accoda.http.operation import Operation, Reply
from accoda.http.resources.common import NAME_PATTERN, OwnQueuePath
from accoda.http.settling import (
    MOST,
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
from accoda.http.taking import TakenJob, check_workable, take_for
from accoda.limits import COST

GROUP = "Work"
LONGEST_LEASE = 86_400
LONGEST_POLL = 60

WorkerName = Annotated[str, Meta(pattern=NAME_PATTERN, description="who takes them: letters, digits, `_`, `.`, `-`")]
Lease = Annotated[float, Meta(ge=1, le=LONGEST_LEASE, description="seconds for which the jobs are yours")]


class TakeRequest(Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a worker asks for. `wait`: seconds to wait for a first job; `maxCost`: the most that all may cost together;
    `worker`: the name under which people see who has a job (without it, the token's)."""

    count: Annotated[int, Meta(ge=1, le=MOST)] = 1
    lease: Lease = 60.0
    wait: Annotated[float, Meta(ge=0, le=LONGEST_POLL)] = 0.0
    max_cost: Annotated[int, Meta(ge=0, le=COST)] | None = None
    worker: WorkerName | None = None


class Taken(Struct, frozen=True):
    """The jobs that are yours now; none: there was nothing to do."""

    jobs: list[TakenJob]


class SettleRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """What became of jobs: one step for all of them."""

    outcomes: Annotated[list[Said], Meta(min_length=1, max_length=MOST)]


class ExtendRequest(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Leases to be kept, each until `lease` seconds from now."""

    leases: Annotated[list[Token], Meta(min_length=1, max_length=MOST)]
    lease: Lease = 60.0


class Settled(Struct, frozen=True):
    """What was not applied; empty: everything was."""

    refused: list[RefusedLease]


async def take_jobs(call: Call[TakeRequest, Any, OwnQueuePath]) -> Taken:
    return Taken(await take_for(call, call.path.name))


async def settle_jobs(call: Call[SettleRequest, Any, OwnQueuePath]) -> Settled:
    queue, said, store = call.path.name, call.body.outcomes, call.app.storage
    check_workable(call.app, queue, 0)
    tickets, outcomes = read_outcomes(call.app, queue, said)
    refused = await store.settle(await with_calls(call.app, store, tickets, outcomes))
    return Settled(tell(refused, [one.lease for one in said], tickets) if refused else [])


async def extend_leases(call: Call[ExtendRequest, Any, OwnQueuePath]) -> Settled:
    queue, tokens = call.path.name, call.body.leases
    check_workable(call.app, queue, 0)
    tickets = read_leases(tokens, queue, "leases[{}]")
    refused = await call.app.storage.extend([ticket.lease for ticket in tickets], call.body.lease)
    return Settled(tell(refused, tokens, tickets) if refused else [])


_BOTH = {"required": ["delay", "at"], "properties": {"delay": {"type": "number"}, "at": {"type": "string"}}}
_RULES = {"allOf": [{"properties": {"outcomes": {"items": {"not": _BOTH}}}}]}
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

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/v1/queues/{name}/take",
        handler=take_jobs,
        group=GROUP,
        scope="work",
        summary="Take jobs to run",
        description=(
            "Each job is yours until its lease ends: settle it before, or extend it. Waits up to `wait` seconds for a "
            "first job. What you do not settle comes back by itself, and goes to somebody else."
        ),
        path_type=OwnQueuePath,
        path_example={"name": "emails"},
        errors=("conflict",),
        request=TakeRequest,
        body_optional=True,
        example=TakeRequest(count=10, lease=60.0, wait=20.0, worker="mailer-1"),
        replies={
            200: Reply(description="The jobs; none if there was nothing to do.", type=Taken, example=Taken([_JOB]))
        },
    ),
    Operation(
        method="POST",
        path="/api/v1/queues/{name}/settle",
        handler=settle_jobs,
        group=GROUP,
        scope="work",
        summary="Say what became of jobs",
        description=(
            "All in one step. An outcome whose lease is not yours any more changes nothing and is given back in "
            "`refused`; the others count. If anything in the request cannot be used, nothing is settled."
        ),
        path_type=OwnQueuePath,
        path_example={"name": "emails"},
        errors=("conflict",),
        request=SettleRequest,
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
    ),
    Operation(
        method="POST",
        path="/api/v1/queues/{name}/extend",
        handler=extend_leases,
        group=GROUP,
        scope="work",
        summary="Keep jobs that still run",
        description="Each lease that is still yours ends `lease` seconds from now. Stop work on those in `refused`.",
        path_type=OwnQueuePath,
        path_example={"name": "emails"},
        errors=("conflict",),
        request=ExtendRequest,
        example=ExtendRequest(leases=[_TOKEN], lease=60.0),
        replies={
            200: Reply(
                description="What was refused.", type=Settled, example=Settled([RefusedLease(_TOKEN, 7, "lost")])
            )
        },
    ),
)
