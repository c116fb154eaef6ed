"""How a record moves from one state of its line to another. The caller holds the lock and knows that the move fits,
but for those that tell whether it did."""

from __future__ import annotations

from accoda.model import Enqueued, NewJob, Retry, clean
from accoda.storage.memory.line import Record


def start_of(job: NewJob, now: int) -> int:
    if job.delay is not None:
        return now + round(job.delay * 1000)
    return now if job.start_at is None else max(now, job.start_at)


def wait_from(record: Record, start_time: int, now: int) -> None:
    """Let a record that is in no state wait: ready at once, or delayed until its start time."""
    line = record.line
    if start_time <= now:
        record.state = "ready"
        line.ready[record.id] = record
        line.make_ready(record)
    else:
        record.state, record.due = "delayed", start_time
        line.states["delayed"][record.id] = record
        line.due.watch(start_time, (record.id,))


def start(record: Record) -> None:
    """Ready at once, from whatever state."""
    record.line.move(record, "ready")
    record.line.make_ready(record)


def join(held: Record, job: NewJob, start_time: int, now: int) -> Enqueued:
    """The key is taken: what becomes of the newcomer."""
    if job.on_duplicate == "keep":
        return Enqueued(held.id, "kept", len(held.waiters or ()))
    if job.waiter is not None:
        if held.waiters is None:
            held.waiters = []
        held.waiters.append(job.waiter)
    if job.on_duplicate == "attach":
        return Enqueued(held.id, "attached", len(held.waiters or ()))
    replace(held, job, start_time, now)
    return Enqueued(held.id, "replaced", len(held.waiters or ()))


def replace(record: Record, job: NewJob, start_time: int, now: int) -> None:
    """The record of a held key gets the content of a new job, and waits."""
    if record.state == "taken":
        # The run of the old data is over: its token no longer fits, so its outcome cannot settle the new data.
        give_back(record, start_time)
    record.data, record.rank, record.cost, record.keep_for = job.data, float(job.rank), job.cost, job.keep_for
    record.start_time = start_time
    begin_afresh(record)
    del record.line.states[record.state][record.id]
    wait_from(record, start_time, now)


def end_lease(record: Record, now: int) -> None:
    """The lease is over and nobody told an outcome."""
    give_back(record, now)
    record.crashes += 1
    record.line.counts["expired"] += 1
    start(record)


def retry(record: Record, outcome: Retry, now: int) -> None:
    line = record.line
    line.counts["retried"] += 1
    start_time = now + round(outcome.delay * 1000) if outcome.at is None else max(now, outcome.at)
    give_back(record, start_time)
    record.reason = clean(outcome.reason)
    del line.states["taken"][record.id]
    wait_from(record, start_time, now)


def bury(record: Record, reason: str, now: int) -> None:
    line = record.line
    line.counts["buried"] += 1
    line.release_key(record)
    record.reason, record.ended_at = clean(reason), now
    line.move(record, "dead")


def revive(record: Record, now: int) -> bool:
    """A dead job is ready again, unless another holds its key."""
    if record.state != "dead":
        return False
    if record.key is not None and record.line.keys.setdefault(record.key, record) is not record:
        return False
    give_back(record, now)
    begin_afresh(record)
    record.ended_at = None
    start(record)
    return True


def start_now(record: Record, now: int) -> bool:
    """A delayed job need not wait any longer. It does not come back from anywhere, so its token stays."""
    if record.state != "delayed":
        return False
    record.start_time = now
    start(record)
    return True


def keep(record: Record, result: bytes | None, now: int) -> None:
    """A done job stays for people to look at."""
    record.result, record.ended_at = result, now
    record.due = now + round(record.keep_for * 1000)
    record.line.move(record, "done")
    record.line.kept.watch(record.due, (record.id,))


def give_back(record: Record, start_time: int) -> None:
    """The job comes back: a new token, and the old start time remembered."""
    record.attempts += 1
    record.prev_start_time, record.start_time = record.start_time, start_time


def begin_afresh(record: Record) -> None:
    """What happened to the job so far counts no longer. Its attempts do: they are its token."""
    record.fresh_at, record.crashes = record.attempts, 0
