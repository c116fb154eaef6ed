"""`LogMonitor`: one line for a batch, and not thousands a second.

A batch in which all went well is one line; more of them in the same second, for the same queue, become one line with
their sum when the second is over. A batch in which something failed is always a line of its own, and at level DEBUG
every batch is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from accoda.model import Bury, Outcome
from accoda.runtime.events import BatchReport
from accoda.runtime.logs.text import first_line, plural, short
from accoda.runtime.metrics.monitor import done_jobs

batches = logging.getLogger("accoda.batch")
worker = logging.getLogger("accoda.worker")

MAX_IDS = 10
MAX_REASONS = 3
MAX_FAILED = 100


class LogMonitor:
    """Writes what a worker tells. Called on the worker's loop, as every monitor; `window` is the second of above."""

    def __init__(self, *, window: float = 1.0, now: Callable[[], float] = time.monotonic) -> None:
        self._window = window
        self._now = now
        self._running: int | None = None
        self._windows: dict[str, _Window] = {}

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None:
        if batches.isEnabledFor(logging.DEBUG):
            extra = {"queue": queue, "queue_num": number, "jobs": jobs}
            batches.debug("%s started", plural(jobs, "job"), extra=extra)

    def batch_ended(self, report: BatchReport) -> None:
        if report.failed or report.stats.errors or report.stats.lost:
            batches.warning("%s", describe(report), extra=fields(report))
        elif batches.isEnabledFor(logging.DEBUG):
            batches.info("%s", describe(report), extra=fields(report))
        elif batches.isEnabledFor(logging.INFO):
            self._went_well(report)

    def processors_changed(self, running: int) -> None:
        if not running:
            self.flush()
        if running == self._running:  # a worker may say it again; one line is enough
            return
        self._running = running
        worker.info("%s", f"{plural(running, 'processor')} running", extra={"processors": running})

    def flush(self) -> None:
        """Write what is held back: at the end, so that the last batches are not missing."""
        for window in self._windows.values():
            self._write(window)

    def _went_well(self, report: BatchReport) -> None:
        now = self._now()
        window = self._windows.get(report.queue)
        if window is None:
            window = self._windows[report.queue] = _Window(-self._window)
        window.add(report)
        if now - window.began >= self._window:
            self._write(window)
        elif window.timer is None:
            window.timer = self._wake(window, window.began + self._window - now)

    def _wake(self, window: _Window, delay: float) -> asyncio.TimerHandle | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not on a loop: the next batch, or flush, writes it
            return None
        return loop.call_later(delay, self._write, window)

    def _write(self, window: _Window) -> None:
        now = self._now()
        if window.timer is not None:
            window.timer.cancel()
            window.timer = None
        if window.last is not None and window.batches == 1:
            batches.info("%s", describe(window.last), extra=fields(window.last))
        elif window.last is not None:
            batches.info("%s", window.describe(now - window.began), extra=window.fields(now - window.began))
        window.restart(now)


class _Window:
    """What went well in a queue since `began`, and is not written yet."""

    __slots__ = ("batches", "began", "jobs", "last", "timer")

    def __init__(self, began: float) -> None:
        self.timer: asyncio.TimerHandle | None = None
        self.restart(began)

    def restart(self, now: float) -> None:
        self.began = now
        self.batches = 0
        self.jobs = 0
        self.last: BatchReport | None = None

    def add(self, report: BatchReport) -> None:
        self.batches += 1
        self.jobs += report.jobs
        self.last = report

    def describe(self, length: float) -> str:
        when = "second" if length < 1.5 else f"{length:.0f} seconds"
        return f"in the last {when}: {plural(self.batches, 'batch')}, {plural(self.jobs, 'job')}"

    def fields(self, length: float) -> dict[str, object]:
        assert self.last is not None
        return {
            "queue": self.last.queue,
            "queue_num": self.last.number,
            "batches": self.batches,
            "jobs": self.jobs,
            "done": self.jobs,
            "seconds": round(length, 3),
        }


def describe(report: BatchReport) -> str:
    """A batch in one line: how many jobs, how long, what became of them, and which failed why.

    >>> from accoda.runtime.events import HandlerStats
    >>> describe(BatchReport("emails", 1, 50, HandlerStats(processed=50), 0.1234, 0.0))
    '50 jobs in 0.12 s: 50 done'
    """
    stats = report.stats
    counts = ((done_jobs(report), "done"), (stats.retried, "retried"), (stats.buried, "buried"), (stats.lost, "lost"))
    text = plural(report.jobs, "job")
    if report.cycle > 0:
        text += f" in {short(report.cycle)}"
    text += ": " + (", ".join(f"{count:,} {word}" for count, word in counts if count) or "nothing to do")
    return f"{text} – {_failures(report.failed)}" if report.failed else text


def fields(report: BatchReport) -> dict[str, object]:
    """The same for machines."""
    stats = report.stats
    found: dict[str, object] = {
        "queue": report.queue,
        "queue_num": report.number,
        "jobs": report.jobs,
        "done": done_jobs(report),
        "retried": stats.retried,
        "buried": stats.buried,
        "lost": stats.lost,
        "errors": stats.errors,
        "seconds": round(report.cycle, 6),
        "waited": round(report.waited, 3),
    }
    if report.failed:
        found["failed"] = [_failure(outcome) for outcome in report.failed[:MAX_FAILED]]
    if len(report.failed) > MAX_FAILED:
        found["failed_left_out"] = len(report.failed) - MAX_FAILED
    return found


def _failure(outcome: Outcome) -> dict[str, object]:
    return {
        "id": outcome.lease.id,
        "attempts": outcome.lease.attempts,
        "outcome": "buried" if isinstance(outcome, Bury) else "retried",
        "reason": _reason(outcome),
    }


def _failures(failed: Sequence[Outcome]) -> str:
    """The ids, by reason, with a bound on both."""
    ids: dict[str, list[int]] = {}
    for outcome in failed:
        ids.setdefault(_reason(outcome), []).append(outcome.lease.id)
    shown = [f"{_listed(some)}: {reason}" for reason, some in list(ids.items())[:MAX_REASONS]]
    if len(ids) > MAX_REASONS:
        shown.append(f"and {plural(len(ids) - MAX_REASONS, 'other reason')}")
    return "; ".join(shown)


def _listed(ids: Sequence[int]) -> str:
    text = ("job " if len(ids) == 1 else "jobs ") + ", ".join(map(str, ids[:MAX_IDS]))
    return text if len(ids) <= MAX_IDS else f"{text} and {len(ids) - MAX_IDS:,} more"


def _reason(outcome: Outcome) -> str:
    return first_line(getattr(outcome, "reason", "")) or "no reason given"
