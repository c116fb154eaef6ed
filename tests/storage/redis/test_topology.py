"""Many calls that find the connection lost share one attempt to open it."""

from __future__ import annotations

import asyncio

import pytest

from accoda.storage.redis.client import Connection, ConnectionLost
from accoda.storage.redis.topology import Link


class Attempts:
    """Counts the attempts to connect. Each goes on until it is told to fail."""

    def __init__(self) -> None:
        self.count = 0
        self.fail = asyncio.Event()

    async def connect(self) -> Connection:
        self.count += 1
        await self.fail.wait()
        raise ConnectionLost("no answer")


async def test_a_thousand_calls_share_one_attempt() -> None:
    attempts = Attempts()
    link = Link(attempts.connect)
    calls = [asyncio.create_task(link.open()) for _ in range(1000)]
    await asyncio.sleep(0)
    attempts.fail.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, ConnectionLost) for answer in answers)
    assert attempts.count == 1
    with pytest.raises(ConnectionLost):
        await link.open()
    assert attempts.count == 2, "the next call tries again"


async def test_a_call_that_is_cancelled_leaves_the_attempt_to_the_others() -> None:
    attempts = Attempts()
    link = Link(attempts.connect)
    one, two = (asyncio.create_task(link.open()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    attempts.fail.set()
    with pytest.raises(ConnectionLost, match="no answer"):
        await two
    assert attempts.count == 1


async def test_a_close_ends_the_attempt_and_all_calls_that_wait_for_it() -> None:
    attempts = Attempts()
    link = Link(attempts.connect)
    calls = [asyncio.create_task(link.open()) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["closed"] * 3
