"""Statements for many jobs take a range of ids where there is no gap: then, and only then, it is the same jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from accoda import Done, Lease, ManualClock, NewJob, open_storage
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.storage.sqlite.transaction import SQL, _statement


@pytest.mark.parametrize("ids", [[7], [7, 8, 9], list(range(100, 600))])
def test_ids_without_a_gap_are_a_range(ids: list[int]) -> None:
    text, values = _statement("delete_jobs", ids, ())
    assert text == SQL["delete_jobs of a range"]
    assert values == (ids[0], ids[-1])


@pytest.mark.parametrize("ids", [[7, 9], [5, 5, 7], [7, 5, 6, 5], [9, 8, 7], [5, 7, 6], [7, 7]])
def test_a_gap_an_id_twice_or_another_order_is_none(ids: list[int]) -> None:
    text, _ = _statement("delete_jobs", ids, ())
    assert text == SQL["delete_jobs"]


def test_every_statement_for_a_list_is_there_for_a_range_with_one_more_value() -> None:
    listed = [name for name, text in SQL.items() if "id IN carray(?1)" in text]
    assert {"lease_jobs", "delete_jobs", "count_plain", "held_jobs", "end_leases", "start_delayed"} <= set(listed)
    for name in listed:
        assert "carray" not in SQL[name + " of a range"]
    assert "BETWEEN ?1 AND ?5" in SQL["lease_jobs of a range"]


async def _opened(folder: Path, clock: ManualClock) -> SqliteStorage:
    store = await open_storage(f"sqlite:///{folder}/q.db", clock=clock)
    assert isinstance(store, SqliteStorage)
    return store


async def test_an_outcome_told_twice_settles_no_neighbour(tmp_path: Path) -> None:
    async with await _opened(tmp_path, ManualClock()) as store:
        await store.enqueue([NewJob("q") for _ in range(3)])
        first, middle, last = await store.take("q", 3)
        refused = await store.settle([Done(first.lease), Done(first.lease), Done(last.lease)])
        assert [each.lease for each in refused] == [first.lease]
        assert await store.settle([Done(middle.lease)]) == [], "it is still held"


async def test_jobs_of_other_queues_between_are_left_alone(tmp_path: Path) -> None:
    async with await _opened(tmp_path, ManualClock()) as store:
        await store.enqueue([NewJob("a"), NewJob("b"), NewJob("a"), NewJob("b")])
        jobs = await store.take("a", 5)
        assert [job.id for job in jobs] == [1, 3]
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert [job.id for job in await store.take("b", 5)] == [2, 4]
        queues = (await store.stats()).queues
        assert (queues["a"].done, queues["a"].total, queues["b"].taken) == (2, 0, 2)


async def test_a_range_with_a_lost_lease_settles_the_others(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await _opened(tmp_path, clock) as store:
        await store.enqueue([NewJob("q") for _ in range(5)])
        jobs = await store.take("q", 5, lease=10)
        await store.remove([jobs[2].id])
        refused = await store.settle([Done(job.lease) for job in jobs])
        assert [each.lease.id for each in refused] == [jobs[2].id]
        assert (await store.stats()).queues["q"].done == 4


async def test_leases_that_have_ended_are_lost_as_a_range_too(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await _opened(tmp_path, clock) as store:
        await store.enqueue([NewJob("q") for _ in range(4)])
        jobs = await store.take("q", 4, lease=10)
        clock.advance(10)
        assert len(await store.settle([Done(job.lease) for job in jobs])) == 4
        again = await store.take("q", 4)
        assert [(job.id, job.attempts, job.crashes) for job in again] == [(job.id, 1, 1) for job in jobs]


async def test_a_batch_of_another_queue_with_the_same_numbers_is_refused(tmp_path: Path) -> None:
    async with await _opened(tmp_path, ManualClock()) as store:
        await store.enqueue([NewJob("q"), NewJob("q"), NewJob("other")])
        jobs = await store.take("q", 2)
        forged = [Done(Lease("other", job.id, job.attempts)) for job in jobs]
        assert len(await store.settle(forged)) == 2
        assert await store.settle([Done(job.lease) for job in jobs]) == []


async def test_delayed_jobs_of_a_range_start_together(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await _opened(tmp_path, clock) as store:
        await store.enqueue([NewJob("q", delay=1, rank=number) for number in (3, 1, 2)])
        clock.advance(1)
        assert [job.rank for job in await store.take("q", 5)] == [1, 2, 3]
