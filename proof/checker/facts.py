"""From a call's arguments and answer to the records that are kept of them.

The functions below take the arguments of the protocol's verbs, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from accoda.flows.members import flow_place
from accoda.model import (
    Bury,
    ById,
    ByKey,
    Cancel,
    Done,
    Enqueued,
    Job,
    JobInfo,
    Lanes,
    Lease,
    Look,
    NewJob,
    NotCrashed,
    Outcome,
    Refused,
    Remove,
    Rerank,
    Retry,
    Revive,
    StartNow,
    State,
    Target,
)
from accoda.model import Change as ModelChange
from proof.checker import records as r


class Stamp(NamedTuple):
    """Whose call it is, its number, and when it began or ended."""

    client: str
    number: int
    at: int


def begun(stamp: Stamp, verb: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> r.AnyStart:
    """The record of a call's start."""
    make = _STARTS.get(verb)
    if make is not None:
        try:
            return make(stamp, *args, **kwargs)
        except (AttributeError, TypeError, KeyError):
            pass  # bad input, which the store will refuse; that the call was made is kept
    return r.Start(*stamp, verb)


def answered(stamp: Stamp, verb: str, answer: Any) -> r.AnyEnd:
    """The record of a call's answer."""
    make = _ENDS.get(verb)
    return r.End(*stamp) if make is None else make(stamp, answer)


def seen(info: JobInfo) -> r.Seen:
    return r.Seen(
        info.id, info.queue, info.state, info.attempts, len(info.data), crc32(info.data), info.waiters, info.crashes,
        info.rank, info.key, info.lane,
    )  # fmt: skip


# -- starts


def _enqueue(stamp: Stamp, jobs: Sequence[NewJob]) -> r.AnyStart:
    return r.Enqueue(*stamp, "", tuple(map(r.asked, jobs)))


def _take(
    stamp: Stamp, queue: str, count: int, *, lease: float = 60.0, max_cost: int | None = None, worker: str = ""
) -> r.AnyStart:
    return r.Take(*stamp, "", queue, count, lease, max_cost)


def _settle(stamp: Stamp, outcomes: Sequence[Outcome]) -> r.AnyStart:
    return r.Settle(*stamp, "", tuple(map(_told, outcomes)))


def _told(outcome: Outcome) -> r.Told:
    lease = outcome.lease
    then = tuple(map(r.asked, outcome.then)) if outcome.then else ()
    if type(outcome) is Done:
        result = None if outcome.result is None else crc32(outcome.result)
        return r.Told(
            lease.queue, lease.id, lease.attempts, "done", 0.0, None, outcome.waiters, then, True, None, lease.taken_at,
            result,
        )  # fmt: skip
    if type(outcome) is Retry:
        return r.Told(
            lease.queue, lease.id, lease.attempts, "retry", outcome.delay, outcome.at, None, then, outcome.counts,
            outcome.rank, lease.taken_at,
        )  # fmt: skip
    if type(outcome) is Bury:
        return r.Told(lease.queue, lease.id, lease.attempts, "bury", then=then, taken_at=lease.taken_at)
    raise TypeError("no outcome")


def _extend(stamp: Stamp, leases: Sequence[Lease], lease: float) -> r.AnyStart:
    return r.Extend(*stamp, "", tuple(map(r.held, leases)), lease)


def _look(stamp: Stamp, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> r.AnyStart:
    if isinstance(target, ById):
        return r.Look(*stamp, "", target.id, None, None, waiters_after)
    key = target.key if isinstance(target, ByKey) else None
    return r.Look(*stamp, "", None, target.queue, key, waiters_after)


_KINDS: dict[type, Any] = {
    Remove: "remove", Cancel: "cancel", Revive: "revive", StartNow: "start now", NotCrashed: "not crashed",
    Rerank: "rerank",
}  # fmt: skip


def _change(stamp: Stamp, changes: Sequence[ModelChange]) -> r.AnyStart:
    kept = [r.Changed(_KINDS[type(each)], each.id, each.waiters, each.queue) for each in changes]
    return r.Change(*stamp, "", tuple(kept))


def _browse(stamp: Stamp, queue: str, state: State, **options: Any) -> r.AnyStart:
    return r.Browse(*stamp)


def _write(
    stamp: Stamp, name: str, value: bytes, *, version: int | None = None, ttl: float | None = None
) -> r.AnyStart:
    return r.Write(*stamp, "", name, version)


def _pause(stamp: Stamp, queue: str, until: int | None) -> r.AnyStart:
    return r.OfQueue(*stamp, "pause", queue, None, until)


def _purge(stamp: Stamp, queue: str, state: State, **options: Any) -> r.AnyStart:
    return r.OfQueue(*stamp, "purge", queue, state)


def _set_lanes(stamp: Stamp, queue: str, rules: Lanes | None) -> r.AnyStart:
    if rules is not None and not isinstance(rules, Lanes):
        raise TypeError("no rules")
    return r.SetLanes(*stamp, "", queue, rules)


# -- ends


def _placed(stamp: Stamp, answer: list[Enqueued]) -> r.AnyEnd:
    return r.EnqueueEnd(*stamp, 0, tuple([r.Placed(each.id, each.what, each.waiters) for each in answer]))


def _jobs(stamp: Stamp, answer: list[Job]) -> r.AnyEnd:
    return r.TakeEnd(*stamp, 0, tuple(map(_taken, answer)))


def _taken(job: Job) -> r.Taken:
    data = job.data
    return r.Taken(
        job.id, job.attempts, job.rank, job.cost, job.waiters, len(data), crc32(data), job.created_at, job.start_time,
        job.tries, job.crashes, job.lease.taken_at, job.key, None if job.key is None else _place(job),
        job.lane,
    )  # fmt: skip


def _place(job: Job) -> r.Place | None:
    place = flow_place(job)
    if place is None:
        return None
    results = None if place.read else {name: crc32(body) for name, body in place.parents.items()}
    return r.Place(place.id, place.node, results)


def _denied(stamp: Stamp, answer: list[Refused]) -> r.AnyEnd:
    denied = [r.Denied(each.lease.id, each.lease.attempts, each.why, each.lease.taken_at) for each in answer]
    return r.RefusedEnd(*stamp, 0, tuple(denied))


def _looked(stamp: Stamp, answer: Look) -> r.AnyEnd:
    found = () if answer.job is None else (seen(answer.job),)
    return r.LookEnd(*stamp, 0, found, tuple(map(crc32, answer.waiters)), answer.at)


def _page(stamp: Stamp, answer: list[JobInfo]) -> r.AnyEnd:
    return r.LookEnd(*stamp, 0, tuple(map(seen, answer)))


def _count(stamp: Stamp, answer: int) -> r.AnyEnd:
    return r.End(*stamp, answer)


_STARTS: dict[str, Callable[..., r.AnyStart]] = {
    "enqueue": _enqueue,
    "take": _take,
    "settle": _settle,
    "extend": _extend,
    "write": _write,
    "look": _look,
    "change": _change,
    "browse": _browse,
    "pause": _pause,
    "purge": _purge,
    "set_lanes": _set_lanes,
}

_ENDS: dict[str, Callable[..., r.AnyEnd]] = {
    "enqueue": _placed,
    "take": _jobs,
    "settle": _denied,
    "extend": _denied,
    "write": _count,
    "look": _looked,
    "change": _count,
    "browse": _page,
    "purge": _count,
}
