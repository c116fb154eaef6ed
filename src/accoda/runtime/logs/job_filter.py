"""`JobFilter`: each line that a handler logs says which job it is about."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

from accoda.envelope import unwrap
from accoda.masking import Mask
from accoda.model import Job
from accoda.runtime.batch import Batch, current, current_batch

JOB_FIELDS = ("queue", "type", "job_id", "attempt", "batch_jobs")
MASK = "accoda_mask"
"""The attribute of a record that has what hides the secrets of its job; Accoda's own formatters apply it."""

_batch_masks: WeakKeyDictionary[Batch[Any], Mask] = WeakKeyDictionary()


class JobFilter(logging.Filter):
    """Adds to a record which job runs where it is logged: `queue`, `type`, `job_id`, `attempt` (1 until it fails).

    In a handler of whole batches, and in middleware: `queue`, `type` and `batch_jobs`. Elsewhere it adds nothing. Put
    it on a handler, since filters of loggers do not see what other loggers pass on.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        job, batch = current.get(), current_batch.get()
        if job is not None:
            _add(record, job_fields(job.job))
            setattr(record, MASK, _mask_of(job.batch, job.job))
        elif batch is not None and batch.taken:
            first = job_fields(batch.taken[0])  # its jobs are all of one type
            _add(record, {"queue": batch.queue, "type": first["type"], "batch_jobs": len(batch.taken)})
            setattr(record, MASK, _mask_of(batch, None))
        return True


def job_fields(job: Job) -> dict[str, object]:
    """What a line says of its job."""
    type = unwrap(job.data)[0].type
    return {"queue": job.queue, "type": type, "job_id": job.id, "attempt": job.tries + 1}


def _add(record: logging.LogRecord, fields: dict[str, object]) -> None:
    """What came with `extra` under one of these names keeps its value, with an underscore after the name."""
    known = vars(record)
    for name, value in fields.items():
        if known.get(name, value) != value:
            known[f"{name}_"] = known[name]
        known[name] = value


def _mask_of(batch: Batch[Any], job: Job | None) -> Mask:
    """What hides the secrets of a job, or of all jobs of a batch, which its handler sees together."""
    # To find the secrets means to decode the payload, and the user's types may log when they are made.
    tokens = current.set(None), current_batch.set(None)
    try:
        if job is not None:
            return batch.mask(job)
        if batch not in _batch_masks:
            _batch_masks[batch] = Mask.union(map(batch.mask, batch.taken))
        return _batch_masks[batch]
    finally:
        current.reset(tokens[0])
        current_batch.reset(tokens[1])
