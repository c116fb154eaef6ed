"""Lanes in Tarantool: what goes in pieces, who is woken, and rows that no Accoda wrote."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from msgspec import Raw
from msgspec.msgpack import Decoder
from proof.servers.tarantool import TarantoolServer, administer, empty

from accoda import Done, ManualClock, NewJob, Remove, Retry, open_storage
from accoda.model import NEWCOMER, TURN, Job, LaneInfo, Lanes, LanesInfo
from accoda.storage.protocol import Store
from accoda.storage.tarantool import records
from accoda.storage.tarantool.records import UNREADABLE
from accoda.storage.tarantool.wakeups import _SEEN

Q = "q"
ONE = Lanes(limit=1)


@pytest_asyncio.fixture
async def store(server: TarantoolServer) -> AsyncIterator[Store]:
    async with await open_storage(server.url, clock=ManualClock()) as store:
        await empty(server.url)
        yield store


async def add(store: Store, *lanes: str | None, **fields: Any) -> list[int]:
    return [answer.id for answer in await store.enqueue([NewJob(Q, lane=lane, **fields) for lane in lanes])]


async def finish(store: Store, job: Job) -> None:
    assert await store.settle([Done(job.lease)]) == []


async def counts(store: Store) -> tuple[int, int, int]:
    found = (await store.stats()).queues[Q]
    return found.ready, found.held, found.taken


class TestPieces:
    async def test_a_purge_in_pieces_ends_where_jobs_come_in_meanwhile(self, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        await add(store, *(f"c{n % 1200}" for n in range(3600)))
        assert await store.purge(Q, "ready") == 1200
        assert await counts(store) == (1200, 1200, 0)
        assert await store.purge(Q, "ready", limit=1100) == 1100
        assert await counts(store) == (1200, 100, 0)

    async def test_rules_reach_all_of_many_lanes(self, store: Store) -> None:
        await add(store, *(f"c{n % 2500}" for n in range(5000)))
        await store.set_lanes(Q, ONE)
        assert await counts(store) == (2500, 2500, 0)
        await store.set_lanes(Q, None)
        assert await counts(store) == (5000, 0, 0)

    async def test_no_step_moves_more_than_so_many_jobs_of_a_lane(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await store.set_lanes(Q, Lanes(limit=0))
        await add(store, *["a"] * 3500, "b", "b")
        steps = steps_of(store, monkeypatch)
        await store.set_lanes(Q, None)
        assert [ready for ready, _ in steps] == [1000, 2000, 3000, 3502]
        del steps[:]
        await store.set_lanes(Q, ONE)
        assert [held for _, held in steps] == [1000, 2000, 3000, 3500]
        assert await counts(store) == (2, 3500, 0)

    async def test_other_steps_help_to_balance_a_lane_and_keep_to_the_order(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=0))
        ids = await add(store, *["a"] * 2500)
        (urgent,) = await add(store, "a", rank=-1)
        await one_step(store, None)
        assert await counts(store) == (1000, 1501, 0)
        (job,) = await store.take(Q, 1)
        assert job.id == urgent
        await finish(store, job)
        assert await counts(store) == (1999, 501, 0)
        (other,) = await add(store, "a")
        assert await counts(store) == (2501, 0, 0)
        assert [job.id for job in await store.take(Q, 3000)] == [*ids, other]

    async def test_a_lane_that_is_balanced_in_steps_is_never_over_its_limit(self, store: Store) -> None:
        await store.set_lanes(Q, Lanes(limit=0))
        await add(store, *["a"] * 4000)
        await one_step(store, Lanes(limit=1500))
        assert await counts(store) == (1000, 3000, 0)
        await add(store, "a", rank=-1)
        assert await counts(store) == (1500, 2501, 0)
        jobs = await store.take(Q, 700)
        await add(store, *["a"] * 10, rank=-2)
        assert await counts(store) == (800, 2511, 700)
        await one_step(store, ONE)
        await store.settle([Done(job.lease) for job in jobs])
        assert await counts(store) == (1, 3310, 0)

    async def test_the_lanes_of_queues_that_shared_are_balanced_in_steps_too(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for queue in ("far", Q):
            await store.set_lanes(queue, Lanes(limit=1, shared="s"))
        await store.enqueue([NewJob("far", lane=f"c{n % 1200}") for n in range(2400)])
        await add(store, *["a"] * 1500, *(f"c{n}" for n in range(1200)))
        steps = steps_of(store, monkeypatch)
        await store.set_lanes(Q, None)
        assert len(steps) > 3
        assert await counts(store) == (2700, 0, 0)
        far = (await store.stats()).queues["far"]
        assert (far.ready, far.held) == (1200, 1200)


async def one_step(store: Store, rules: Lanes | None) -> None:
    """The first step of `set_lanes`."""
    args = (None, None) if rules is None else (records.encode_rules(rules), rules.total)
    client: Any = store._client  # type: ignore[attr-defined]
    await client.once("set_lanes", (Q, *args, None, None), Decoder(tuple[Raw]))


def steps_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many jobs are ready and held after each step of `set_lanes`."""
    client: Any = store._client  # type: ignore[attr-defined]
    real = client.once
    steps: list[tuple[int, int]] = []

    async def once(verb: str, *args: Any) -> Any:
        answer = await real(verb, *args)
        if verb == "set_lanes":
            ready, held, _ = await counts(store)
            steps.append((ready, held))
        return answer

    monkeypatch.setattr(client, "once", once)
    return steps


class TestWakeUps:
    async def test_a_place_that_is_filled_ends_a_wait_without_another_look(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = count_looks(store, monkeypatch)
        await store.set_lanes(Q, ONE)
        await add(store, "a", "a")
        (job,) = await store.take(Q, 9)
        waiting = asyncio.create_task(store.wait([Q], 30))
        await looked(looks, 1)
        await finish(store, job)
        assert await asyncio.wait_for(waiting, 10)
        assert looks["wait"] == 1

    async def test_a_wait_is_told_of_the_next_moment_in_the_queues_that_share_its_limits(self, store: Store) -> None:
        for queue in ("far", Q):
            await store.set_lanes(queue, Lanes(limit=1, shared="s"))
        await store.enqueue([NewJob("far", lane="a"), NewJob(Q, lane="a"), NewJob(Q, delay=60)])
        await store.take("far", 1, lease=10)
        client: Any = store._client  # type: ignore[attr-defined]
        assert await client.call("wait", ([Q],), _SEEN) == (False, 10_000, False, False)
        await store.set_lanes("far", None)
        assert await client.call("wait", ([Q],), _SEEN) == (True, None, False, False)

    async def test_a_place_that_another_queue_frees_ends_a_wait_without_another_look(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = count_looks(store, monkeypatch)
        for queue in ("far", Q):
            await store.set_lanes(queue, Lanes(limit=1, shared="s"))
        await store.enqueue([NewJob("far", lane="a"), NewJob(Q, lane="a")])
        (job,) = await store.take("far", 1)
        waiting = asyncio.create_task(store.wait([Q], 30))
        await looked(looks, 1)
        await finish(store, job)
        assert await asyncio.wait_for(waiting, 10)
        assert looks["wait"] == 1

    async def test_a_job_that_comes_into_a_full_queue_ends_no_wait(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = count_looks(store, monkeypatch)
        await store.set_lanes(Q, Lanes(total=1))
        await add(store, "a")
        (job,) = await store.take(Q, 9)
        waiting = asyncio.create_task(store.wait([Q], 30))
        await looked(looks, 1)
        await add(store, "b", None)
        await looked(looks, 2)
        assert not waiting.done()
        await store.settle([Retry(job.lease)])
        assert await asyncio.wait_for(waiting, 10)


def count_looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the server has answered each verb that is not sent by `once`."""
    client: Any = store._client  # type: ignore[attr-defined]
    real = client.call
    counted: Counter[str] = Counter()

    async def call(verb: str, *args: Any) -> Any:
        answer = await real(verb, *args)
        counted[verb] += 1
        return answer

    monkeypatch.setattr(client, "call", call)
    return counted


async def looked(looks: Counter[str], times: int) -> None:
    async with asyncio.timeout(10):
        while looks["wait"] < times:
            await asyncio.sleep(0.001)


async def test_a_job_that_leaves_the_line_within_a_step_gives_no_turn_to_the_next(store: Store) -> None:
    await store.set_lanes(Q, Lanes(limit=1, fair=True))
    (worse,) = await add(store, "b", rank=0.5)
    await add(store, "c")
    first, better = [answer.id for answer in await store.enqueue([NewJob(Q, lane="a"), NewJob(Q, lane="b")])]
    turns = {job.id: job.cursor().sort / (TURN * NEWCOMER) for job in await store.browse(Q, "ready")}
    assert (worse in turns, turns[first], turns[better]) == (False, 2, 3)


@pytest.mark.parametrize("how", ["log", "snapshot"])
async def test_the_line_of_lanes_is_the_same_after_a_restart(server: TarantoolServer, store: Store, how: str) -> None:
    await store.set_lanes(Q, Lanes(limit=3, fair=True, weights={"a": 3}))
    await add(store, *"aaaaabbbcc", None, rank=1)
    running = await store.take(Q, 4)
    await add(store, *"ba", rank=1)
    before = [await store.browse(Q, "ready"), await store.browse(Q, "held")]
    if how == "snapshot":
        await administer(server.url, "box.snapshot() return 0")
    server.kill()
    await asyncio.to_thread(server.start)
    assert [await store.browse(Q, "ready"), await store.browse(Q, "held")] == before
    await store.settle([Done(job.lease) for job in running])
    await add(store, "c", rank=1)
    line = await store.browse(Q, "ready")
    assert len(line) > len(before[0])
    assert [job.id for job in await store.take(Q, 100)] == [job.id for job in line]


class TestRowsThatNoAccodaWrote:
    async def test_a_held_job_that_was_deleted_by_hand_gives_way_to_the_next(
        self, server: TarantoolServer, store: Store
    ) -> None:
        await store.set_lanes(Q, ONE)
        _, gone, next_one = await add(store, "a", "a", "a")
        (job,) = await store.take(Q, 9)
        await administer(server.url, f"box.space.accoda_jobs:delete({gone}) return 0")
        await finish(store, job)
        assert [job.id for job in await store.take(Q, 9)] == [next_one]

    @pytest.mark.parametrize("how", ["delete({})", "update({}, {{{{'=', 'state', 99}}}})"])
    async def test_setting_the_rules_again_gives_back_the_place_of_a_job_that_is_lost(
        self, server: TarantoolServer, store: Store, how: str
    ) -> None:
        await store.set_lanes(Q, ONE)
        lost, held = await add(store, "a", "a")
        await administer(server.url, f"box.space.accoda_jobs:{how.format(lost)} return 0")
        assert await store.take(Q, 9) == []
        await store.set_lanes(Q, ONE)
        assert [job.id for job in await store.take(Q, 9)] == [held]

    async def test_a_removal_gives_back_the_place_of_a_job_in_no_state(
        self, server: TarantoolServer, store: Store
    ) -> None:
        await store.set_lanes(Q, ONE)
        lost, held = await add(store, "a", "a")
        await administer(server.url, f"box.space.accoda_jobs:update({lost}, {{{{'=', 'state', -77}}}}) return 0")
        assert await store.change([Remove(lost)]) == 1
        assert [job.id for job in await store.take(Q, 9)] == [held]

    async def test_a_lane_that_is_no_text_is_buried_by_a_take(self, server: TarantoolServer, store: Store) -> None:
        await store.set_lanes(Q, ONE)
        bad, held = await add(store, "a", "a")
        await administer(server.url, f"box.space.accoda_jobs:update({bad}, {{{{'=', 'lane', '\\xff'}}}}) return 0")
        assert await store.take(Q, 1) == []
        assert [(job.id, job.reason) for job in await store.browse(Q, "dead")] == [(bad, UNREADABLE)]
        await store.set_lanes(Q, ONE)
        assert [job.id for job in await store.take(Q, 1)] == [held]

    async def test_lanes_that_are_no_text_are_shown(self, server: TarantoolServer, store: Store) -> None:
        (id,) = await add(store, "a")
        await administer(server.url, f"box.space.accoda_lanes:update({id}, {{{{'=', 'lane', '\\xff'}}}}) return 0")
        assert await store.lanes(Q) == LanesInfo(None, (LaneInfo("\ufffd", 1, 0, 0),), 1)
        await store.set_lanes(Q, ONE)
        assert len(await store.take(Q, 1)) == 1

    @pytest.mark.parametrize("rules", ["7", "'\\xff'", "{1}", "'\\x81\\xa5limit\\xa1x'", "''"])
    async def test_rules_that_cannot_be_read_are_none(self, server: TarantoolServer, store: Store, rules: str) -> None:
        await store.set_lanes(Q, ONE)
        await administer(server.url, f"box.space.accoda_rules:replace({{1, {rules}}}) return 0")
        await add(store, "a", "a")
        assert (await store.lanes(Q)).rules is None
        assert len(await store.take(Q, 9)) == 2
        await store.set_lanes(Q, ONE)
        assert (await store.lanes(Q)).rules == ONE

    @pytest.mark.parametrize("seed", range(3))
    async def test_damaged_jobs_of_lanes_stop_no_other(self, server: TarantoolServer, store: Store, seed: int) -> None:
        await store.set_lanes(Q, Lanes(fair=True, by_cost=True, weights={"a": 3}))
        rng, lanes = Random(seed), ("a", "b", "c")
        bad = await add(store, *(rng.choice(lanes) for _ in range(300)), rank=rng.randrange(3))
        for id in bad:
            what = rng.choice(("'rank', 1/0", "'rank', -1/0", "'sort', 1.7e308", "'state', -7", "'state', 200",
                               "'queue', 7777", "'cost', 2^53", "'lane', box.NULL", "'lane', 'd'", "'data', 7",
                               "'attempts', 2ULL^63"))  # fmt: skip
            await administer(server.url, f"box.space.accoda_jobs:update({id}, {{{{'=', {what}}}}}) return 0")
        good = set(await add(store, *(rng.choice(lanes) for _ in range(300)), rank=1))
        done: set[int] = set()
        for _ in range(100):
            jobs = await store.take(Q, 20)
            await store.settle([Retry(job.lease) if job.attempts == 0 else Done(job.lease) for job in jobs])
            done.update(job.id for job in jobs if job.attempts)
        assert good <= done
        await store.set_lanes(Q, ONE)
        await add(store, *lanes)
        assert {job.lane for job in await store.take(Q, 100)} >= set(lanes)
