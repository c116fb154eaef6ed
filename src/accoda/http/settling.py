"""What a worker on the other end of HTTP says of its jobs, turned into outcomes: all of it is checked before any of it
is settled, and one bad token or value settles nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from accoda.errors import InvalidInput
from accoda.handler_options import Options
from accoda.http.leases import Ticket, failed, read_token
from accoda.http.taking import MOST, limits_for
from accoda.limits import COST, TEXT
from accoda.model import Bury, ById, Done, JobInfo, Outcome, Refused, Retry, Why, clean
from accoda.operations import moments
from accoda.operations.handlers import handler_of
from accoda.operations.new_jobs import NewJobRequest, Seconds, prepare
from accoda.payload import encode_result
from accoda.runtime.envelope_outcome import mask_for, with_call, with_dead_job
from accoda.runtime.handler import Handler
from accoda.storage.protocol import Store

if TYPE_CHECKING:
    from accoda.app import App

Token = Annotated[str, Meta(description="the `lease` of a job, as take gave it", extra_json_schema={"format": "lease"})]
Reason = Annotated[str, Meta(max_length=TEXT)]


class Finish(Struct, tag_field="do", tag="done", rename="camel", forbid_unknown_fields=True, frozen=True):
    """The job is finished. `then` is enqueued in the same step: if the one counts, so does the other. `result` is kept
    if the job has `keepFor`. With `waiters` (how many were seen) it is refused as grown if there are more by now."""

    lease: Token
    result: Any = None
    then: Annotated[tuple[NewJobRequest, ...], Meta(max_length=MOST)] = ()
    waiters: Annotated[int, Meta(ge=0, le=COST)] | None = None


class Again(Struct, tag_field="do", tag="retry", rename="camel", forbid_unknown_fields=True, frozen=True):
    """The job goes back, after `delay` seconds or at the moment `at`; now if neither is said.

    It is given back: that is no try, and no limit is looked at.
    """

    lease: Token
    delay: Seconds | None = None
    at: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    reason: Reason = ""


class GiveUp(Struct, tag_field="do", tag="bury", rename="camel", forbid_unknown_fields=True, frozen=True):
    """The job goes to the dead letters, with the reason."""

    lease: Token
    reason: Annotated[str, Meta(min_length=1, max_length=TEXT)]


class Fail(Struct, tag_field="do", tag="fail", rename="camel", forbid_unknown_fields=True, frozen=True):
    """The run failed: the queue's retry rule and limits decide whether the job goes back, and when."""

    lease: Token
    error: Reason


Said = Finish | Again | GiveUp | Fail


class RefusedLease(Struct, frozen=True):
    """What was not applied: the lease is `lost` (it ended, was settled before, or the job was deleted or replaced), the
    job was `cancelled` while it ran, or more wait for it than were seen (`grown`): look again, and settle again."""

    lease: str
    id: int
    why: Why


def read_outcomes(app: App, queue: str, said: Sequence[Said]) -> tuple[list[Ticket], list[Outcome]]:
    """The tickets of leases, and the outcome of each; or the first thing that is wrong, with its place."""
    tickets = read_leases([one.lease for one in said], queue, "outcomes[{}].lease")
    outcomes: list[Outcome] = []
    for place, (ticket, one) in enumerate(zip(tickets, said, strict=True)):
        try:
            outcomes.append(_outcome(app, ticket, one))
        except InvalidInput as error:
            problem = str(error).removeprefix(f"{error.field}: ")
            error.field = f"outcomes[{place}].{error.field}"
            error.args = (f"{error.field}: {problem}; nothing was settled",)
            raise
    return tickets, outcomes


def read_leases(tokens: Sequence[str], queue: str, field: str) -> list[Ticket]:
    """What tokens of one queue say. `field` is the pattern of their fields' names: "leases[{}]"."""
    tickets = [read_token(token, field.format(place)) for place, token in enumerate(tokens)]
    for place, ticket in enumerate(tickets):
        if ticket.queue != queue:
            problem = f"is a lease of the queue {ticket.queue}, not of {queue}; send it there"
            raise InvalidInput(field.format(place), problem)
    return tickets


def _outcome(app: App, ticket: Ticket, said: Said) -> Outcome:
    lease = ticket.lease
    match said:
        case Finish():
            result = None if said.result is None else encode_result(said.result)
            return Done(lease, prepare(app, said.then, "then") if said.then else (), result, said.waiters)
        case Again(delay=delay, at=None):
            return Retry(lease, delay or 0.0, reason=clean(said.reason), counts=False)
        case Again(delay=None, at=at):
            return Retry(lease, at=moments.read("at", at or ""), reason=clean(said.reason), counts=False)
        case Again():
            raise InvalidInput("at", "give either delay or at, not both")
        case GiveUp():
            return Bury(lease, clean(said.reason))
        case Fail():
            return failed(ticket, said.error, limits_for(app, ticket.queue, ticket.type))


async def with_calls(app: App, store: Store, tickets: Sequence[Ticket], outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes, as the envelopes of their jobs will have them: those few that have a say are read again.

    A job that was replaced between this look and the settlement has lost its lease, so an old call goes nowhere.
    """
    handlers = [handler_of(app, ticket.queue, ticket.type) for ticket in tickets]
    places = [
        place
        for place, (ticket, outcome, handler) in enumerate(zip(tickets, outcomes, handlers, strict=True))
        if ticket.marked or (handler is not None and not isinstance(outcome, Done) and _has_say(handler.options))
    ]
    if not places:
        return outcomes
    jobs = [look.job for look in await asyncio.gather(*(store.look(ById(tickets[place].id)) for place in places))]
    for place, job in zip(places, jobs, strict=True):
        if job is not None:
            outcomes[place] = _with_calls(app, handlers[place], job, outcomes[place])
    return outcomes


def _has_say(options: Options) -> bool:
    return bool(options.secret) or options.on_dead is not None


def _with_calls(app: App, handler: Handler[Any, Any, Any] | None, job: JobInfo, outcome: Outcome) -> Outcome:
    if handler is None:
        return with_call(outcome, job)
    secret, target = handler.options.secret, handler.options.on_dead
    outcome = with_call(outcome, job, secret, mask_for(job, secret, handler.codec))
    return outcome if target is None else with_dead_job(outcome, job, target, app.new_job)


def tell(refused: Sequence[Refused], tokens: Sequence[str], tickets: Sequence[Ticket]) -> list[RefusedLease]:
    """What was refused, by the tokens that the worker knows."""
    by_lease = {ticket.lease: token for ticket, token in zip(tickets, tokens, strict=True)}
    return [RefusedLease(by_lease[one.lease], one.lease.id, one.why) for one in refused]
