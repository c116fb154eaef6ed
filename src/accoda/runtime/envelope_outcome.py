"""What a job's envelope says of its end: its own limit of attempts, and the webhook to call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accoda.enqueue import EnqueueOptions
from accoda.envelope import MARK, unwrap, wrap
from accoda.handler_options import JobTarget
from accoda.masking import NO_MASK, Mask, mask_of
from accoda.model import Bury, Done, Job, JobInfo, NewJob, Outcome
from accoda.payload import Codec, UnreadablePayload, decode
from accoda.retry import Limits
from accoda.webhooks.call import Facts, call_job

MakeJob = Callable[[str, object, EnqueueOptions], NewJob]


def limits_of(job: Job | JobInfo, limits: Limits) -> Limits:
    """The limits of its queue, with the job's own of attempts."""
    data = job.data
    if not data or data[0] != MARK:
        return limits
    most = unwrap(data)[0].max_attempts
    return limits if most is None else replace(limits, max_attempts=most)


def mask_for(job: Job | JobInfo, secret: Sequence[str] = (), codec: Codec[Any] | None = None) -> Mask:
    """The mask of a job's secrets. `secret` are fields that the handler calls so, beside those that the job names."""
    metadata, payload = unwrap(job.data)
    try:
        return mask_of(payload, tuple(dict.fromkeys((*metadata.secret, *secret))), codec)
    except UnreadablePayload:  # no msgpack: it has no fields that could be quoted
        return NO_MASK


def with_call(outcome: Outcome, job: Job | JobInfo, secret: Sequence[str] = (), mask: Mask | None = None) -> Outcome:
    """The outcome, with the call that the job asked for among its follow-ups, and no secret in its reason.

    So the call is stored in the same atomic step in which the job ends: not before, and never forgotten. `mask` is that
    of `mask_for`, if the caller has it.
    """
    metadata, payload = unwrap(job.data)
    if not isinstance(outcome, Done) and outcome.reason:
        outcome = replace(outcome, reason=(mask_for(job, secret) if mask is None else mask).text(outcome.reason))
    if not isinstance(outcome, (Done, Bury)):
        return outcome
    done = isinstance(outcome, Done)
    if metadata.hook is None or ("done" if done else "dead") not in metadata.hook.on:
        return outcome
    facts = Facts(
        id=job.id,
        queue=job.queue,
        attempts=job.attempts,
        created_at=job.created_at,
        name=metadata.name,
        payload=payload,
        result=outcome.result if isinstance(outcome, Done) else None,
        reason=None if isinstance(outcome, Done) else outcome.reason,
        secret=tuple(dict.fromkeys((*metadata.secret, *secret))),
    )
    call = call_job(metadata.hook, "job.done" if done else "job.dead", facts)
    return replace(outcome, then=(*outcome.then, call))


class DeadJob(Struct, frozen=True):
    """The payload of a job that `on_dead` makes: what was buried, and why. `payload` is of plain values; None where it
    cannot be read. `tries` is how many times its handler had failed before the run that buried it."""

    id: int
    queue: str
    reason: str
    payload: Any = None
    type: str | None = None
    tries: int = 0
    headers: dict[str, str] = {}


def with_dead_job(outcome: Outcome, job: Job | JobInfo, target: JobTarget, make_job: MakeJob) -> Outcome:
    """The outcome; if it buries the job, with the job that its handler's `on_dead` asks for among its follow-ups.

    What is secret in the payload is secret in the new job as well.
    """
    if not isinstance(outcome, Bury):
        return outcome
    metadata, data = unwrap(job.data)
    try:
        payload = decode(data)
    except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
        payload = None
    dead = DeadJob(job.id, job.queue, outcome.reason, payload, metadata.type, job.tries, metadata.headers)
    new = make_job(target.queue, dead, {"type": target.type})
    if metadata.secret:
        theirs, content = unwrap(new.data)
        secret = tuple(dict.fromkeys((*theirs.secret, *(f"payload.{name}" for name in metadata.secret))))
        new = replace(new, data=wrap(content, replace(theirs, secret=secret)))
    return replace(outcome, then=(*outcome.then, new))
