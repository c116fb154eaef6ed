"""What a worker tells about itself: to metrics, to logs, to the manager."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from accoda.model import Outcome

log = logging.getLogger("accoda.worker")


class HandlerStats(Struct, frozen=True, gc=False):
    """Jobs that ended together, in numbers. `errors` counts the runs that failed, whether retried or buried; `duration`
    is seconds. A handler of batches may return one to count `processed`, `errors` and `last_error` by itself."""

    processed: int = 0
    errors: int = 0
    retried: int = 0
    buried: int = 0
    lost: int = 0
    duration: float = 0.0
    last_error: str = ""
    cancelled: int = 0


class Explanation(Struct, frozen=True):
    """More about a job that is not done: its type, which attempt it was, whether its handler `asked` for the retry, and
    where it was raised."""

    type: str | None = None
    attempt: int | None = None
    asked: bool = False
    traceback: str = ""


class BatchReport(Struct, frozen=True):
    """Jobs of one take that were run and settled together, as their processor tells it.

    `cycle` is the whole take-run-settle turn in seconds, `waited` how long the first job was ready before it was taken
    (by this machine's clock). `type` is that of their handler. `failed` lists the outcomes that were no `Done`;
    `explain` tells more of each. The jobs of a take may end, and are reported, one after the other; only the last
    report, which ends the cycle, has a `cycle`.
    """

    queue: str
    number: int | None
    jobs: int
    stats: HandlerStats
    cycle: float
    waited: float
    failed: tuple[Outcome, ...] = ()
    explain: Callable[[Outcome], Explanation] | None = None
    type: str | None = None


class Monitor(Protocol):
    """Told what a worker does. Called on the worker's loop, must not block, and whatever it raises is only logged."""

    def batch_started(self, queue: str, number: int | None, jobs: int) -> None:
        """A processor took a batch and hands it to the handler."""
        ...

    def batch_ended(self, report: BatchReport) -> None:
        """The same batch was settled, or lost."""
        ...

    def processors_changed(self, running: int) -> None:
        """This worker runs that many processors now."""
        ...


def tell(monitors: Sequence[Monitor], event: str, *args: object) -> None:
    """Call that method of each monitor. What one of them raises is logged, and does not keep it from the others."""
    for monitor in monitors:
        try:
            getattr(monitor, event)(*args)
        except Exception:
            log.exception("%r failed; the work continues", monitor)
