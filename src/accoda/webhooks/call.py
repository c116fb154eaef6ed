"""From a job that ends to the job that calls its webhook. Pure: workers put it into the step that ends the job."""

from __future__ import annotations

import msgspec

from accoda.envelope import Hook
from accoda.limits import allowed
from accoda.model import NewJob
from accoda.webhooks.body import bare, subject
from accoda.webhooks.records import BODY, KEEP_FOR, QUEUE, Call, Event, Facts

BESIDE = 1024
"""Bytes of a stored call, and of a message, beside the URL, the texts and the JSON in it; rounded up."""


def call_job(hook: Hook, event: Event, facts: Facts) -> NewJob:
    """The call that tells `hook` of a job's end.

    >>> call_job(Hook("https://example.com"), "job.done", Facts(id=7, queue="q", attempts=0, created_at=5)).key
    'msg_7_0_5_done'
    """
    message = message_id(event, facts)
    # The limit on payloads is the user's to set; whatever it is, the job must be able to end.
    room = min(BODY, allowed.payload)
    call = Call(url=hook.url, event=event, message=message, subject=subject(facts, room - BESIDE - len(hook.url)))
    data = msgspec.msgpack.encode(call)
    if len(data) > room:
        data = msgspec.msgpack.encode(msgspec.structs.replace(call, subject=bare(call.subject)))
    return NewJob(QUEUE, data, key=message, keep_for=KEEP_FOR)


def message_id(event: Event, facts: Facts) -> str:
    """The same for each try of a call, and for no other end of any job.

    A job that is revived and ends again has more attempts. When it was created is in it because a new store counts
    its ids from 1 again, and a receiver that remembers old messages would take the new ones for duplicates.
    """
    return f"msg_{facts.id}_{facts.attempts}_{facts.created_at}_{event.removeprefix('job.')}"


def read_call(data: bytes) -> Call | None:
    """What is stored; None where it cannot be read."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec's and Unicode's are both ValueErrors
        return None


_decoder = msgspec.msgpack.Decoder(Call)
