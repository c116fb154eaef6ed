"""What every storage checks before it touches anything: bad input changes nothing and reads the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from accoda.errors import InvalidInput
from accoda.limits import allowed, too_large
from accoda.model import (
    ById,
    ByKey,
    Change,
    Cursor,
    Head,
    Lanes,
    Lease,
    NewJob,
    Order,
    State,
    Target,
    check_count,
    check_document_name,
    check_duration,
    check_id,
    check_jobs,
    check_lease,
    check_lease_token,
    check_moment,
    check_outcomes,
    check_queue,
    check_sequence,
    check_state,
    check_take,
)

__all__ = [
    "check_browse",
    "check_changes",
    "check_id",
    "check_jobs",
    "check_lanes",
    "check_leases",
    "check_look",
    "check_outcomes",
    "check_pause",
    "check_prefix",
    "check_purge",
    "check_set_lanes",
    "check_take",
    "check_wait",
    "check_write",
]


def check_leases(leases: Sequence[Lease], lease: float) -> None:
    check_lease(lease)
    check_sequence("leases", leases)
    for token in leases:
        check_lease_token(token)


def check_look(target: Target, waiters_after: int | None) -> None:
    match target:
        case ById(id):
            check_id(id)
        case ByKey(queue, key):
            NewJob(queue, key=key)  # which checks both: what no job can have is nothing to look for
            if key is None:
                raise InvalidInput("key", "must be the key of a job, not None")
        case Head(queue):
            check_queue(queue)
        case _:
            raise InvalidInput("target", f"must be ById, ByKey or Head, not {type(target).__name__}")
    if waiters_after is not None:
        check_count("waiters_after", waiters_after)


def check_changes(changes: Sequence[Change]) -> None:
    check_sequence("changes", changes)
    for change in changes:
        if not isinstance(change, Change):
            raise InvalidInput("changes", f"must hold Remove, Revive, … only, not {type(change).__name__}")
        check_id(change.id)
        if change.waiters is not None:
            check_count("waiters", change.waiters)
        if change.queue is not None:
            check_queue(change.queue)


def check_wait(queues: Sequence[str], timeout: float) -> None:
    check_sequence("queues", queues)
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


def check_browse(queue: str, state: State, order: Order, after: Cursor | None, limit: int) -> None:
    check_queue(queue)
    check_state(state)
    check_count("limit", limit)
    if order not in ("line", "id"):
        raise InvalidInput("order", f"must be 'line' or 'id', not {order!r:.80}")
    if after is not None:
        if type(after) is not Cursor:
            raise InvalidInput("after", f"must be a job's cursor, not {type(after).__name__}")
        if type(after.sort) not in (int, float) or not isfinite(after.sort):
            raise InvalidInput("after", f"must be a job's cursor, not {after!r:.80}")
        check_id(after.id)


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


def check_set_lanes(queue: str, rules: Lanes | None) -> None:
    check_queue(queue)
    if rules is not None and type(rules) is not Lanes:
        raise InvalidInput("rules", f"must be Lanes or None, not {type(rules).__name__}")


def check_lanes(queue: str, limit: int) -> None:
    check_queue(queue)
    check_count("limit", limit)
