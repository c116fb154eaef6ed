"""Batches of a queue in one line: how many jobs, how long, what became of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct

from accoda.model import Outcome
from accoda.runtime.events import BatchReport
from accoda.runtime.logs.job_lines import reason_of, word_of
from accoda.runtime.logs.text import plural, short
from accoda.runtime.metrics.monitor import done_jobs

MAX_IDS = 10
MAX_REASONS = 3
MAX_FAILED = 100
_WORDS = ("done", "retried", "buried", "cancelled", "lost")


class Summary(Struct, eq=False):
    """The sum of some reports. `not_done` are jobs that went back or are dead, and have no line of their own."""

    queue: str = ""
    number: int | None = None
    cycle: float = 0.0
    waited: float = 0.0
    """Of the last report; the report itself knows its batch, which may be large."""

    batches: int = 0
    jobs: int = 0
    done: int = 0
    retried: int = 0
    buried: int = 0
    cancelled: int = 0
    lost: int = 0
    errors: int = 0
    not_done: list[Outcome] = []
    left_out: int = 0
    warn: bool = False

    def add(self, report: BatchReport) -> None:
        stats = report.stats
        self.batches += 1
        self.jobs += report.jobs
        self.done += done_jobs(report)
        self.retried += stats.retried
        self.buried += stats.buried
        self.cancelled += stats.cancelled
        self.lost += stats.lost
        self.errors += stats.errors
        self.warn = self.warn or stats.lost > 0
        self.queue, self.number, self.cycle, self.waited = report.queue, report.number, report.cycle, report.waited

    def add_not_done(self, outcome: Outcome, *, failed: bool) -> None:
        """A job without a line of its own. `failed`: it should have had one, but there were too many."""
        self.warn = self.warn or failed
        if len(self.not_done) < MAX_FAILED:
            self.not_done.append(outcome)
        else:
            self.left_out += 1

    @property
    def level(self) -> int:
        return logging.WARNING if self.warn else logging.INFO

    def describe(self, length: float) -> str:
        """`50 jobs in 0.12 s: 48 done, 2 retried`, or `in the last second: 120 batches, 6,000 jobs`."""
        text = plural(self.jobs, "job")
        if self.batches > 1:
            when = "second" if length < 1.5 else f"{length:.0f} seconds"
            text = f"in the last {when}: {plural(self.batches, 'batch')}, {text}"
        elif self.cycle > 0:
            text += f" in {short(self.cycle)}"
        counts = ", ".join(f"{count:,} {word}" for word in _WORDS if (count := getattr(self, word)))
        if self.batches == 1 or self.done < self.jobs:
            text += f": {counts or 'nothing to do'}"
        return f"{text} – {_reasons(self.not_done, self.left_out)}" if self.not_done else text

    def fields(self, length: float) -> dict[str, object]:
        """The same for machines."""
        found: dict[str, object] = {"queue": self.queue, "queue_num": self.number}
        if self.batches > 1:
            found["batches"] = self.batches
        found["jobs"] = self.jobs
        found |= {word: getattr(self, word) for word in _WORDS}
        found["errors"] = self.errors
        if self.batches > 1:
            found["seconds"] = round(length, 3)
        else:
            found |= {"seconds": round(self.cycle, 6), "waited": round(self.waited, 3)}
        if self.not_done:
            found["not_done"] = [_entry(outcome) for outcome in self.not_done]
        if self.left_out:
            found["not_done_left_out"] = self.left_out
        return found


def _entry(outcome: Outcome) -> dict[str, object]:
    return {
        "job_id": outcome.lease.id,
        "outcome": word_of(outcome),
        "reason": reason_of(outcome),
    }


def _reasons(not_done: Sequence[Outcome], left_out: int) -> str:
    """The ids, by reason, with a bound on both."""
    ids: dict[str, list[int]] = {}
    for outcome in not_done:
        ids.setdefault(reason_of(outcome), []).append(outcome.lease.id)
    shown = [f"{_listed(some)}: {reason}" for reason, some in list(ids.items())[:MAX_REASONS]]
    if len(ids) > MAX_REASONS:
        shown.append(f"and {plural(len(ids) - MAX_REASONS, 'other reason')}")
    if left_out:
        shown.append(f"and {plural(left_out, 'more job')}")
    return "; ".join(shown)


def _listed(ids: Sequence[int]) -> str:
    text = ("job " if len(ids) == 1 else "jobs ") + ", ".join(map(str, ids[:MAX_IDS]))
    return text if len(ids) <= MAX_IDS else f"{text} and {len(ids) - MAX_IDS:,} more"
