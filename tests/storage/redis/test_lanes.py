"""Lanes in Redis: their index leaves nothing behind, goes in pieces where lanes are many, and survives damage."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from proof.servers.redis import ClusterSet, RedisServer

from accoda import Bury, Done, InvalidInput, Job, ManualClock, NewJob, Retry, open_storage
from accoda.model import TURN, ById, LaneInfo, Lanes, Rerank
from accoda.storage.protocol import Store
from accoda.storage.redis.keys import Shard
from accoda.storage.redis.lanes import LaneVerbs

Q = "q"
BASE = "accoda:q"
BALANCE = LaneVerbs._balance
RULES = Lanes(limit=1, limits={"b": 2}, weights={"ü x": 2}, fair=True, total=50)


def of(*lanes: str, queue: str = Q, key: str | None = None, rank: float = 0.0) -> list[NewJob]:
    return [NewJob(queue, lane.encode(), lane=lane, key=key, rank=rank) for lane in lanes]


async def drain(store: Store, queue: str = Q) -> list[Job]:
    ran = []
    while await store.wait([queue], 0):  # a take gives nothing where it has met a damaged record
        jobs = await store.take(queue, 100)
        ran += jobs
        assert await store.settle([Done(job.lease) for job in jobs]) == []
    return ran


def left_of_lanes(server: RedisServer) -> list[str]:
    """What is stored about the jobs of lanes."""
    patterns = ("lanes", "turns", "held*", "ready:of:*")
    return [key for pattern in patterns for key in server.ask("KEYS", f"{BASE}:{pattern}")]


async def damage(server: RedisServer, place: str, id: int, old: bytes, new: bytes) -> None:
    """Change the record of a job."""

    def changed(text: str) -> bytes:
        return text.encode(errors="surrogateescape").replace(old, new, 1)

    if place == "ready":
        (record,) = server.ask("ZRANGE", f"{BASE}:ready", 0, -1)
        server.ask("ZREM", f"{BASE}:ready", record)
        server.ask("ZADD", f"{BASE}:ready", 0, changed(record))  # type: ignore[arg-type]
        return
    number = f"{id:016d}"
    key, field = (f"{BASE}:taken", number) if place == "taken" else (f"{BASE}:held:ids:{number[:14]}", number[14:])
    value = server.ask("HGET", key, field)
    at = value.index(number)
    server.ask("HSET", key, field, value[:at].encode() + changed(value[at:]))


@pytest.mark.parametrize("rules", [None, Lanes(), RULES])
async def test_lanes_without_jobs_leave_nothing(store: Store, server: RedisServer, rules: Lanes | None) -> None:
    await store.set_lanes(Q, RULES)
    await store.enqueue(of("a", "a", "b", "b", "b", "ü x", "ü x", "c:d"))
    one, two, *_ = await store.take(Q, 3)
    await store.settle([Retry(one.lease), Bury(two.lease, "x")])
    await store.set_lanes(Q, rules)
    await drain(store)
    assert len(await store.take(Q, 9)) <= 1  # of the first take
    await store.purge(Q, "taken")
    await store.purge(Q, "dead")
    await drain(store)
    left = {f"{BASE}:meta", f"{BASE}:rules"} if rules == RULES else {f"{BASE}:meta"}
    assert set(server.ask("KEYS", f"{BASE}:*")) == left


async def test_a_job_without_a_lane_is_in_no_index_of_lanes(store: Store, server: RedisServer) -> None:
    await store.set_lanes(Q, RULES)
    await store.enqueue([NewJob(Q)] * 3)
    await store.take(Q, 1)
    assert left_of_lanes(server) == []


@pytest.mark.parametrize("lane", ["a", "a b,c:d", "ü€😀", "'\"\\{}[]()%", "x" * 128, "-inf", "1e5"])
async def test_a_lane_may_have_any_name(store: Store, lane: str) -> None:
    await store.set_lanes(Q, Lanes(limit=1, limits={lane: 2}, weights={lane: 0.5}, fair=True))
    ids = [answer.id for answer in await store.enqueue(of(lane, lane, lane))]
    jobs = await store.take(Q, 9)
    assert [(job.id, job.lane) for job in jobs] == [(ids[0], lane), (ids[1], lane)]
    found = await store.lanes(Q)
    assert found.lanes == (LaneInfo(lane, 0, 1, 2),)
    assert found.rules == Lanes(limit=1, limits={lane: 2}, weights={lane: 0.5}, fair=True)
    assert await store.settle([Done(jobs[0].lease)]) == []
    held = (await store.look(ById(ids[2]))).job
    assert held is not None and (held.state, held.lane) == ("ready", lane)


async def test_more_lanes_than_one_piece_has_are_balanced_and_told(store: Store) -> None:
    lanes = [f"c{n:04d}" for n in range(2300)]
    await store.enqueue([job for lane in lanes for job in of(lane, lane)])
    await store.set_lanes(Q, Lanes(limit=1))
    stats = (await store.stats()).queues[Q]
    assert (stats.ready, stats.held) == (2300, 2300)
    found = await store.lanes(Q, limit=3)
    assert (found.count, found.lanes) == (2300, tuple(LaneInfo(lane, 1, 1, 0) for lane in lanes[:3]))
    await store.set_lanes(Q, None)
    assert (await store.stats()).queues[Q].held == 0


async def test_a_purge_of_the_line_ends_though_held_jobs_come_in(store: Store) -> None:
    await store.set_lanes(Q, Lanes(limit=1))
    await store.enqueue([job for n in range(1200) for job in of(f"c{n}", f"c{n}", f"c{n}")])
    purged = await store.purge(Q, "ready")
    stats = (await store.stats()).queues[Q]
    assert purged == 1200
    assert stats.ready + stats.held == 2400


@pytest.mark.parametrize("rank", [-1e300, -2.5, -1e-300, 0.0, 1e-300, 0.1, 3.0, 1.7e12, 4.5e15, 1e300])
async def test_ranks_of_any_size_order_a_lane(store: Store, rank: float) -> None:
    await store.set_lanes(Q, Lanes(limit=1, fair=True))
    ranks = [rank, 7.0, rank, -7.0]
    ids = [(await store.enqueue(of("a", rank=each)))[0].id for each in ranks]
    expected = [id for _, id in sorted(zip(ranks, ids, strict=True))]
    assert [job.id for job in await drain(store)] == expected


@pytest.mark.parametrize("delay", [None, 0.001])
async def test_jobs_of_one_call_meet_under_their_key(store: Store, clock: ManualClock, delay: float | None) -> None:
    await store.set_lanes(Q, Lanes(limit=1, fair=True))
    first = NewJob(Q, b"1", lane="a", key="k", delay=delay)
    replaces = NewJob(Q, b"2", lane="b", key="k", on_duplicate="replace", rank=2.0)
    reranks = NewJob(Q, lane="a", key="k", on_duplicate="rerank", rank=1.0)
    attaches = NewJob(Q, lane="a", key="k", on_duplicate="attach", waiter=b"w")
    answers = await store.enqueue([first, *of("a", rank=0.5)])
    clock.advance(1)
    answers += await store.enqueue([first, replaces, attaches, reranks, *of("a")])
    assert [answer.what for answer in answers] == ["created"] * 2 + ["kept", "replaced", "attached", "kept", "created"]
    (job,) = await store.take(Q, 9)
    assert job.id == answers[-1].id
    held = (await store.look(ById(answers[0].id), waiters_after=0)).job
    assert held is not None and (held.state, held.data, held.lane, held.rank) == ("held", b"2", "a", 1.0)


async def test_a_rank_that_changes_leaves_no_old_place(store: Store, server: RedisServer) -> None:
    await store.set_lanes(Q, Lanes(limit=1, fair=True))
    ids = [answer.id for answer in await store.enqueue(of("a", "a", "a"))]
    for n in range(5):
        assert await store.change([Rerank(id, float(n - place)) for place, id in enumerate(ids)]) == 3
    assert server.ask("HGETALL", f"{BASE}:lanes") == ["a", "1"]
    assert [server.ask("ZCARD", f"{BASE}:{key}") for key in ("ready:of:a", "held:of:a", "turns")] == [1, 2, 1]
    assert [job.id for job in await drain(store)] == ids[::-1]


async def test_a_take_that_is_cancelled_gives_its_places_back(store: Store) -> None:
    await store.set_lanes(Q, Lanes(limit=2))
    await store.enqueue(of(*["a"] * 5))
    taking = asyncio.create_task(store.take(Q, 20))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    while (await store.stats()).queues[Q].taken:
        await asyncio.sleep(0)
    assert (await store.lanes(Q)).lanes == (LaneInfo("a", 2, 3, 0),)


async def dies(self: LaneVerbs, shard: object, queues: object, what: str = "") -> None:
    """The caller of `set_lanes` dies after the first step."""


class TestLaneWithManyJobs:
    """One step moves a thousand of them, and other steps come in between."""

    @pytest_asyncio.fixture
    async def store(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
        monkeypatch.setattr(LaneVerbs, "_balance", dies)
        yield store

    async def counts(self, store: Store) -> tuple[int, int, int]:
        stats = (await store.stats()).queues[Q]
        return stats.ready, stats.held, stats.taken

    async def test_a_lower_limit_is_never_exceeded(self, store: Store) -> None:
        """A take that would get a job of a lane with too many in the line balances it instead."""
        await store.enqueue(of(*["a"] * 2500))
        await store.set_lanes(Q, Lanes(limit=2))
        assert await self.counts(store) == (1500, 1000, 0)
        assert [len(await store.take(Q, 100)) for _ in range(4)] == [0, 0, 2, 0]
        assert await self.counts(store) == (0, 2498, 2)

    async def test_rules_that_come_meanwhile_are_kept_to(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """The earlier `set_lanes` has passed the lane when its limit becomes lower, and then comes to its end."""

        async def rest(self: LaneVerbs, shard: Shard, base: str) -> list[bytes]:
            return [b"b"]

        async def late(self: LaneVerbs, shard: Shard, queues: Sequence[str], what: str) -> None:
            monkeypatch.setattr(LaneVerbs, "_balance", dies)
            await store.set_lanes(Q, Lanes(limit=2))
            monkeypatch.setattr(LaneVerbs, "_names", rest)
            await BALANCE(self, shard, queues, what)

        await store.enqueue(of(*["a"] * 3500))
        monkeypatch.setattr(LaneVerbs, "_balance", late)
        await store.set_lanes(Q, Lanes(limit=1000))
        assert await self.counts(store) == (1500, 2000, 0)
        assert [len(await store.take(Q, 100)) for _ in range(3)] == [0, 0, 2]

    async def test_a_full_server_balances_too(self, store: Store, server: RedisServer) -> None:
        await store.enqueue(of(*["a"] * 1500))
        await store.set_lanes(Q, Lanes(limit=2))
        try:
            server.ask("CONFIG", "SET", "maxmemory", 1)
            assert [len(await store.take(Q, 100)) for _ in range(3)] == [0, 2, 0]
        finally:
            server.ask("CONFIG", "SET", "maxmemory", 0)

    async def test_the_best_jobs_stay_in_the_line(self, store: Store) -> None:
        """Better ones have come later: their turns are behind those of the others."""
        await store.set_lanes(Q, Lanes(fair=True))
        await store.enqueue(of(*["a"] * 2500, rank=0.5))
        ids = [answer.id for answer in await store.enqueue(of(*["a"] * 5))]
        await store.set_lanes(Q, Lanes(limit=2, fair=True))
        found = [job.id for _ in range(4) for job in await store.take(Q, 100)]
        assert found == ids[:2]

    async def test_a_limit_that_is_lifted_lets_a_thousand_in_with_each_step(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=1))
        ids = [answer.id for answer in await store.enqueue(of(*["a"] * 2500))]
        await store.set_lanes(Q, None)
        assert await self.counts(store) == (1001, 1499, 0)
        late = [answer.id for answer in await store.enqueue(of("a"))]
        assert await self.counts(store) == (2001, 500, 0)
        assert [job.id for job in await drain(store)] == ids + late

    async def test_one_step_for_each_lane_with_so_many(self, store: Store) -> None:
        await store.enqueue(of(*["a"] * 1500, *["b"] * 1500))
        await store.set_lanes(Q, Lanes(limit=0))
        assert await self.counts(store) == (2000, 1000, 0)
        assert await store.take(Q, 2000) == []
        assert await self.counts(store) == (500, 2500, 0)


async def test_set_lanes_goes_on_until_all_lanes_are_balanced(store: Store, server: RedisServer) -> None:
    await store.enqueue([*of(*["a"] * 2500, *["b"] * 1200), *of(*["c"] * 1200, queue="other")])
    await store.set_lanes("other", Lanes(shared="x", limit=3))
    await store.set_lanes(Q, Lanes(shared="x", limit=2))
    assert [server.ask("HEXISTS", f"accoda:{queue}:meta", "unbalanced") for queue in (Q, "other")] == [0, 0]
    stats = (await store.stats()).queues
    assert (stats[Q].ready, stats[Q].held, stats["other"].ready) == (4, 3696, 2)
    await store.set_lanes(Q, None)
    stats = (await store.stats()).queues
    assert (stats[Q].ready, stats["other"].ready) == (3700, 3)
    assert len(await drain(store)) == 3700


class TestGroups:
    async def test_are_forgotten_with_their_last_queue(self, store: Store, server: RedisServer) -> None:
        await store.set_lanes(Q, Lanes(shared="x"))
        await store.set_lanes("a.b", Lanes(shared="x"))
        assert server.ask("HGETALL", "accoda:groups") == ["x", "a.b,q"]
        await store.set_lanes("a.b", Lanes(shared="y"))
        assert server.ask("HGETALL", "accoda:groups") == ["x", "q", "y", "a.b"]
        await store.set_lanes(Q, Lanes())
        await store.set_lanes("a.b", None)
        assert server.ask("EXISTS", "accoda:groups") == 0

    @pytest.mark.parametrize("text", [None, "", "other", "q,other,q2", "?,,q"])
    async def test_that_are_damaged_leave_each_queue_its_own(
        self, store: Store, server: RedisServer, text: str | None
    ) -> None:
        await store.set_lanes(Q, Lanes(limit=1, shared="x"))
        await store.enqueue(of("a", "a"))
        server.ask("DEL", "accoda:groups")
        if text is not None:
            server.ask("HSET", "accoda:groups", "x", text)
        await store.enqueue(of("a"))
        assert len(await drain(store)) == 3


class TestDamage:
    @pytest.mark.parametrize("place", ["ready", "taken", "held"])
    @pytest.mark.parametrize("old, new", [(b"\t", b""), (b"000", b"x"), (b",,0,", b",,x,"), (b"a\t", b"\xff\t")])
    async def test_of_a_record_does_not_stop_its_lane(
        self, store: Store, server: RedisServer, clock: ManualClock, place: str, old: bytes, new: bytes
    ) -> None:
        await store.set_lanes(Q, Lanes(limit=1, fair=True))
        ids = [answer.id for answer in await store.enqueue(of("a", "a", "a"))]
        if place == "taken":
            await store.take(Q, 1, lease=1)
        await damage(server, place, ids[place == "held"], old, new)
        clock.advance(1)
        ran = await drain(store)
        stats = (await store.stats()).queues[Q]
        assert (stats.total, stats.dead, len(ran)) == (1, 1, 2)
        assert left_of_lanes(server) == []

    @pytest.mark.parametrize("index", ["lanes", "turns", "held", "ready:of:a", "held:of:b", "rules"])
    async def test_of_an_index_raises_nothing(self, store: Store, server: RedisServer, index: str) -> None:
        await store.set_lanes(Q, RULES)
        await store.enqueue(of("a", "a", "b", "b", "b"))
        server.ask("DEL", f"{BASE}:{index}")
        await store.enqueue(of("a", "b"))
        assert await drain(store)
        await store.set_lanes(Q, None)
        assert (await store.lanes(Q)).rules is None

    @pytest.mark.parametrize("text", ["x", "", "1", "1,2,3", "-1,0,0,,0,", "9,1,1,9,1", "1,0,0,,0,x y"])
    async def test_of_the_rules_lets_all_jobs_in(self, store: Store, server: RedisServer, text: str) -> None:
        await store.set_lanes(Q, Lanes(limit=1))
        server.ask("HSET", f"{BASE}:meta", "lanes", text)
        await store.enqueue(of("a", "a"))
        assert len(await store.take(Q, 9)) == 2


class TestInACluster:
    @pytest_asyncio.fixture(params=["", "?partitions=3"])
    async def store(self, servers: ClusterSet, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
        for master in servers.masters:
            master.ask("FLUSHALL")
        async with await open_storage(f"{servers.url}{request.param}") as store:
            yield store

    async def test_a_limit_holds_whatever_partition_its_jobs_are_in(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=2))
        for _ in range(5):
            await store.enqueue(of("a", "b", "c"))
        jobs = await store.take(Q, 100)
        assert Counter(job.lane for job in jobs) == {"a": 2, "b": 2, "c": 2}
        found = await store.lanes(Q)
        assert (found.rules, found.count) == (Lanes(limit=2), 3)
        assert found.lanes == tuple(LaneInfo(lane, 0, 3, 2) for lane in "abc")
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert len(await drain(store)) == 9

    async def test_limits_are_shared_within_a_family(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=1, shared=Q))
        await store.set_lanes("q.far", Lanes(limit=1, shared=Q))
        await store.enqueue([*of("a", "b"), *of("a", "b", queue="q.far")])
        jobs = [*await store.take(Q, 9), *await store.take("q.far", 9)]
        assert sorted((job.queue, str(job.lane)) for job in jobs) == [(Q, "a"), (Q, "b")]
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        assert len(await store.take("q.far", 9)) == 2
        assert (await store.lanes("q.far", limit=0)).rules == Lanes(limit=1, shared=Q)

    @pytest.mark.parametrize("queue", [Q, "q.far"])
    async def test_limits_are_not_shared_between_families(self, store: Store, queue: str) -> None:
        await store.set_lanes(queue, Lanes(limit=1))
        with pytest.raises(InvalidInput, match="share limits only as 'q'"):
            await store.set_lanes(queue, Lanes(limit=2, shared="github"))
        assert (await store.lanes(queue, limit=0)).rules == Lanes(limit=1)

    async def test_follow_ups_for_other_families_keep_their_lanes(self, store: Store) -> None:
        await store.set_lanes("other", Lanes(limit=1))
        await store.enqueue(of("a", "b"))
        jobs = await store.take(Q, 9)
        then = [*of("a", "a", queue="other"), *of("b", queue="other", key="k")]
        assert await store.settle([Done(jobs[0].lease, then=then), Done(jobs[1].lease)]) == []
        assert sorted(str(job.lane) for job in await store.take("other", 9)) == ["a", "b"]

    async def test_jobs_of_several_families_keep_their_lanes(self, store: Store) -> None:
        await store.enqueue([*of("a"), *of("b", queue="other")])
        assert [job.lane for job in (*await store.take(Q, 9), *await store.take("other", 9))] == ["a", "b"]

    async def test_a_job_with_a_turn_knows_how_many_are_ahead(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(fair=True))
        ids = [answer.id for answer in await store.enqueue(of("a", "a", "a"))]
        looks = [await store.look(ById(id), ahead=True) for id in ids]
        assert [(look.ahead, look.newer) for look in looks] == [(0, 0), (1, 0), (2, 0)]
        turns = [look.job.turn for look in looks if look.job is not None]
        assert None not in turns and all(turn is not None and turn < 4 * TURN for turn in turns)
