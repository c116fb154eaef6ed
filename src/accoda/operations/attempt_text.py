"""What people read about a job's runs: which attempt it is, and what follows if its workers died. Pure."""

from __future__ import annotations

from accoda.envelope import unwrap
from accoda.model import JobInfo
from accoda.operations.handlers import handler_of
from accoda.operations.host import Host
from accoda.retry import QUARANTINED


def attempt_text(tries: int, most: int | None = None) -> str:
    """Which attempt a job waits for or is at; of an ended job, the last one.

    `tries` counts the failures that the job was retried after. The failure that buries it is not among them, so its
    last attempt is one more, as in every other state.

    >>> attempt_text(0), attempt_text(1, 3)
    ('attempt 1', 'attempt 2 of 3')
    """
    return f"attempt {tries + 1:,}" + ("" if most is None else f" of {most:,}")


def max_attempts(host: Host, job: JobInfo) -> int | None:
    """The job's own limit or else that of its handler here; None: there is none, or this process does not know it."""
    metadata = unwrap(job.data)[0]
    handler = handler_of(host, job.queue, metadata.type)
    own = metadata.max_attempts
    return own if own is not None or handler is None else handler.options.max_attempts


def crash_text(job: JobInfo, next_run: str) -> str:
    """How often a job lost its lease, and what that means if it waits; `next_run` is its start time in words. Empty: it
    lost none."""
    if not job.crashes:
        return ""
    times = "once" if job.crashes == 1 else f"{job.crashes:,} times"
    text = f"its lease ended {times} without an outcome (the worker may have died)"
    if job.state not in ("ready", "delayed", "held"):
        return text
    return f"{text}; {quarantine_text(job, next_run)}" if job.crashes >= QUARANTINED else text


def quarantine_text(job: JobInfo, next_run: str) -> str:
    """When a quarantined job runs next."""
    if job.state == "delayed":
        return f"quarantined: it runs alone, next at {next_run}"
    return "quarantined: it runs alone, as soon as nothing else runs"
