"""From a call's arguments and answer to the records that are kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from accoda.model import Bury, Done, Enqueued, Job, JobInfo, Lease, NewJob, Outcome, Peek, Place, Rank, Refused, Retry
from accoda.testing.history import records as r


def begun(client: str, number: int, at: int, verb: str, args: Sequence[Any]) -> r.AnyStart:
    """The record of a call's start."""
    make = _STARTS.get(verb)
    if make is not None:
        try:
            return make(client, number, at, *args)
        except (AttributeError, TypeError, KeyError):
            pass  # bad input, which the store will refuse; that the call was made is kept
    return r.Start(client, number, at, verb)


def answered(client: str, number: int, at: int, verb: str, answer: Any) -> r.AnyEnd:
    """The record of a call's answer."""
    make = _ENDS.get(verb)
    return r.End(client, number, at) if make is None else make(client, number, at, answer)


def seen(info: JobInfo) -> r.Seen:
    return r.Seen(
        info.id, info.queue, info.state, info.attempts, len(info.data), crc32(info.data), info.waiters, info.crashes,
        info.rank,
    )  # fmt: skip


def _told(outcome: Outcome) -> r.Told:
    lease = outcome.lease
    if type(outcome) is Done:
        then = tuple(map(r.asked, outcome.then)) if outcome.then else ()
        return r.Told(lease.queue, lease.id, lease.attempts, "done", 0.0, None, outcome.waiters, then)
    if type(outcome) is Retry:
        return r.Told(lease.queue, lease.id, lease.attempts, "retry", outcome.delay, outcome.at)
    if type(outcome) is Bury:
        then = tuple(map(r.asked, outcome.then)) if outcome.then else ()
        return r.Told(lease.queue, lease.id, lease.attempts, "bury", then=then)
    raise TypeError("no outcome")


def _taken(job: Job) -> r.Taken:
    data = job.data
    return r.Taken(
        job.id, job.attempts, job.rank, job.cost, job.waiters, len(data), crc32(data), job.created_at, job.start_time,
        job.fresh_at, job.crashes,
    )  # fmt: skip


def _enqueue(client: str, number: int, at: int, jobs: Sequence[NewJob]) -> r.AnyStart:
    return r.Enqueue(client, number, at, "", tuple(map(r.asked, jobs)))


def _take(client: str, number: int, at: int, queue: str, count: int, lease: float, max_cost: int | None) -> r.AnyStart:
    return r.Take(client, number, at, "", queue, count, lease, max_cost)


def _settle(client: str, number: int, at: int, outcomes: Sequence[Outcome]) -> r.AnyStart:
    return r.Settle(client, number, at, "", tuple(map(_told, outcomes)))


def _extend(client: str, number: int, at: int, leases: Sequence[Lease], lease: float) -> r.AnyStart:
    return r.Extend(client, number, at, "", tuple(map(r.held, leases)), lease)


def _rerank(client: str, number: int, at: int, ranks: Sequence[Rank]) -> r.AnyStart:
    return r.Rerank(client, number, at, "", tuple([r.Ranked(each.id, each.rank) for each in ranks]))


def _waiters(client: str, number: int, at: int, lease: Lease) -> r.AnyStart:
    return r.AskWaiters(client, number, at, "", r.held(lease))


def _peek(client: str, number: int, at: int, queue: str, key: str | None, after: int | None) -> r.AnyStart:
    return r.Peek(client, number, at, "", queue, key, after)


def _drop(client: str, number: int, at: int, queue: str, id: int, waiters: int) -> r.AnyStart:
    return r.Drop(client, number, at, "", queue, id, waiters)


def _write(client: str, number: int, at: int, name: str, version: int | None) -> r.AnyStart:
    return r.Write(client, number, at, "", name, version)


def _ids(verb: str) -> Callable[..., r.AnyStart]:
    return lambda client, number, at, ids: r.Ids(client, number, at, verb, tuple(ids))


def _of_queue(verb: str) -> Callable[..., r.AnyStart]:
    def make(client: str, number: int, at: int, queue: str, detail: Any = None, *more: Any) -> r.AnyStart:
        state, until = (detail, None) if verb == "purge" else (None, detail)
        return r.OfQueue(client, number, at, verb, queue, state, until)

    return make


def _look(verb: str) -> Callable[..., r.AnyStart]:
    return lambda client, number, at, *args: r.Look(client, number, at, verb)


def _placed(client: str, number: int, at: int, answer: list[Enqueued]) -> r.AnyEnd:
    return r.EnqueueEnd(client, number, at, 0, tuple([r.Placed(each.id, each.what, each.waiters) for each in answer]))


def _jobs(client: str, number: int, at: int, answer: list[Job]) -> r.AnyEnd:
    return r.TakeEnd(client, number, at, 0, tuple(map(_taken, answer)))


def _denied(client: str, number: int, at: int, answer: list[Refused]) -> r.AnyEnd:
    denied = [r.Denied(each.lease.id, each.lease.attempts, each.why) for each in answer]
    return r.RefusedEnd(client, number, at, 0, tuple(denied))


def _names(client: str, number: int, at: int, answer: list[bytes]) -> r.AnyEnd:
    return r.WaitersEnd(client, number, at, 0, tuple(map(crc32, answer)))


def _found(client: str, number: int, at: int, answer: JobInfo | None) -> r.AnyEnd:
    return r.LookEnd(client, number, at, 0, () if answer is None else (seen(answer),))


def _stood(client: str, number: int, at: int, answer: Place | None) -> r.AnyEnd:
    return _found(client, number, at, None if answer is None else answer.job)


def _page(client: str, number: int, at: int, answer: list[JobInfo]) -> r.AnyEnd:
    return r.LookEnd(client, number, at, 0, tuple(map(seen, answer)))


def _peeked(client: str, number: int, at: int, answer: Peek) -> r.AnyEnd:
    found = () if answer.job is None else (seen(answer.job),)
    return r.PeekEnd(client, number, at, 0, found, tuple(map(crc32, answer.waiters)), answer.at)


def _count(client: str, number: int, at: int, answer: int | bool) -> r.AnyEnd:
    return r.End(client, number, at, int(answer))


_STARTS: dict[str, Callable[..., r.AnyStart]] = {
    "enqueue": _enqueue,
    "take": _take,
    "settle": _settle,
    "extend": _extend,
    "rerank": _rerank,
    "waiters": _waiters,
    "peek": _peek,
    "drop": _drop,
    "write": _write,
    "remove": _ids("remove"),
    "revive": _ids("revive"),
    "start_now": _ids("start_now"),
    "pause": _of_queue("pause"),
    "resume": _of_queue("resume"),
    "purge": _of_queue("purge"),
    "find": _look("find"),
    "place": _look("place"),
    "browse": _look("browse"),
}

_ENDS: dict[str, Callable[..., r.AnyEnd]] = {
    "enqueue": _placed,
    "take": _jobs,
    "settle": _denied,
    "extend": _denied,
    "rerank": _count,
    "waiters": _names,
    "peek": _peeked,
    "drop": _count,
    "write": _count,
    "remove": _count,
    "revive": _count,
    "start_now": _count,
    "purge": _count,
    "find": _found,
    "place": _stood,
    "browse": _page,
}
