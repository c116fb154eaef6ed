"""Two clocks: one that runs and one that is moved."""

import asyncio
import time

import pytest

from accoda import ManualClock, SystemClock


def test_the_system_clock_tells_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().now() <= time.time_ns() // 1_000_000


async def test_the_system_clock_never_wakes_before_the_moment() -> None:
    clock = SystemClock()
    woken = asyncio.Event()
    moment = clock.now() + 20
    clock.call_at(moment, woken.set)
    await woken.wait()
    assert clock.now() >= moment


async def test_a_manual_clock_wakes_those_whose_moment_has_come() -> None:
    clock = ManualClock(0)
    heard: list[str] = []
    clock.call_at(2000, lambda: heard.append("two"))
    clock.call_at(1000, lambda: heard.append("one"))
    cancel = clock.call_at(1000, lambda: heard.append("cancelled"))
    cancel()
    clock.advance(1)
    await asyncio.sleep(0)
    assert heard == ["one"]
    clock.advance(5)
    await asyncio.sleep(0)
    assert heard == ["one", "two"]


async def test_a_moment_that_has_come_wakes_at_once() -> None:
    clock = ManualClock(5000)
    woken = asyncio.Event()
    clock.call_at(5000, woken.set)
    await woken.wait()


def test_time_does_not_go_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)
