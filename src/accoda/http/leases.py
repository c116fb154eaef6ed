"""Leases as workers of other languages carry them, and what such a worker says of its jobs turned into outcomes.

Pure functions; `work.py` calls the store with what they give.

A token is base64url of a small record (queue, id, attempts, taken_at, …) and a checksum. It is opaque but no secret:
the checksum catches typing errors; the scope `work` decides who may settle.
"""

from __future__ import annotations

import binascii
from zlib import crc32

import msgspec
from msgspec import Struct

from accoda.envelope import JobMetadata
from accoda.errors import InvalidInput, RemoteError
from accoda.model import Bury, Job, Lease, Outcome, Retry, clean
from accoda.retry import Failed, Limits, decide, describe

LONGEST_TOKEN = 1600
"""Characters; the longest queue name and type and numbers of 64 bits fit in."""
_CHECK = 4


class Ticket(Struct, frozen=True, array_like=True, gc=False):
    """What a token says: the lease, and what `fail` must know of the job without reading it again.

    `marked`: its envelope matters when the job ends (a webhook, secret fields), so it is read again before that.
    """

    queue: str
    id: int
    attempts: int
    taken_at: int
    tries: int = 0
    max_attempts: int | None = None
    marked: bool = False
    type: str | None = None

    @property
    def lease(self) -> Lease:
        return Lease(self.queue, self.id, self.attempts, self.taken_at)


def token_of(job: Job, extras: JobMetadata) -> str:
    """The token of a job that was just taken."""
    marked = extras.hook is not None or bool(extras.secret)
    lease, most = job.lease, extras.max_attempts
    ticket = Ticket(job.queue, job.id, job.attempts, lease.taken_at, job.tries, most, marked, extras.type)
    record = _encoder.encode(ticket)
    return _text(record + crc32(record).to_bytes(_CHECK, "big")).decode("ascii")


def read_token(token: str, field: str) -> Ticket:
    """What a token says, or bad input with the name of the field that it stood in."""
    try:
        if len(token) > LONGEST_TOKEN:
            raise ValueError
        text = token.encode("ascii")
        data = binascii.a2b_base64(text.translate(_FROM_URL) + b"=" * (-len(text) % 4))
        record, check = data[:-_CHECK], data[-_CHECK:]
        # A token has one spelling: base64 leaves bits of the last sign unused, and skips signs that are not its own.
        if crc32(record).to_bytes(_CHECK, "big") != check or _text(data) != text:
            raise ValueError
        return _decoder.decode(record)
    except ValueError:  # msgspec's, binascii's and Unicode's are all ValueErrors
        raise InvalidInput(
            field, f"is no lease that take gave: {token!r:.40}; send back the text of `lease` as it came"
        ) from None


def failed(ticket: Ticket, error: str, limits: Limits) -> Outcome:
    """What becomes of a job whose run failed elsewhere: the queue's rule and limits decide, as for a Python handler.

    The reason is the worker's own text: the exception class that carries it through the rule is ours and says nothing.
    """
    raised = RemoteError()
    raised.text = error
    job = Job(ticket.id, ticket.queue, b"", 0.0, 0, None, ticket.attempts, 0, 0, None, 0, ticket.lease, ticket.tries)
    outcome = decide(job, Failed(raised), own_limits(limits, ticket.max_attempts))
    if not isinstance(outcome, Retry | Bury):  # a failure never ends well
        raise AssertionError(outcome)
    reason = outcome.reason.replace(describe(raised), clean(error) or "failed without a word", 1)
    return msgspec.structs.replace(outcome, reason=reason)


def own_limits(limits: Limits, max_attempts: int | None) -> Limits:
    """The limits of a job: its own number of attempts wins over its queue's."""
    return limits if max_attempts is None else msgspec.structs.replace(limits, max_attempts=max_attempts)


def _text(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False).translate(_TO_URL, b"=")


_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Ticket)
