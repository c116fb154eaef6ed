"""`enqueue` in a caller's own transaction: the statement, and what its answer says. `caller_connection.py` runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accoda.model import Enqueued, NewJob, What
from accoda.storage.common.caller_connection import Missing, Row, Statement

_TYPES = (
    "bigint", "text[]", "bytea[]", "float8[]", "bigint[]", "bigint[]", "bigint[]", "float8[]", "text[]", "smallint[]",
    "bytea[]", "text[]", "text[]",
)  # fmt: skip
_ARGUMENTS = ", ".join(f"CAST(${place} AS {type})" for place, type in enumerate(_TYPES, 1))
_WHATS: tuple[What, ...] = ("created", "kept", "replaced", "attached", "kept")
_DEFAULTS = (None, None, 0.0, None, None, 0, 0.0, None, 0, None, None, None)
"""Of each field of `new_job_row`. A column with no other value is sent as NULL, which costs drivers and server less."""
_WAYS = {"keep": 0, "replace": 1, "attach": 2, "rerank": 3}


def enqueue_statement(schema: str, at: int | None, jobs: Sequence[NewJob]) -> Statement:
    """Calls `enqueue_apart` of verbs/enqueue.sql. `at` is the present moment, None by the server's clock."""
    columns = [
        None if all(value == default for value in column) else column
        for default, *column in zip(_DEFAULTS, *map(new_job_row, jobs), strict=True)
    ]
    return Statement(f'SELECT * FROM "{schema}".enqueue_apart({_ARGUMENTS})', (at, *columns), _missing(schema))


def store_check(schema: str, *, again: bool = False) -> Statement:
    """Asks whether the function is in the caller's database, which no transaction fails of.

    `again`, in the same transaction: a session remembers what it did not find, and hears of changes when it locks a
    table that it has not locked yet.
    """
    function = f'"{schema}".enqueue_apart({",".join(_TYPES)})'
    afresh = " FROM pg_catalog.pg_namespace LIMIT 1" if again else ""
    return Statement(f"SELECT to_regprocedure(CAST($1 AS text)) IS NOT NULL{afresh}", (function,))


def _missing(schema: str) -> Missing:
    return Missing(
        schema,
        f"the database of this connection has no schema {schema!r} of this version of Accoda. Connect to that of the "
        "app's store; if this is the one, run `accoda migrate` with the store's URL",
    )


def new_job_row(job: NewJob) -> tuple[Any, ...]:
    """As the type `new_job` in verbs/enqueue.sql."""
    return (
        job.queue, job.data, float(job.rank), to_ms(job.delay), job.start_at, job.cost, float(job.keep_for), job.key,
        _WAYS[job.on_duplicate], job.waiter, job.reports_to, job.lane,
    )  # fmt: skip


def enqueued(row: Row) -> list[Enqueued]:
    """The answer of `enqueue` and of `enqueue_apart`."""
    ids, whats, waiting = row
    if whats is None:
        return [Enqueued(id, "created", 0) for id in ids]
    return [Enqueued(id, _WHATS[what], waiters) for id, what, waiters in zip(ids, whats, waiting, strict=True)]


def to_ms(seconds: float | None) -> int | None:
    """As the functions take a length of time."""
    return None if seconds is None else round(seconds * 1000)
