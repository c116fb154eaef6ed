"""What is known of a call: the facts that it tells, the record that is stored, and what came of it. No I/O here."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

QUEUE = "accoda.webhooks"
"""The system queue whose jobs are calls."""
KEEP_FOR = 7 * 24 * 3600.0
"""Seconds that a delivered call is kept: the finished calls are the delivery log."""
BODY = 256 * 1024
"""Bytes of a message at most."""
REASON = 2000
"""Characters of a reason that are sent."""
ANSWER = 500
"""Characters of an answer that are kept."""

Event = Literal["job.done", "job.dead"]


class Ended(Struct, frozen=True, kw_only=True):
    """A job that has ended. Without `ended_at`, it ended when its call was stored: that is one atomic step, and the
    storage's clock says when."""

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
    """What a worker knows of it: `payload` and `result` are msgpack as it is stored; `secret` names the fields of them
    that nobody is shown."""

    secret: tuple[str, ...] = ()


class Subject(Ended, frozen=True, kw_only=True, omit_defaults=True):
    """What a message says of it, as it is stored: `payload` and `result` are JSON, and hold no secrets."""

    notes: tuple[str, ...] = ()


class Call(Struct, frozen=True, kw_only=True):
    """The data of a call's job. `message` is the same at each try, so that a receiver can drop what it has already."""

    url: str
    event: Event
    message: str
    subject: Subject


class Delivered(Struct, frozen=True):
    """The result of a call that got through: the status, how long it took, when, and how the answer began."""

    status: int
    ms: int
    at: int
    answer: str = ""
