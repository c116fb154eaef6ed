"""What a job's envelope says of its end: its own limit of attempts, and the webhook to call."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from accoda.envelope import MARK, secret_texts, unwrap, without_secrets
from accoda.model import Bury, Done, Job, JobInfo, Outcome
from accoda.payload import decode
from accoda.retry import Limits
from accoda.webhooks.call import Facts, call_job


def limits_of(job: Job | JobInfo, limits: Limits) -> Limits:
    """The limits of its queue, with the job's own of attempts."""
    data = job.data
    if not data or data[0] != MARK:
        return limits
    most = unwrap(data)[0].max_attempts
    return limits if most is None else replace(limits, max_attempts=most)


def with_call(outcome: Outcome, job: Job | JobInfo, secret: Sequence[str] = ()) -> Outcome:
    """The outcome, with the call that the job asked for among its follow-ups, and no secret in its reason.

    So the call is stored in the same atomic step in which the job ends: not before, and never forgotten. `secret` are
    fields that the handler calls so, beside those that the job itself names.
    """
    metadata, payload = unwrap(job.data)
    names = tuple(dict.fromkeys((*metadata.secret, *secret)))
    if names and not isinstance(outcome, Done):
        outcome = replace(outcome, reason=_clean(outcome.reason, payload, names))
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
        secret=names,
    )
    call = call_job(metadata.hook, "job.done" if done else "job.dead", facts)
    return replace(outcome, then=(*outcome.then, call))


def _clean(reason: str, payload: bytes, names: Sequence[str]) -> str:
    """A reason is the text of an error, and may quote what is secret."""
    try:
        return without_secrets(reason, secret_texts(decode(payload), names))
    except (ValueError, RecursionError):  # no msgpack: it has no fields that could be quoted
        return reason
