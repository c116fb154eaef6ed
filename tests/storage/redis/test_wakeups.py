"""Sleepers: what wakes them, and when they need no second look."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from proof.servers.redis import RedisServer

from accoda import ManualClock, NewJob
from accoda.storage.protocol import Store
from accoda.storage.redis.client import Client
from accoda.storage.redis.wakeups import Subscriber

Q = "q"
BASE = "accoda:q"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the looks of sleepers were answered."""
    answers: list[Any] = []
    run = Client.run

    async def noting(self: Client, script: Any, *rest: Any, **named: Any) -> Any:
        answer = await run(self, script, *rest, **named)
        if script.name == "wait":
            answers.append(answer)
        return answer

    monkeypatch.setattr(Client, "run", noting)
    return answers


async def asleep(looks: list[Any], count: int = 1) -> None:
    """Returns when the sleeper has looked, and sleeps."""
    async with asyncio.timeout(20):
        while len(looks) < count:
            await asyncio.sleep(0.001)
    for _ in range(20):
        await asyncio.sleep(0)


class TestASleeper:
    async def test_that_is_told_of_a_job_needs_no_second_look(
        self, store: Store, other: Store, looks: list[Any]
    ) -> None:
        waiting = asyncio.create_task(store.wait([Q], 60))
        await asleep(looks)
        await other.enqueue([NewJob(Q)])
        assert await waiting
        assert len(looks) == 1

    async def test_needs_no_second_look_at_the_start_of_a_delayed_job(
        self, store: Store, clock: ManualClock, looks: list[Any]
    ) -> None:
        await store.enqueue([NewJob(Q, delay=5)])
        waiting = asyncio.create_task(store.wait([Q], 60))
        await asleep(looks)
        clock.advance(5)
        assert await waiting
        assert len(looks) == 1

    async def test_is_not_deceived_by_a_hint_that_was_slower_than_its_look(
        self, store: Store, server: RedisServer, clock: ManualClock, looks: list[Any]
    ) -> None:
        await store.enqueue([NewJob(Q)] * 3)
        assert len(await store.take(Q, 3)) == 3
        waiting = asyncio.create_task(store.wait([Q], 30))
        await asleep(looks)
        server.ask("PUBLISH", f"{BASE}:wake", "3")
        await asleep(looks, 2)
        assert not waiting.done()
        clock.advance(30)
        assert not await waiting

    async def test_is_not_deceived_by_a_hint_from_before_its_first_look(
        self, store: Store, server: RedisServer, clock: ManualClock, looks: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a Cluster a hint from before the subscription may be heard after it."""
        await store.enqueue([NewJob(Q)])
        await store.pause(Q, None)
        subscribe, receive, heard = Subscriber.subscribe, Subscriber._receive, asyncio.Event()

        def noting(self: Subscriber, message: Any) -> None:
            receive(self, message)
            if not isinstance(message, Exception) and message[0] == b"message":
                heard.set()

        async def subscribe_and_hear(self: Subscriber, channels: Any) -> None:
            await subscribe(self, channels)
            if not heard.is_set():
                server.ask("PUBLISH", f"{BASE}:wake", "1")
                await heard.wait()

        monkeypatch.setattr(Subscriber, "_receive", noting)
        monkeypatch.setattr(Subscriber, "subscribe", subscribe_and_hear)
        waiting = asyncio.create_task(store.wait([Q], 30))
        await asleep(looks)
        assert not waiting.done()
        clock.advance(30)
        assert not await waiting

    async def test_of_a_paused_queue_sleeps_on(
        self, store: Store, other: Store, clock: ManualClock, looks: list[Any]
    ) -> None:
        await store.pause(Q, None)
        waiting = asyncio.create_task(store.wait([Q], 60))
        await asleep(looks)
        await other.enqueue([NewJob(Q)])
        await asleep(looks, 2)
        assert not waiting.done()
        clock.advance(60)
        assert not await waiting
