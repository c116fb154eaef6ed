"""`LogMonitor`: what became of the jobs, and not thousands of lines a second.

A job that failed has a line of its own with its traceback, up to ten of them for a queue in a second. Besides, each
batch is one line; more of them in the same second, for the same queue, become one line with their sum when the second
is over. At level DEBUG every batch has its own line.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from accoda.model import Outcome, Retry
from accoda.runtime.events import BatchReport, Explanation
from accoda.runtime.logs.job_lines import write_failure
from accoda.runtime.logs.summary import Summary
from accoda.runtime.logs.text import plural
from accoda.runtime.unhandled_types import is_given_back

batches = logging.getLogger("accoda.batch")
worker = logging.getLogger("accoda.worker")

MAX_LINES = 10
"""Jobs of a queue that have a line of their own in a second."""
_NOTHING_TOLD = Explanation()


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
        window = self._windows.get(report.queue)
        if window is None:
            window = self._windows[report.queue] = _Window(-self._window)
        told = all(map(is_given_back, report.failed)) and len(report.failed) == report.jobs
        if told and not batches.isEnabledFor(logging.DEBUG):
            return
        now = self._now()
        if now - window.began >= self._window and not batches.isEnabledFor(logging.INFO):
            window.restart(now - self._window)  # no timer writes, and so empties, what is below the level
        for outcome in report.failed:
            window.tell(report, outcome)
        window.sum.add(report)
        if now - window.began >= self._window or batches.isEnabledFor(logging.DEBUG):
            self._write(window)
        elif window.timer is None and batches.isEnabledFor(window.sum.level):
            window.timer = self._wake(window, window.began + self._window - now)

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

    def _wake(self, window: _Window, delay: float) -> asyncio.TimerHandle | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not on a loop: the next batch, or flush, writes it
            return None
        return loop.call_later(delay, self._write, window)

    def _write(self, window: _Window) -> None:
        now, sum = self._now(), window.sum
        if window.timer is not None:
            window.timer.cancel()
        if sum.batches and batches.isEnabledFor(sum.level):
            length = now - window.began
            batches.log(sum.level, "%s", sum.describe(length), extra=sum.fields(length))
        window.restart(now)


class _Window:
    """What happened in a queue since `began`, and is not written yet."""

    def __init__(self, began: float) -> None:
        self.restart(began)

    def restart(self, now: float) -> None:
        self.began = now
        self.timer: asyncio.TimerHandle | None = None
        self.lines = 0
        self.sum = Summary()

    def tell(self, report: BatchReport, outcome: Outcome) -> None:
        """A job that is not done: a line of its own if it failed, else a place in the sum."""
        if is_given_back(outcome):  # the worker tells of each type once
            return
        if isinstance(outcome, Retry) and not outcome.counts:  # given back: its handler has not failed
            self.sum.add_not_done(outcome, failed=False)
        elif self.lines >= MAX_LINES:
            self.sum.add_not_done(outcome, failed=True)
        else:
            told = _NOTHING_TOLD if report.explain is None else report.explain(outcome)
            if told.asked:
                self.sum.add_not_done(outcome, failed=False)
            else:
                self.lines += 1
                write_failure(report, outcome, told)
