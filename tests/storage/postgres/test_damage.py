"""The engine refuses records that no Accoda wrote."""

from random import Random
from typing import Any

import asyncpg
import pytest
from proof.damage.postgres import (
    ABSURD_COUNTERS,
    ABSURD_NUMBERS,
    ABSURD_REALS,
    COUNTERS,
    NO_NAMES,
    NUMBERS,
    REALS,
    set_column,
)
from proof.damage.survival import survive

from accoda import ManualClock, open_storage
from accoda.model import Lanes, NewJob
from accoda.storage.postgres import PostgresStorage


async def test_thousands_of_attempts_to_damage_records_change_none_and_lose_no_good_job(url: str) -> None:
    clock = ManualClock(1_790_000_000_000)
    async with await open_storage(url, clock=clock) as store:
        damaged, _ = await survive(store, clock, Random(1), 1000)
    assert damaged == 0


@pytest.fixture
async def session(sql: asyncpg.Connection, store: PostgresStorage, schema: str) -> asyncpg.Connection:
    """With the store's tables at hand."""
    await sql.execute(f"SET search_path TO {schema}")
    return sql


async def test_the_engine_refuses_a_record_that_no_accoda_wrote(
    store: PostgresStorage, session: asyncpg.Connection
) -> None:
    (new,) = await store.enqueue([NewJob("q")])
    changes: list[tuple[str, Any]] = [
        *((column, value) for column in NUMBERS for value in ABSURD_NUMBERS),
        *((column, value) for column in COUNTERS for value in ABSURD_COUNTERS),
        *((column, value) for column in REALS for value in ABSURD_REALS),
        *(("queue", name) for name in NO_NAMES),
        *(("state", state) for state in (-2, 6)),
        *(("lane", lane) for lane in ("", "x" * 129)),
        *((column, None) for column in ("data", "queue", "rank", "start_time")),
        ("keep_for", -1.0),
        ("id", 0),
        ("id", -1),
    ]
    assert [change for change in changes if await set_column(session, *change, new.id)] == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE waiters SET n = -1",
        "UPDATE waiters SET data = NULL",
        "UPDATE counts SET queue = 'bad name'",
        "UPDATE counts SET ready = NULL",
        "UPDATE pauses SET queue = ''",
        'UPDATE lane_rules SET "limit" = -1',
        "UPDATE lane_rules SET total = -1",
        "UPDATE lane_rules SET limits = NULL",
        "UPDATE lane_rules SET shared = 'bad name'",
        "INSERT INTO unbalanced (queue, lane) VALUES ('q', '')",
        "UPDATE counts SET held = NULL",
        "UPDATE documents SET version = -1",
        "UPDATE documents SET version = 9223372036854775807",
        "UPDATE documents SET expires_at = -1",
        "UPDATE forgotten_documents SET version = -1",
    ],
)
async def test_the_engine_refuses_impossible_numbers_and_names_beside_the_jobs(
    store: PostgresStorage, session: asyncpg.Connection, statement: str
) -> None:
    await store.enqueue([NewJob("q", key="k", waiter=b"w")])
    await store.write("d", b"1")
    await store.pause("q", None)
    await store.set_lanes("q", Lanes(limit=1))
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await session.execute(statement)
