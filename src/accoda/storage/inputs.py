"""What every storage checks before it touches anything: bad input changes nothing and reads the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accoda.errors import InvalidInput
from accoda.limits import MOST, allowed, too_large
from accoda.model import (
    Bury,
    Done,
    Lease,
    NewJob,
    Outcome,
    Rank,
    Retry,
    State,
    check_count,
    check_document_name,
    check_duration,
    check_lease,
    check_moment,
    check_queue,
    check_state,
)
from accoda.storage.protocol import MOST_PLACES

_END_OF_IDS = 1 << 63


def check_jobs(jobs: Sequence[NewJob], field: str = "jobs") -> None:
    """Each is a `NewJob`; its own fields were checked when it was made."""
    _check_items(field, jobs, NewJob)
    if len(jobs) > allowed.jobs_per_call:
        too_large(field, len(jobs), "jobs_per_call")


def check_take(queue: str, count: int, lease: float, max_cost: int | None) -> None:
    check_queue(queue)
    check_count("count", count)
    check_lease(lease)
    if max_cost is not None:
        check_count("max_cost", max_cost)


def check_outcomes(outcomes: Sequence[Outcome]) -> None:
    _check_sequence("outcomes", outcomes)
    for outcome in outcomes:
        # The usual one, in a few comparisons: this runs for every job. The rest is examined at leisure.
        if (
            type(outcome) is Done
            and not outcome.then
            and outcome.result is None
            and type(outcome.lease) is Lease
            and type(outcome.lease.id) is int
            and 0 <= outcome.lease.id < _END_OF_IDS
            and type(outcome.lease.queue) is str
            and type(outcome.lease.attempts) is int
            and 0 <= outcome.lease.attempts < _END_OF_IDS
        ):
            continue
        _check_outcome(outcome)


def _check_outcome(outcome: object) -> None:
    if isinstance(outcome, Done):
        check_jobs(outcome.then, "then")
        if outcome.result is not None and type(outcome.result) is not bytes:
            raise InvalidInput("result", f"must be bytes or None, not {type(outcome.result).__name__}")
        # The limit itself held when the result was encoded: to refuse it here would refuse the whole batch's outcomes.
        if outcome.result is not None and len(outcome.result) > MOST.result:
            too_large("result", len(outcome.result), "result")
    elif not isinstance(outcome, (Retry, Bury)):
        raise InvalidInput("outcomes", f"must hold Done, Retry or Bury, not {type(outcome).__name__}")
    else:
        if type(outcome.reason) is not str:
            raise InvalidInput("reason", f"must be text, not {type(outcome.reason).__name__}")
        if isinstance(outcome, Bury) and (outcome.then or type(outcome.then) is not tuple):  # seldom
            check_jobs(outcome.then, "then")
    _check_held(outcome.lease)


def check_leases(leases: Sequence[Lease], lease: float) -> None:
    check_lease(lease)
    _check_sequence("leases", leases)
    for held in leases:
        _check_held(held)


def check_ranks(ranks: Sequence[Rank]) -> None:
    _check_items("ranks", ranks, Rank)
    for rank in ranks:
        check_id(rank.id)


def check_peek(queue: str, key: str | None, after: int | None) -> None:
    NewJob(queue, key=key)  # which checks both: what no job can have is nothing to look for
    if after is not None:
        check_count("after", after)


def check_place(id: int, most: int) -> None:
    check_id(id)
    if type(most) is not int or not 1 <= most <= MOST_PLACES:
        raise InvalidInput("most", f"must be an integer from 1 to {MOST_PLACES}, not {most!r:.80}")


def check_drop(queue: str, id: int, waiters: int) -> None:
    check_queue(queue)
    check_id(id)
    check_count("waiters", waiters)


def check_wait(queues: Sequence[str], timeout: float) -> None:
    _check_sequence("queues", queues)
    for queue in queues:
        check_queue(queue)
    check_duration("timeout", timeout)


def check_prefix(prefix: str) -> None:
    if prefix:
        check_document_name(prefix)


def check_write(name: str, value: bytes, version: int | None, ttl: float | None) -> None:
    check_document_name(name)
    if type(value) is not bytes:
        raise InvalidInput("value", f"must be bytes, not {type(value).__name__}")
    if len(value) > allowed.document:
        too_large("value", len(value), "document")
    if version is not None:
        check_count("version", version)
    if ttl is not None:
        check_duration("ttl", ttl)


def check_ids(ids: Sequence[int]) -> None:
    _check_sequence("ids", ids)
    for id in ids:
        check_id(id)


def check_id(id: object) -> None:
    if type(id) is not int or not 0 <= id < _END_OF_IDS:
        raise InvalidInput("id", f"must be an integer from 0 to 2**63 - 1, not {id!r:.80}")


def check_browse(queue: str, state: State, after: int | None, limit: int) -> None:
    check_queue(queue)
    check_state(state)
    check_count("limit", limit)
    if after is not None:
        check_id(after)


def check_purge(queue: str, state: State, before: int | None, limit: int | None) -> None:
    check_queue(queue)
    check_state(state)
    if before is not None:
        check_moment("before", before)
    if limit is not None:
        check_count("limit", limit)


def check_pause(queue: str, until: int | None) -> None:
    check_queue(queue)
    if until is not None:
        check_moment("until", until)


def _check_held(lease: object) -> None:
    if type(lease) is not Lease:
        raise InvalidInput("lease", f"must be the lease of a taken job, not {type(lease).__name__}")
    if type(lease.queue) is not str or type(lease.attempts) is not int or not 0 <= lease.attempts < _END_OF_IDS:
        raise InvalidInput("lease", f"must be the lease of a taken job, not {lease!r:.80}")
    check_id(lease.id)


def _check_sequence(field: str, value: object) -> None:
    if type(value) is list or type(value) is tuple:  # the usual ones: to ask whether it is a Sequence is slow
        return
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(field, f"must be a list or tuple, not {type(value).__name__}")


def _check_items(field: str, items: Sequence[Any], kind: type) -> None:
    _check_sequence(field, items)
    for item in items:
        if type(item) is not kind:
            raise InvalidInput(field, f"must hold {kind.__name__} only, not {type(item).__name__}")
