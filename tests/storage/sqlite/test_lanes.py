"""Lanes in a file: many jobs that change places, rules that another process has set, damaged names and rules."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import apsw
import pytest

from accoda import Bury, Done, Job, Lanes, ManualClock, NewJob, Store, open_storage
from accoda.model import Cancel, Change, Remove, Rerank, Retry
from accoda.storage.sqlite import lanes as lane_steps
from accoda.storage.sqlite.lanes import MOVED_AT_ONCE, SWAPPED_AT_ONCE
from accoda.storage.sqlite.storage import SqliteStorage
from accoda.testing.model_pair import Pair
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture

Q = "a"
RANKS = (0.0, 0.0, 1.0, 1.0, -2.5, 1.25, 1.75, 2.0**53, 1.7e12 + 0.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


async def opened(path: Path) -> Store:
    return await open_storage(f"sqlite:///{path}", clock=ManualClock(1_790_000_000_000))


async def ready(store: Store) -> list[int]:
    return [job.id for job in await store.browse(Q, "ready")]


@asynccontextmanager
async def make_fixture() -> AsyncIterator[StoreFixture]:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/q.db?durability=fast"
        yield ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)


def random_rules(rng: Random) -> Lanes:
    return Lanes(
        limit=rng.choice((None, 3, 20, 50)),
        limits={"b": rng.choice((None, 0, 11))},
        fair=rng.random() < 0.7,
        weights={"b": rng.choice((0.001, 0.7, 3))},
        by_cost=rng.random() < 0.5,
        total=rng.choice((None, None, 40)),
        shared=rng.choice((None, "s")),
    )


def random_job(rng: Random) -> NewJob:
    queue, lane = rng.choice((Q, Q, "b")), rng.choice(("a", "b", "c", None))
    return NewJob(queue, rank=rng.choice(RANKS), cost=rng.choice((0, 1, 7, 1 << 53)), lane=lane)


@pytest.mark.parametrize("seed", range(12))
def test_many_jobs_of_a_lane_are_where_the_model_has_them(seed: int) -> None:
    """The machine has few jobs at once; here more of them come, go and change places than are looked at together, and
    new rules move more than one step does."""
    rng = Random(seed)
    pair = Pair(make_fixture())

    def set_lanes(queue: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("accoda.storage.sqlite.lanes.MOVED_AT_ONCE", rng.choice((1, 2, 7, 40, 1000)))
            pair.set_lanes(queue, random_rules(rng))

    try:
        set_lanes(Q)
        for _ in range(12):
            pair.enqueue([random_job(rng) for _ in range(rng.choice((1, 5, 60)))])
            if rng.random() < 0.4:
                set_lanes(rng.choice((Q, Q, "b")))
            jobs = pair.take(rng.choice((Q, Q, "b")), rng.choice((1, 30)), 60.0, None, "")
            pair.settle([Retry(job.lease) if rng.random() < 0.3 else Done(job.lease) for job in jobs[::2]])
            ids = rng.sample(sorted(pair.model.jobs), min(12, len(pair.model.jobs)))
            changes: list[Change] = [Rerank(id, rng.choice(RANKS)) for id in ids]
            pair.change(changes)
            pair.advance(rng.choice((0, 60_000)))
            pair.lanes(Q, 100)
    finally:
        pair.close()


def test_a_turn_does_not_follow_one_that_has_just_left_the_line() -> None:
    pair = Pair(make_fixture())
    try:
        pair.set_lanes(Q, Lanes(limit=1, fair=True))
        pair.enqueue([NewJob(Q, rank=0.5, lane="b")])
        pair.enqueue([NewJob(Q, rank=rank, lane=lane) for rank, lane in ((0.7, "a"), (0.1, "b"), (0.2, "c"))])
    finally:
        pair.close()


@asynccontextmanager
async def woken_by(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """The queues for which the storage wakes while somebody waits for Q. (The watch of the file looks again as well,
    after a while.)"""
    assert isinstance(store, SqliteStorage)
    woken: list[str] = []
    wake = store._wakeups.wake

    def note(queues: Collection[str] | None = None) -> None:
        woken.extend(queues or ())
        wake(queues)

    monkeypatch.setattr(store._wakeups, "wake", note)
    waiting = asyncio.create_task(store.wait([Q], 3600.0))
    while not store._wakeups.sleepers:
        await asyncio.sleep(0)
    yield woken
    waiting.cancel()


ENDS: dict[str, Callable[[Store, Job], Awaitable[object]]] = {
    "done": lambda store, job: store.settle([Done(job.lease)]),
    "buried": lambda store, job: store.settle([Bury(job.lease, "x")]),
    "cancelled": lambda store, job: store.change([Cancel(job.id)]),
    "removed": lambda store, job: store.change([Remove(job.id)]),
    "purged": lambda store, job: store.purge(Q, "taken"),
    "delayed": lambda store, job: store.enqueue([NewJob(Q, key="k", on_duplicate="replace", delay=60)]),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("rules", "lane"), [(Lanes(total=1), None), (Lanes(limit=1), "c"), (Lanes(limit=1, total=1), "c")]
)
async def test_the_end_of_a_run_wakes_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, end: str, rules: Lanes, lane: str | None
) -> None:
    """Not only when the watch of the file looks again after a while."""
    async with await opened(path) as store:
        await store.set_lanes(Q, rules)
        await store.enqueue([NewJob(Q, key="k", lane=lane), NewJob(Q, lane=lane)])
        (job,) = await store.take(Q, 9, lease=3600.0)
        async with woken_by(store, monkeypatch) as woken:
            await ENDS[end](store, job)
        assert Q in woken


async def test_more_jobs_change_places_than_are_read_at_once(path: Path) -> None:
    count = 3 * SWAPPED_AT_ONCE
    async with await opened(path) as store:
        await store.set_lanes(Q, Lanes(limit=count))
        low = await store.enqueue([NewJob(Q, rank=2, lane="c") for _ in range(count)])
        high = await store.enqueue([NewJob(Q, rank=1, lane="c") for _ in range(count - 1)])
        assert await ready(store) == [*(new.id for new in high), low[0].id]
        stats = (await store.stats()).queues[Q]
        assert (stats.ready, stats.held) == (count, count - 1)


async def test_rules_that_another_handle_has_set_hold_in_this_one(path: Path) -> None:
    async with await opened(path) as store, await opened(path) as other:
        await store.enqueue([NewJob(Q, lane="c")])
        await other.set_lanes(Q, Lanes(limit=1))
        await store.enqueue([NewJob(Q, lane="c")])
        assert len(await store.take(Q, 9)) == 1
        await other.set_lanes(Q, None)
        assert len(await store.take(Q, 9)) == 1


async def test_the_queues_that_share_limits_are_as_another_handle_says(path: Path) -> None:
    shared = Lanes(limit=1, shared="s")
    async with await opened(path) as store, await opened(path) as other:
        await store.set_lanes(Q, shared)
        await store.enqueue([NewJob(Q, lane="c"), NewJob("b", lane="c")])
        await other.set_lanes("b", shared)
        assert (len(await store.take("b", 9)), len(await store.take(Q, 9))) == (0, 1)
        await other.set_lanes(Q, Lanes(limit=1, shared="t"))
        assert len(await store.take("b", 9)) == 1


async def test_a_lease_that_begins_wakes_those_who_share_limits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They fell asleep before, and its end is the moment at which a job of theirs may get its place."""
    async with await opened(path) as store:
        for queue in (Q, "b"):
            await store.set_lanes(queue, Lanes(limit=1, shared="s"))
        await store.enqueue([NewJob("b", lane="c")])
        async with woken_by(store, monkeypatch) as woken:
            await store.take("b", 1, lease=10.0)
        assert Q in woken


async def count_of(store: Store, queue: str = Q) -> tuple[int, int]:
    stats = (await store.stats()).queues[queue]
    return stats.ready, stats.held


async def test_one_step_moves_a_thousand_jobs_of_a_lane_and_the_rules_hold_when_set_lanes_ends(path: Path) -> None:
    count = 2 * MOVED_AT_ONCE + 7
    async with await opened(path) as store:
        assert isinstance(store, SqliteStorage)
        await store.set_lanes(Q, Lanes(limit=0))
        ids = [new.id for new in await store.enqueue([NewJob(Q, lane="c") for _ in range(count)])]
        await store._run(lane_steps.set_lanes, Q, Lanes())
        assert await count_of(store) == (MOVED_AT_ONCE, count - MOVED_AT_ONCE)
        await store.set_lanes(Q, Lanes(limit=count - 1))
        assert await count_of(store) == (count - 1, 1)
        await store.set_lanes(Q, Lanes(fair=True))
        assert await count_of(store) == (count, 0)
        await store._run(lane_steps.set_lanes, Q, Lanes(limit=3))
        assert await count_of(store) == (count - MOVED_AT_ONCE, MOVED_AT_ONCE)
        await store.set_lanes(Q, Lanes(limit=2))
        assert await count_of(store) == (2, count - 2)
        assert [job.id for job in await store.take(Q, 9)] == ids[:2]


@pytest.mark.parametrize("queue", [Q, "b"])
async def test_what_a_process_that_died_left_of_new_rules_is_done_by_those_who_take(path: Path, queue: str) -> None:
    """Until then they get nothing: the limit is never exceeded, in none of the queues that share it."""
    shared = Lanes(limit=2 * MOVED_AT_ONCE + 2, shared="s")
    async with await opened(path) as store:
        assert isinstance(store, SqliteStorage)
        await store.set_lanes(Q, shared)
        await store.set_lanes("b", shared)
        await store.enqueue([NewJob(q, lane="c") for q in (Q, "b") for _ in range(MOVED_AT_ONCE + 1)])
        await store.set_lanes("b", shared)
        assert (await count_of(store), await count_of(store, "b")) == ((MOVED_AT_ONCE + 1, 0), (MOVED_AT_ONCE + 1, 0))
        await store._run(lane_steps.set_lanes, Q, Lanes(limit=2, shared="s"))
        assert await store.take(queue, 9) == []
        assert await store.wait([queue], 0)
        found = await store.take(queue, 9)
        while not found and await store.wait([queue], 0):
            found = await store.take(queue, 9)
        assert len(found) == (2 if queue == Q else 0)
        assert not await store.wait([queue], 0)


async def test_rules_for_more_lanes_than_one_step_looks_at(path: Path) -> None:
    count = 2 * MOVED_AT_ONCE + 7
    async with await opened(path) as store:
        assert isinstance(store, SqliteStorage)
        for queue in (Q, "b"):
            await store.enqueue([NewJob(queue, lane=f"c{n % count}") for n in range(2 * count)])
        await store.set_lanes("b", Lanes(limit=1, shared="s"))
        await store._run(lane_steps.set_lanes, Q, Lanes(limit=1, shared="s"))
        assert 0 < (await count_of(store))[1] < 2 * count
        await store.set_lanes(Q, Lanes(limit=1, shared="s"))
        assert (await count_of(store), await count_of(store, "b")) == ((count, count), (0, 2 * count))


async def test_statements_stay_prepared_however_many_jobs_a_step_brings_into_the_line(path: Path) -> None:
    async with await opened(path) as store:
        assert isinstance(store, SqliteStorage)
        await store.set_lanes(Q, Lanes(limit=100, fair=True))
        await store.enqueue([NewJob(Q, lane="c") for _ in range(1000)])
        prepared = []
        while jobs := await store.take(Q, 100):
            await store.settle([Done(job.lease) for job in jobs])
            prepared.append(store._writer._connection.cache_stats()["misses"])
        assert len(prepared) == 10
        assert prepared[2] == prepared[8]


async def test_rules_outlive_the_process(path: Path) -> None:
    rules = Lanes(limit=1, limits={"ü": None}, weights={"c": 0.1}, fair=True)
    async with await opened(path) as store:
        await store.set_lanes(Q, rules)
    async with await opened(path) as store:
        assert (await store.lanes(Q)).rules == rules


async def test_a_job_without_a_lane_is_in_no_index_of_lanes(path: Path) -> None:
    async with await opened(path) as store:
        await store.enqueue([NewJob(Q), NewJob(Q, key="k"), NewJob(Q, delay=9), NewJob(Q, delay=9, lane="c")])
        await store.take(Q, 1)
        with apsw.Connection(str(path)) as raw:
            for index in ("jobs_lanes", "jobs_turns"):
                where = raw.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (index,)).get.partition("WHERE")[2]
                assert raw.execute(f"SELECT count(*) FROM jobs INDEXED BY {index} WHERE {where}").get == 0


@pytest.mark.parametrize("text", [b"7", b'{"limit": "two"}', b'{"limit": -1}', b'{"limit": 1', b"\xff"])
async def test_rules_that_cannot_be_read_are_none(path: Path, text: bytes) -> None:
    async with await opened(path) as store:
        await store.set_lanes(Q, Lanes(limit=1))
        with apsw.Connection(str(path)) as raw:
            raw.execute("PRAGMA ignore_check_constraints = 1")  # a bad disk asks none of them
            raw.execute("UPDATE queues SET lanes = CAST(? AS TEXT)", (text,))
        await store.enqueue([NewJob(Q, lane="c"), NewJob(Q, lane="c")])
        assert len(await store.take(Q, 9)) == 2
        await store.set_lanes(Q, Lanes(limit=0))
        assert (await store.lanes(Q)).rules == Lanes(limit=0)


async def test_a_job_whose_lane_is_no_text_is_buried_and_the_next_of_its_lane_is_given(path: Path) -> None:
    async with await opened(path) as store:
        await store.set_lanes(Q, Lanes(limit=1))
        bad, good, _ = await store.enqueue([NewJob(Q, lane="c"), NewJob(Q, lane="c"), NewJob(Q, lane="c")])
        with apsw.Connection(str(path)) as raw:
            raw.execute("UPDATE jobs SET lane = CAST(x'ff41' AS TEXT) WHERE id <> ?", (good.id,))
        assert [each.lane for each in (await store.lanes(Q)).lanes] == ["\ufffdA", "c"]
        await store.set_lanes(Q, Lanes(limit=1))
        assert [job.id for job in await store.take(Q, 9)] == [good.id]
        dead = await store.browse(Q, "dead")
        assert {job.reason for job in dead} == {"unreadable record: its lane is b'\\xffA'"}
        assert bad.id in {job.id for job in dead}
        assert {job.lane for job in dead} == {None}
        assert (await store.stats()).queues[Q].held == 0
