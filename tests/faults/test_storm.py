"""A server that was away comes back to many clients at once: they spread out, and all get through."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict

import pytest
from proof.chaos.faults import Target
from proof.chaos.faults.storm import storm
from proof.proxy import NetworkConditions
from proof.servers.process import find_program
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import NewJob, open_storage
from accoda.storage.common.reconnecting import Backoff


class TestBackoff:
    def test_naps_grow_to_a_limit(self) -> None:
        limits = [max(naps) for naps in zip(*([b.next() for _ in range(12)] for b in backoffs(2000)), strict=True)]
        assert limits[0] <= 0.02 < limits[1] <= 0.04 < limits[2] <= 0.08
        assert 0.9 < limits[-1] <= 1.0

    def test_clients_that_failed_together_come_back_evenly_spread(self) -> None:
        """Of a thousand, each tenth of the time gets about a tenth, at every attempt: nowhere is a crowd."""
        tries = list(zip(*([b.next() for _ in range(12)] for b in backoffs(1000)), strict=True))
        for count, naps in enumerate(tries):
            limit = min(1.0, 0.02 * 2**count)
            crowds = [0] * 10
            for nap in naps:
                crowds[min(9, int(nap / limit * 10))] += 1
            assert all(60 <= crowd <= 140 for crowd in crowds), crowds

    def test_a_success_lets_it_begin_again(self) -> None:
        backoff = Backoff(first=0.001, longest=5.0)
        for _ in range(20):
            backoff.next()
        backoff.reset()
        assert backoff.next() <= 0.001

    async def test_a_nap_ends_with_the_patience(self) -> None:
        backoff = Backoff(first=3600.0, longest=3600.0)
        async with asyncio.timeout(10):
            await backoff.nap(at_most=0.0)


def backoffs(count: int) -> list[Backoff]:
    random.seed(7)
    return [Backoff() for _ in range(count)]


async def test_every_client_waits_at_random_and_all_get_through(
    target: Target, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert target.proxy is not None
    naps: defaultdict[Backoff, list[float]] = defaultdict(list)
    original = Backoff.next

    enough = asyncio.Event()

    def noted(self: Backoff) -> float:
        naps[self].append(original(self))
        if sum(len(each) >= 3 for each in naps.values()) >= 30:
            enough.set()
        return naps[self][-1]

    monkeypatch.setattr(Backoff, "next", noted)
    url = target.url + ("?pool=1" if target.kind == "postgres" else "")
    async with asyncio.timeout(60):
        stores = await asyncio.gather(*(open_storage(url) for _ in range(30)))
        try:
            await asyncio.gather(*(store.enqueue([NewJob(queue)]) for store in stores))
            with target.proxy.during(NetworkConditions(cut=True)):
                calls = [asyncio.create_task(store.stats()) for store in stores]
                await enough.wait()  # each has been refused three times, and waits for the server
                assert not any(call.done() for call in calls)
            await asyncio.gather(*calls)
        finally:
            await asyncio.gather(*(store.close() for store in stores))
    flat = [nap for each in naps.values() for nap in each]
    assert len(set(flat)) == len(flat)
    assert max(flat) <= 2.0


async def test_a_redis_that_takes_no_more_clients_is_waited_for(queue: str) -> None:
    with need(lambda: RedisServer("none", "--maxclients", "12")) as server:
        async with asyncio.timeout(60):
            first = [await open_storage(server.url) for _ in range(12)]
            second = [asyncio.create_task(open_storage(server.url)) for _ in range(12)]
            await asyncio.wait(second, timeout=0.3)
            assert not any(each.done() for each in second), "no error: they come when there is room"
            await asyncio.gather(*(store.close() for store in first))
            for store in await asyncio.gather(*second):
                assert len(await store.enqueue([NewJob(queue)])) == 1
                await store.close()


async def test_a_server_that_comes_back_to_a_crowd_of_processes_serves_all_of_it(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{pytestconfig.rootpath}:{os.environ.get('PYTHONPATH', '')}")
    need(lambda: find_program("redis-server"))
    async with asyncio.timeout(90):
        found = await storm("redis", clients=80, away_for=0.5)
    assert found.clients == 80
