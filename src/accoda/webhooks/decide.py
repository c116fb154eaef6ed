"""What becomes of a call after a try. Pure.

2xx                          delivered
410                          dead at once: the receiver says that it is gone for good
a refused address or URL     dead at once: the next try would be refused as well
any other answer, or none    tried again later, ten times in all over about a day; then dead
"""

from __future__ import annotations

import random
from email.utils import parsedate_to_datetime

import msgspec
from msgspec import Struct

from accoda.model import Bury, Done, Job, Outcome, Retry, clean
from accoda.webhooks.call import Delivered

TRIES = 10
FIRST, FACTOR = 5.0, 3.2
JITTER = 0.2
LONGEST_RETRY_AFTER = 3600.0
"""Seconds by which `Retry-After` can delay the next try at most."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One try. Without `status` there was no answer, and `reason` says why; `final`: the call can never be made.

    `text` is how the answer began, `reason` its reason phrase; `location` is where a redirect would lead.
    """

    reason: str = ""
    final: bool = False
    status: int | None = None
    ms: int = 0
    text: str = ""
    retry_after: str | None = None
    location: str | None = None

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def pause(tries: int) -> float:
    """Seconds to wait after that many failed tries, before jitter.

    >>> [round(pause(tries)) for tries in range(1, TRIES)]
    [5, 16, 51, 164, 524, 1678, 5369, 17180, 54976]
    """
    return FIRST * FACTOR ** (min(tries, 32) - 1)


def decide(job: Job, attempt: Attempt, now: int, chance: float | None = None) -> Outcome:
    """The outcome of a call's job. `chance`, from 0 to 1, is random unless it is given."""
    if attempt.delivered:
        result = Delivered(attempt.status or 0, attempt.ms, now, attempt.text)
        return Done(job.lease, result=msgspec.msgpack.encode(result))
    reason = clean(why(attempt))
    if attempt.final or attempt.status == 410:
        return Bury(job.lease, reason)
    tries = job.tries + 1
    if tries >= TRIES:
        return Bury(job.lease, f"{reason} (given up after {tries} tries)")
    spread = 1 + JITTER * (2 * (random.random() if chance is None else chance) - 1)
    asked = retry_after(attempt.retry_after, now)
    # Retry-After can only make the pause longer: a receiver must not use up its tries faster than planned.
    return Retry(job.lease, delay=max(pause(tries) * spread, asked), reason=reason)


def why(attempt: Attempt) -> str:
    """What went wrong, in one line. `status_of` reads the status back from it."""
    if attempt.status is None:
        return attempt.reason
    line = f"HTTP {attempt.status} {attempt.reason}".rstrip()
    if 300 <= attempt.status < 400:
        leads = f" to {attempt.location}" if attempt.location else ""
        return f"{line}: a redirect{leads}, and redirects are not followed; give the final URL"
    if attempt.status == 410:
        line += ": the receiver wants no more calls"
    return f"{line}: {attempt.text}" if attempt.text else line


def status_of(reason: str | None) -> int | None:
    """The HTTP status in a reason.

    >>> status_of(why(Attempt(status=503, reason="Service Unavailable"))), status_of("no connection")
    (503, None)
    """
    if reason is None or not reason.startswith("HTTP ") or not reason[5:8].isdigit():
        return None
    return int(reason[5:8])


def retry_after(header: str | None, now: int) -> float:
    """The seconds that a receiver asks for, up to an hour; 0 if the header is missing or cannot be read.

    >>> retry_after("120", 0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 0), retry_after("soon", 0)
    (120.0, 60.0, 0.0)
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return min(LONGEST_RETRY_AFTER, float(text[:10]))
    try:
        at = parsedate_to_datetime(text).timestamp() * 1000
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0
    return min(LONGEST_RETRY_AFTER, max(0.0, (at - now) / 1000))
