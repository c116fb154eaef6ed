"""What becomes of a call after a try. Pure functions; no I/O.

2xx                              delivered
410                              dead at once: the receiver says that it is gone for good
an address or URL that is refused  dead at once: the next try would be refused as well
any other answer, none, no name  tried again later, ten times in all over about a day; then dead
"""

from __future__ import annotations

import random
from email.utils import parsedate_to_datetime

import msgspec
from msgspec import Struct

from accoda.model import Bury, Done, Job, Outcome, Retry, clean
from accoda.webhooks.records import Delivered

TRIES = 10
FIRST, FACTOR = 5.0, 3.2
JITTER = 0.2
LONGEST_WISH = 3600.0
"""Seconds: how long a receiver may put us off with `Retry-After`."""


class Answer(Struct, frozen=True):
    """A receiver answered. `text` is how the answer began; `location` is where a redirect would lead."""

    status: int
    ms: int
    text: str = ""
    reason: str = ""
    retry_after: str | None = None
    location: str | None = None


class NoAnswer(Struct, frozen=True):
    """There was none: no name, no connection, no time."""

    reason: str


class Refusal(Struct, frozen=True):
    """The call was not made, and will never be."""

    reason: str


Attempt = Answer | NoAnswer | Refusal


def pause(tries: int) -> float:
    """Seconds after so many tries that failed, before chance is added.

    >>> [round(pause(tries)) for tries in range(1, TRIES)]
    [5, 16, 51, 164, 524, 1678, 5369, 17180, 54976]
    """
    return FIRST * FACTOR ** (min(tries, 32) - 1)


def tries_before(attempts: int, fresh_at: int, crashes: int) -> int:
    """How many tries a call has had since it began afresh: leases that ended by themselves are none of the receiver's
    doing. A call that had to wait for its turn comes back that way too."""
    return max(0, attempts - fresh_at - crashes)


def decide(job: Job, attempt: Attempt, now: int, chance: float | None = None) -> Outcome:
    """The outcome of a call's job. `chance`, from 0 to 1, is drawn unless it is given."""
    if isinstance(attempt, Answer) and 200 <= attempt.status < 300:
        result = Delivered(attempt.status, attempt.ms, now, attempt.text)
        return Done(job.lease, result=msgspec.msgpack.encode(result))
    reason = clean(why(attempt))
    if isinstance(attempt, Refusal) or (isinstance(attempt, Answer) and attempt.status == 410):
        return Bury(job.lease, reason)
    tries = tries_before(job.attempts, job.fresh_at, job.crashes) + 1
    if tries >= TRIES:
        return Bury(job.lease, f"{reason} (given up after {tries} tries)")
    spread = 1 + JITTER * (2 * (random.random() if chance is None else chance) - 1)
    wish = retry_after(attempt.retry_after, now) if isinstance(attempt, Answer) else 0.0
    # Never sooner than the receiver asked for, and never sooner than the tries would otherwise be spent.
    return Retry(job.lease, delay=max(pause(tries) * spread, wish), reason=reason)


def why(attempt: Attempt) -> str:
    """What went wrong, in a line. `status_of` reads it back."""
    if not isinstance(attempt, Answer):
        return attempt.reason
    line = f"HTTP {attempt.status} {attempt.reason}".rstrip()
    if 300 <= attempt.status < 400:
        leads = f" to {attempt.location}" if attempt.location else ""
        return f"{line}: a redirect{leads}, and redirects are not followed; give the final URL"
    if attempt.status == 410:
        line += ": the receiver wants no more calls"
    return f"{line}: {attempt.text}" if attempt.text else line


def status_of(reason: str | None) -> int | None:
    """The status that a reason tells of.

    >>> status_of(why(Answer(503, 12, reason="Service Unavailable"))), status_of("no connection")
    (503, None)
    """
    if reason is None or not reason.startswith("HTTP ") or not reason[5:8].isdigit():
        return None
    return int(reason[5:8])


def retry_after(header: str | None, now: int) -> float:
    """The seconds that a receiver asks for, up to an hour; 0 where it asks for nothing that can be understood.

    >>> retry_after("120", 0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0), retry_after("soon", 0)
    (120.0, 60.0, 0.0)
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return min(LONGEST_WISH, float(text[:10]))
    try:
        at = parsedate_to_datetime(text).timestamp() * 1000
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
    return min(LONGEST_WISH, max(0.0, (at - now) / 1000))
