"""Keys: one job for each key in a queue, and what becomes of a duplicate."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from accoda.model import Bury, Cancel, Done, Enqueued, JobInfo, Lanes, NewJob, OnDuplicate, Remove, Retry, Revive
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import (
    HOUR,
    Q,
    Suite,
    add,
    add_one,
    bury_one,
    close_to,
    finish,
    info_of,
    lost,
    state_of,
    stats_of,
    take_ids,
    take_one,
    waiters_of,
)
from accoda.testing.store_fixture import StoreFixture

WAYS: list[OnDuplicate] = ["keep", "rerank", "replace", "attach"]
HOLDING = ["ready", "held", "delayed", "taken"]
OLD = NewJob(Q, b"old", rank=5, cost=2, key="k", waiter=b"first", keep_for=10)


def new(way: OnDuplicate, **fields: float) -> NewJob:
    return NewJob(Q, b"new", rank=1, cost=9, key="k", on_duplicate=way, waiter=b"second", keep_for=20, **fields)  # type: ignore[arg-type]


async def holder_in(store: Store, state: str) -> JobInfo:
    """A job under the key "k" in that state."""
    id = await add_one(store, NewJob(Q, b"old", rank=5, cost=2, key="k", waiter=b"first", keep_for=10, delay=30))
    if state != "delayed":
        await store.change([Remove(id)])
        await store.set_lanes(Q, Lanes(limits={"full": 0}) if state == "held" else None)
        id = await add_one(store, replace(OLD, lane="full") if state == "held" else OLD)
    if state == "taken":
        await take_one(store, lease=HOUR)
    info = await info_of(store, id)
    assert info.state == state
    return info


async def ended_in(store: Store, state: str) -> int:
    """A job that had the key "k" and no longer holds it."""
    if state == "dead":
        return await bury_one(store, OLD)
    id = await add_one(store, OLD if state in ("done", "cancelled") else NewJob(Q, b"old", key="k"))
    if state in ("removed", "cancelled"):
        await store.change([Remove(id) if state == "removed" else Cancel(id)])
    else:
        await finish(store, await take_one(store))
    return id


class TestKeys(Suite):
    @pytest.mark.parametrize("state", HOLDING)
    async def test_keep_changes_nothing(self, store: Store, state: str) -> None:
        before = await holder_in(store, state)
        assert await store.enqueue([new("keep", delay=5)]) == [Enqueued(before.id, "kept", 1)]
        assert await info_of(store, before.id) == before
        assert (await stats_of(store)).total == 1

    @pytest.mark.parametrize("state", HOLDING)
    async def test_rerank_moves_a_job_in_the_line_and_changes_nothing_else(
        self, store: Store, fixture: StoreFixture, state: str
    ) -> None:
        before = await holder_in(store, state)
        first, second, last = await add(store, *(NewJob(Q, rank=rank) for rank in (0, 1, 3)))  # it has 5
        assert await store.enqueue([new("rerank", delay=5)]) == [Enqueued(before.id, "kept", 1)]
        assert await info_of(store, before.id) == replace(before, rank=1.0)
        if state == "taken":
            assert await take_ids(store) == [first, second, last]
            return
        if state == "delayed":
            await fixture.advance(30)
        await store.set_lanes(Q, None)
        assert await take_ids(store) == [first, *sorted((before.id, second)), last]

    @pytest.mark.parametrize("way", ["retry", "lease ends"])
    async def test_rerank_holds_when_a_running_job_comes_back(
        self, store: Store, fixture: StoreFixture, way: str
    ) -> None:
        id = await add_one(store, OLD)
        run = await take_one(store, lease=10)
        other = await add_one(store, NewJob(Q, rank=3))
        assert await store.enqueue([new("rerank")]) == [Enqueued(id, "kept", 1)]
        if way == "retry":
            assert await store.settle([Retry(run.lease)]) == []
        else:
            await fixture.advance(10)
        again, behind = await store.take(Q, 9)
        assert (again.id, again.rank, again.data, again.cost, again.attempts) == (id, 1, b"old", 2, 1)
        assert behind.id == other
        assert await waiters_of(store, again.lease) == [b"first"]

    async def test_rerank_leaves_the_lease_of_a_running_job(self, store: Store) -> None:
        await add_one(store, OLD)
        run = await take_one(store)
        await store.enqueue([new("rerank")])
        assert await store.extend([run.lease], 60) == []
        assert await store.settle([Done(run.lease, waiters=1)]) == []

    @pytest.mark.parametrize("state", HOLDING)
    async def test_attach_adds_the_waiter_and_changes_nothing_else(self, store: Store, state: str) -> None:
        before = await holder_in(store, state)
        assert await store.enqueue([new("attach", delay=5)]) == [Enqueued(before.id, "attached", 2)]
        after = await info_of(store, before.id)
        assert after.waiters == 2
        assert (after.state, after.data, after.rank, after.cost) == (state, b"old", 5, 2)
        assert (after.start_time, after.attempts, after.keep_for) == (before.start_time, 0, 10)
        assert after.lease_until == before.lease_until

    @pytest.mark.parametrize("state", ["ready", "delayed"])
    async def test_replace_gives_a_waiting_job_new_content(
        self, store: Store, fixture: StoreFixture, state: str
    ) -> None:
        before = await holder_in(store, state)
        assert await store.enqueue([new("replace")]) == [Enqueued(before.id, "replaced", 2)]
        after = await info_of(store, before.id)
        assert (after.state, after.data, after.rank, after.cost, after.keep_for) == ("ready", b"new", 1, 9, 20)
        assert (after.attempts, after.key, after.created_at) == (0, "k", before.created_at)
        assert close_to(fixture, after.start_time, await fixture.now())
        assert await take_ids(store) == [before.id]

    @pytest.mark.parametrize("state", ["ready", "delayed"])
    async def test_replace_moves_the_start_time(self, store: Store, fixture: StoreFixture, state: str) -> None:
        before = await holder_in(store, state)
        await store.enqueue([new("replace", delay=60)])
        assert await state_of(store, before.id) == "delayed"
        await fixture.advance(59)
        assert await take_ids(store) == []
        await fixture.advance(1)
        assert await take_ids(store) == [before.id]

    async def test_replace_keeps_the_attempts_of_a_job_that_waits(self, store: Store) -> None:
        id = await add_one(store, OLD)
        await store.settle([Retry((await take_one(store)).lease, delay=9)])
        await store.enqueue([new("replace")])
        assert (await info_of(store, id)).attempts == 1

    async def test_replace_ends_the_lease_of_a_running_job(self, store: Store) -> None:
        id = await add_one(store, OLD)
        run = await take_one(store)
        assert await store.enqueue([new("replace")]) == [Enqueued(id, "replaced", 2)]
        after = await info_of(store, id)
        assert (after.state, after.data, after.attempts) == ("ready", b"new", 1)
        assert await store.settle([Done(run.lease)]) == lost(run.lease)
        assert await store.extend([run.lease], 60) == lost(run.lease)
        assert await waiters_of(store, run.lease) == []
        again = await take_one(store)
        assert (again.id, again.data, again.attempts) == (id, b"new", 1)
        assert await waiters_of(store, again.lease) == [b"first", b"second"]

    async def test_replace_can_delay_a_running_job(self, store: Store, fixture: StoreFixture) -> None:
        id = await add_one(store, OLD)
        run = await take_one(store, lease=30)
        await store.enqueue([new("replace", delay=60)])
        await fixture.advance(40)
        assert await state_of(store, id) == "delayed", "the end of the old lease means nothing now"
        assert await store.settle([Done(run.lease)]) == lost(run.lease)
        await fixture.advance(20)
        assert (await take_one(store)).attempts == 1
        assert (await stats_of(store)).expired == 0

    async def test_replace_of_an_overdue_run_counts_it_as_expired_once(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, OLD)
        await take_one(store, lease=10)
        await fixture.advance(10)
        await store.enqueue([new("replace")])
        assert (await info_of(store, id)).attempts == 1
        assert (await stats_of(store)).expired == 1

    @pytest.mark.parametrize("state", ["dead", "done", "cancelled", "gone", "removed"])
    @pytest.mark.parametrize("way", WAYS)
    async def test_a_job_that_ended_holds_its_key_no_longer(self, store: Store, state: str, way: OnDuplicate) -> None:
        old = await ended_in(store, state)
        (answer,) = await store.enqueue([new(way)])
        assert (answer.what, answer.waiters) == ("created", 1)
        assert answer.id > old
        assert [job.data for job in await store.take(Q, 9)] == [b"new"]

    async def test_a_job_whose_lease_ended_or_that_is_retried_holds_its_key(
        self, store: Store, fixture: StoreFixture
    ) -> None:
        id = await add_one(store, NewJob(Q, key="k"))
        await take_one(store, lease=10)
        await fixture.advance(10)
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(id, "kept", 0)]
        await store.settle([Retry((await take_one(store)).lease)])
        assert await store.enqueue([NewJob(Q, key="k")]) == [Enqueued(id, "kept", 0)]

    async def test_the_same_key_in_another_queue_is_another_job(self, store: Store) -> None:
        answers = await store.enqueue([NewJob("a", key="k"), NewJob("b", key="k"), NewJob("a", key="l")])
        assert [answer.what for answer in answers] == ["created"] * 3

    async def test_jobs_without_a_key_are_never_duplicates(self, store: Store) -> None:
        assert len(set(await add(store, NewJob(Q, b"x"), NewJob(Q, b"x")))) == 2

    async def test_duplicates_in_one_call_meet_each_other(self, store: Store) -> None:
        first, kept, reranked, attached, replaced, other = await store.enqueue(
            [
                NewJob(Q, b"1", key="k", waiter=b"a"),
                NewJob(Q, b"2", key="k", waiter=b"b"),
                NewJob(Q, b"3", key="k", rank=7, on_duplicate="rerank", waiter=b"b"),
                NewJob(Q, b"4", key="k", on_duplicate="attach", waiter=b"c"),
                NewJob(Q, b"5", key="k", on_duplicate="replace", waiter=b"d"),
                NewJob(Q, b"6", key="l"),
            ]
        )
        assert [answer.what for answer in (first, kept, reranked, attached, replaced, other)] == [
            "created", "kept", "kept", "attached", "replaced", "created",
        ]  # fmt: skip
        assert [answer.waiters for answer in (first, kept, reranked, attached, replaced)] == [1, 1, 1, 2, 3]
        assert {kept.id, reranked.id, attached.id, replaced.id} == {first.id}
        job = await take_one(store)
        assert (job.id, job.data, job.waiters) == (first.id, b"5", 3)
        assert await waiters_of(store, job.lease) == [b"a", b"c", b"d"]

    async def test_attach_and_replace_without_a_waiter_add_none(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k"))
        answers = await store.enqueue(
            [NewJob(Q, key="k", on_duplicate="attach"), NewJob(Q, key="k", on_duplicate="replace")]
        )
        assert [(answer.what, answer.waiters) for answer in answers] == [("attached", 0), ("replaced", 0)]

    async def test_equal_waiters_are_different_waiters(self, store: Store) -> None:
        await add_one(store, NewJob(Q, key="k", waiter=b"same"))
        await store.enqueue([NewJob(Q, key="k", waiter=b"same", on_duplicate="attach")])
        assert await waiters_of(store, (await take_one(store)).lease) == [b"same", b"same"]

    async def test_a_buried_job_keeps_its_waiters_for_its_revival(self, store: Store) -> None:
        id = await add_one(store, NewJob(Q, key="k", waiter=b"w"))
        await store.settle([Bury((await take_one(store)).lease, "broken")])
        assert await store.change([Revive(id)]) == 1
        assert await waiters_of(store, (await take_one(store)).lease) == [b"w"]
