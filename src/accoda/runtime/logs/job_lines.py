"""Lines about single jobs: failures with their tracebacks and, by choice, each start and end (`--log-jobs`)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from accoda.model import Bury, Outcome, Retry
from accoda.runtime.events import BatchReport, Explanation
from accoda.runtime.logs.text import first_line, short

log = logging.getLogger("accoda.jobs")

Call = Callable[[Any], Any]


def with_lines(call: Call) -> Call:
    """The call of a handler with a line before and after it, if the level of `accoda.jobs` itself was set to INFO; else
    the call as it is, so that it costs nothing."""
    return _with_lines(call) if logging.NOTSET < log.level <= logging.INFO else call


def _with_lines(call: Call) -> Call:
    def run(argument: Any) -> Any:
        began = time.monotonic()
        log.info("started")
        try:
            value = call(argument)
        except BaseException as error:
            _ended(began, error)
            raise
        if inspect.isawaitable(value):
            return _awaited(value, began)
        _ended(began)
        return value

    return run


async def _awaited(value: Awaitable[Any], began: float) -> Any:
    try:
        result = await value
    except BaseException as error:
        _ended(began, error)
        raise
    _ended(began)
    return result


def _ended(began: float, error: BaseException | None = None) -> None:
    if error is None:
        word = "done in"
    else:  # what was raised, and what becomes of the job, is in the line of the failure
        word = "stopped after" if isinstance(error, asyncio.CancelledError) else "raised after"
    seconds = time.monotonic() - began
    log.info("%s %s", word, short(seconds), extra={"seconds": round(seconds, 6)})


def write_failure(report: BatchReport, outcome: Outcome, told: Explanation) -> None:
    """A line for a job that failed: ERROR if it is dead now, else WARNING."""
    level = logging.ERROR if isinstance(outcome, Bury) else logging.WARNING
    if not log.isEnabledFor(level):
        return
    reason = reason_of(outcome)
    extra: dict[str, object] = {
        "queue": report.queue,
        "queue_num": report.number,
        "type": told.type,
        "job_id": outcome.lease.id,
        "attempt": told.attempt,
        "outcome": word_of(outcome),
        "reason": reason,
    }
    record = log.makeRecord(log.name, level, __file__, 0, f"{_what(outcome)}: {reason}", (), None, extra=extra)
    # Every formatter shows it as the traceback. It has no secrets any more.
    record.exc_text = told.traceback.rstrip() or None
    log.handle(record)


def word_of(outcome: Outcome) -> str:
    return "buried" if isinstance(outcome, Bury) else "retried"


def reason_of(outcome: Outcome) -> str:
    return first_line(getattr(outcome, "reason", "")) or "no reason given"


def _what(outcome: Outcome) -> str:
    if not isinstance(outcome, Retry):
        return "buried"
    wait = outcome.delay if outcome.at is None else outcome.at / 1000 - time.time()
    return f"failed, runs again in {short(wait)}" if wait > 0 else "failed, runs again now"
