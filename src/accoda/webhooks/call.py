"""From a job that ends to the stored call that tells its webhook, and to the message that is sent. Pure.

{"type": "job.done", "timestamp": "2030-01-31T09:00:00.000Z",
 "data": {"id": 7, "queue": "emails", "name": null, "state": "done", "attempts": 0, "createdAt": …, "endedAt": …,
          "result": …, "payload": …}}

Workers enqueue the call in the atomic step that ends the job. Secrets are removed before it is stored.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from accoda.envelope import Hook, has_names, hidden
from accoda.limits import allowed
from accoda.masking import NO_MASK, Mask, mask_of
from accoda.model import NewJob
from accoda.payload import Codec
from accoda.times import rfc3339

QUEUE = "accoda.webhooks"
"""The system queue whose jobs are calls."""
KEEP_FOR = 7 * 24 * 3600.0
"""Seconds for which a delivered call is kept: the finished calls are the delivery log."""
BODY = 256 * 1024
"""The largest message, in bytes."""
REASON = 2000
"""Characters of a reason that are sent."""
ANSWER = 500
"""Characters of an answer that are kept."""
OVERHEAD = 1024
"""Bytes of a stored call or a message besides the URL, the texts and the JSON in it; rounded up."""

Event = Literal["job.done", "job.dead"]


class Ended(Struct, frozen=True, kw_only=True):
    """A job that has ended. Without `ended_at`, it ended when its call was stored: that is one atomic step, at the
    moment that the storage's clock gave the call."""

    id: int
    queue: str
    attempts: int
    created_at: int
    ended_at: int | None = None
    name: str | None = None
    payload: bytes | None = None
    result: bytes | None = None
    reason: str | None = None


class Facts(Ended, frozen=True, kw_only=True):
    """What a worker knows of the job: `payload` and `result` are msgpack as stored; `secret` names fields of them that
    must not be sent."""

    secret: tuple[str, ...] = ()


class Subject(Ended, frozen=True, kw_only=True, omit_defaults=True):
    """What a message says of the job: `payload` and `result` are JSON without secrets."""

    notes: tuple[str, ...] = ()


class Call(Struct, frozen=True, kw_only=True):
    """The data of a call's job. `message` is the same for every try, so that a receiver can drop duplicates."""

    url: str
    event: Event
    message: str
    subject: Subject


class Delivered(Struct, frozen=True):
    """The result of a delivered call: the status, how long it took, when, and how the answer began."""

    status: int
    ms: int
    at: int
    answer: str = ""


def call_job(hook: Hook, event: Event, facts: Facts) -> NewJob:
    """The call that tells `hook` of a job's end.

    >>> call_job(Hook("https://example.com"), "job.done", Facts(id=7, queue="q", attempts=0, created_at=5)).key
    'msg_7_0_5_done'
    """
    message = message_id(event, facts)
    # The limit on payloads is configurable; however small it is, the job must be able to end.
    most = min(BODY, allowed.payload)
    call = Call(url=hook.url, event=event, message=message, subject=_subject(facts, most - OVERHEAD - len(hook.url)))
    data = msgspec.msgpack.encode(call)
    if len(data) > most:
        note = "name, reason, result and payload left out: the store takes no larger jobs"
        bare = replace(call.subject, name=None, payload=None, result=None, reason=None, notes=(note,))
        data = msgspec.msgpack.encode(replace(call, subject=bare))
    return NewJob(QUEUE, data, key=message, keep_for=KEEP_FOR)


def message_id(event: Event, facts: Facts) -> str:
    """The same for every try of a call, and different for every end of every job.

    A job that is revived and ends again has more attempts. The creation time is included because a new store starts its
    ids at 1 again, and a receiver that remembers old messages would drop the new ones as duplicates.
    """
    return f"msg_{facts.id}_{facts.attempts}_{facts.created_at}_{event.removeprefix('job.')}"


def read_call(data: bytes) -> Call | None:
    """The stored call; None if it cannot be read."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec's and Unicode's errors are both ValueErrors
        return None


class _Data(Struct, rename="camel", kw_only=True):
    id: int
    queue: str
    name: str | None
    state: Literal["done", "dead"]
    attempts: int
    created_at: str
    ended_at: str
    result: Raw | UnsetType | None = UNSET
    reason: str | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET


class _Body(Struct):
    type: Event
    timestamp: str
    data: _Data


def body(call: Call, stored_at: int) -> bytes:
    """The message of a call that was stored at that moment. Every try sends the same bytes."""
    about = call.subject
    ended_at = rfc3339(stored_at if about.ended_at is None else about.ended_at)
    done = call.event == "job.done"
    data = _Data(
        id=about.id,
        queue=about.queue,
        name=about.name,
        state="done" if done else "dead",
        attempts=about.attempts,
        created_at=rfc3339(about.created_at),
        ended_at=ended_at,
        result=(UNSET if not done else None if about.result is None else Raw(about.result)),
        reason=UNSET if about.reason is None or done else about.reason,
        payload=UNSET if about.payload is None else Raw(about.payload),
        notes=about.notes or UNSET,
    )
    return msgspec.json.encode(_Body(call.event, ended_at, data))


def _subject(facts: Facts, most: int) -> Subject:
    """What the message says of a job, in about `most` bytes: the result is left out first, then the payload."""
    notes: list[str] = []
    mask = _mask(facts)
    result = _json("result", facts.result, facts.secret, notes, mask or NO_MASK)
    if mask is None and result is not None:
        notes.append(f"result left out: {_UNKNOWN}")
        result = None
    payload = _json("payload", facts.payload, facts.secret, notes)
    reason = facts.reason
    if reason is not None:
        # Masked before it is cut, because half of a secret is still one.
        reason = f"not told: {_UNKNOWN}" if mask is None else mask.text(reason)[:REASON]
    texts = 4 * len(reason or "") + 4 * len(facts.name or "")
    if result is not None and texts + len(result) + len(payload or b"") > most:
        notes.append(_too_large("result", len(result), most))
        result = None
    if payload is not None and texts + len(payload) > most:
        notes.append(_too_large("payload", len(payload), most))
        payload = None
    return Subject(
        id=facts.id,
        queue=facts.queue,
        attempts=facts.attempts,
        created_at=facts.created_at,
        ended_at=facts.ended_at,
        name=facts.name,
        payload=payload,
        result=result,
        reason=reason,
        notes=tuple(notes),
    )


def _json(
    field: str, data: bytes | None, secret: tuple[str, ...], notes: list[str], mask: Mask = NO_MASK
) -> bytes | None:
    """A stored value as JSON without its secrets; None, and a note, if it cannot be written so."""
    if data is None:
        return None
    if len(data) > 2 * BODY:  # not worth decoding: JSON is hardly ever half as long as msgpack
        notes.append(_too_large(field, len(data), BODY))
        return None
    try:
        value = _plain.decode(data)
        if secret and not has_names(value) and field == "payload":
            notes.append("payload left out: some of its fields are secret, and in this form its fields have no names")
            return None
        found = msgspec.json.encode(hidden(value, secret))
        # Hidden a second time because a path names keys as text, and some keys become text only in JSON.
        return msgspec.json.encode(mask.value(hidden(msgspec.json.decode(found), secret))) if secret else found
    except Exception as error:  # whatever is stored there, the job must end and its call must go out
        notes.append(f"{field} left out: it cannot be written as JSON ({type(error).__name__})")
        return None


def _mask(facts: Facts) -> Mask | None:
    """The mask of the job's secrets; None: they are not known."""
    try:
        return mask_of(facts.payload or b"", facts.secret)
    except Exception:  # whatever is stored there, the job must end and its call must go out
        return None


def _too_large(field: str, size: int, most: int) -> str:
    return f"{field} left out: it has {size:,} bytes, and a message at most {most:,}"


_UNKNOWN = "the payload has secret fields and cannot be read"
_decoder = msgspec.msgpack.Decoder(Call)
_plain: Codec[Any] = Codec(Any)
