"""The bell that wakes those who wait: from its own loop at once, from other threads too, and only whom it concerns."""

import asyncio
import threading

from accoda import SystemClock
from accoda.storage.signal import Signal


class Sleeper:
    """Somebody who waits for queues, and how often he looked at the store."""

    def __init__(self, signal: Signal, *queues: str) -> None:
        self.looks = 0
        self.task = asyncio.create_task(signal.wait(SystemClock(), queues, 60.0, self._look))

    async def _look(self) -> tuple[bool, int | None]:
        self.looks += 1
        return self.looks > 1, None


async def until_asleep(*sleepers: Sleeper) -> None:
    await asyncio.sleep(0)
    assert [each.looks for each in sleepers] == [1] * len(sleepers)


async def test_a_bell_on_the_loop_itself_is_heard_in_the_next_turn() -> None:
    signal = Signal()
    sleeper = Sleeper(signal, "a")
    await until_asleep(sleeper)
    signal.ring(("a",))
    await asyncio.sleep(0)
    assert sleeper.looks == 2
    assert await sleeper.task


async def test_a_bell_from_another_thread_is_heard() -> None:
    signal = Signal()
    sleeper = Sleeper(signal, "a")
    await until_asleep(sleeper)
    threading.Thread(target=signal.ring, args=(("a",),)).start()
    async with asyncio.timeout(5):
        assert await sleeper.task


async def test_only_those_are_woken_whom_it_concerns() -> None:
    signal = Signal()
    ours, other, both = Sleeper(signal, "a"), Sleeper(signal, "b"), Sleeper(signal, "b", "a")
    await until_asleep(ours, other, both)
    signal.ring(("a", "nobody's"))
    assert await ours.task and await both.task
    assert not other.task.done() and signal.awaited
    signal.ring()
    assert await other.task
    assert not signal.awaited
