"""What every server is asked: how long a round trip takes, and the time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from accoda.operations.doctor.findings import Finding, note, ok, problem, warning

TIMES = 5
SLOW, VERY_SLOW = 0.02, 0.1
"""Seconds of a round trip."""
SKEW, LARGE_SKEW = 1000, 60_000
"""Milliseconds between the clocks."""

AskTime = Callable[[], Awaitable[int]]
"""Asks a server for its clock, in milliseconds."""


async def measure(ask_time: AskTime) -> list[Finding]:
    """Ask a few times; the quickest answer counts."""
    best, skew = float("inf"), 0
    for _ in range(TIMES):
        sent, began = time.time(), time.perf_counter()
        theirs = await ask_time()
        took = time.perf_counter() - began
        if took < best:
            best, skew = took, round(theirs - (sent + took / 2) * 1000)
    return [round_trip(best), clock_skew(skew, best)]


def round_trip(seconds: float) -> Finding:
    """A worker makes about two round trips for each batch."""
    found = f"answers in {seconds * 1000:.{2 if seconds < 0.001 else 1}f} ms"
    if seconds >= VERY_SLOW:
        return warning("round trip", found, "run workers nearer to the store, or raise `batch` of small jobs")
    if seconds >= SLOW:
        return note("round trip", found, "a batch costs two of these: raise `batch` of small jobs")
    return ok("round trip", found)


def clock_skew(milliseconds: int, round_trip: float) -> Finding:
    """The store's clock decides when a job starts. This machine's clock only matters for times that people write."""
    # The store read its clock at some moment of the round trip: so much is unknown.
    sure = max(0, abs(milliseconds) - round(round_trip * 500) - 1)
    if sure < SKEW:
        return ok("clock", "the store's agrees with this machine's, within 1 s")
    found = f"the store's clock is {sure / 1000:.1f} s {'ahead of' if milliseconds > 0 else 'behind'} this machine's"
    advice = "jobs start by the store's clock; set both by NTP (chronyc tracking, timedatectl set-ntp true)"
    return problem("clock", found, advice) if sure >= LARGE_SKEW else warning("clock", found, advice)
