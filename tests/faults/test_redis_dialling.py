"""Many calls that find the connection lost share one attempt to open it."""

from __future__ import annotations

import asyncio

import pytest

from accoda.storage.redis.connection import Connection, ConnectionLost
from accoda.storage.redis.topology import Line


class Phone:
    """Counts the attempts. Each rings until it is told how it ends."""

    def __init__(self) -> None:
        self.dials = 0
        self.hang = asyncio.Event()

    async def dial(self) -> Connection:
        self.dials += 1
        await self.hang.wait()
        raise ConnectionLost("nobody answers")


async def test_a_crowd_waits_for_one_attempt_and_not_one_after_the_other() -> None:
    phone = Phone()
    line = Line(phone.dial)
    calls = [asyncio.create_task(line.open()) for _ in range(1000)]
    await asyncio.sleep(0)
    phone.hang.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, ConnectionLost) for answer in answers)
    assert phone.dials == 1
    with pytest.raises(ConnectionLost):
        await line.open()
    assert phone.dials == 2, "the next one tries again"


async def test_one_who_is_cancelled_leaves_the_attempt_to_the_others() -> None:
    phone = Phone()
    line = Line(phone.dial)
    one, two = (asyncio.create_task(line.open()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    phone.hang.set()
    with pytest.raises(ConnectionLost, match="nobody answers"):
        await two
    assert phone.dials == 1


async def test_a_close_ends_the_attempt_and_all_who_wait_for_it() -> None:
    phone = Phone()
    line = Line(phone.dial)
    calls = [asyncio.create_task(line.open()) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    line.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["closed"] * 3
