"""What a worker tells about itself: to metrics, to logs, to the manager."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from accoda.model import Outcome

log = logging.getLogger("accoda.worker")


class HandlerStats(Struct, frozen=True, gc=False):
    """One batch in numbers. `errors` counts the runs that failed, whether retried or buried; `duration` is seconds."""

    processed: int = 0
    errors: int = 0
    retried: int = 0
    buried: int = 0
    lost: int = 0
    duration: float = 0.0
    last_error: str = ""


class BatchReport(Struct, frozen=True):
    """A batch that was run and settled, as its processor tells it.

    `cycle` is the whole take-run-settle turn in seconds, `waited` how long the first job was ready before it was taken
    (by this machine's clock). `failed` lists the outcomes that were no `Done`. A long batch is reported in parts; only
    the last of them, which ends the cycle, has a `cycle` and a `duration`.
    """

    queue: str
    number: int | None
    jobs: int
    stats: HandlerStats
    cycle: float
    waited: float
    failed: tuple[Outcome, ...] = ()


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
