"""The message: what is said of a job, without its secrets, in a bounded size. Pure.

{"type": "job.done", "timestamp": "2030-01-31T09:00:00.000Z",
 "data": {"id": 7, "queue": "emails", "name": null, "state": "done", "attempts": 0, "createdAt": …, "endedAt": …,
          "result": …, "payload": …}}
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from accoda.envelope import has_names, hidden, secret_texts, without_secrets
from accoda.payload import Codec
from accoda.webhooks.records import BODY, REASON, Call, Event, Facts, Subject


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
    """The message of a call whose job was stored at that moment. The same bytes at each try."""
    about = call.subject
    ended_at = moment(stored_at if about.ended_at is None else about.ended_at)
    done = call.event == "job.done"
    data = _Data(
        id=about.id,
        queue=about.queue,
        name=about.name,
        state="done" if done else "dead",
        attempts=about.attempts,
        created_at=moment(about.created_at),
        ended_at=ended_at,
        result=(UNSET if not done else None if about.result is None else Raw(about.result)),
        reason=UNSET if about.reason is None or done else about.reason,
        payload=UNSET if about.payload is None else Raw(about.payload),
        notes=about.notes or UNSET,
    )
    return msgspec.json.encode(_Body(call.event, ended_at, data))


def subject(facts: Facts, room: int = BODY) -> Subject:
    """What is told of a job, in at most about `room` bytes: the result gives way first, then the payload."""
    notes: list[str] = []
    result = _json("result", facts.result, facts.secret, notes)
    payload = _json("payload", facts.payload, facts.secret, notes)
    reason = _reason(facts)
    spent = 4 * len(reason or "") + 4 * len(facts.name or "")
    if result is not None and spent + len(result) + len(payload or b"") > room:
        notes.append(_too_large("result", len(result), room))
        result = None
    if payload is not None and spent + len(payload) > room:
        notes.append(_too_large("payload", len(payload), room))
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


def bare(about: Subject) -> Subject:
    """Only what every message has: for a store that takes no more."""
    note = "name, reason, result and payload left out: the store takes no larger jobs"
    return replace(about, name=None, payload=None, result=None, reason=None, notes=(note,))


def moment(at: int) -> str:
    """RFC 3339 with milliseconds.

    >>> moment(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    try:
        found = datetime.fromtimestamp(at // 1000, UTC)
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        found = datetime.max
    return f"{found:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def _json(field: str, data: bytes | None, secret: tuple[str, ...], notes: list[str]) -> bytes | None:
    """A stored value as JSON, without what is secret; None, and a note, where it cannot be told."""
    if data is None:
        return None
    if len(data) > 2 * BODY:  # not worth the decoding: JSON is hardly ever half as long as msgpack
        notes.append(_too_large(field, len(data), BODY))
        return None
    try:
        value = _plain.decode(data)
        if secret and not has_names(value) and field == "payload":
            notes.append("payload left out: some fields of it are secret, and in this form it has no names of fields")
            return None
        found = msgspec.json.encode(hidden(value, secret))
        # Once more where it matters, because a path names keys as text, and some are text only in JSON.
        return msgspec.json.encode(hidden(msgspec.json.decode(found), secret)) if secret else found
    except Exception as error:  # whatever is stored there: a job must end, and its call go out, all the same
        notes.append(f"{field} left out: it cannot be written as JSON ({type(error).__name__})")
        return None


def _reason(facts: Facts) -> str | None:
    """Why the job is dead, without the secrets that an error may quote. Cleaned before it is cut: half of a secret is
    still one."""
    reason = facts.reason
    if reason and facts.secret and facts.payload:
        try:
            value = _plain.decode(facts.payload)
            # Without names of fields, any value in it may be a secret one.
            found = secret_texts(value, facts.secret) if has_names(value) else secret_texts({"all": value}, ["all"])
            reason = without_secrets(reason, found)
        except Exception:  # nobody can tell what is secret in it
            reason = "not told: the payload has secret fields and cannot be read"
    return None if reason is None else reason[:REASON]


def _too_large(field: str, size: int, room: int) -> str:
    return f"{field} left out: it has {size:,} bytes, and a message at most {room:,}"


_plain: Codec[Any] = Codec(Any)
