"""What wakes callers in `wait`: a wake-up of their queue from any thread, a hint from the server, or a moment."""

import asyncio
import threading
from collections.abc import Collection

import pytest

from accoda import ManualClock, SystemClock
from accoda.storage.common.wakeups import HintedWakeUps, Seen, WakeUps


class Sleeper:
    """A caller that waits for queues, and how often it looked at the store: the second look finds something."""

    def __init__(self, wakeups: WakeUps, *queues: str) -> None:
        self.looks = 0
        self.task = asyncio.create_task(wakeups.wait(SystemClock(), queues, 60.0, self._look))

    async def _look(self) -> tuple[bool, int | None]:
        self.looks += 1
        return self.looks > 1, None


async def until_asleep(*sleepers: Sleeper) -> None:
    await asyncio.sleep(0)
    assert [each.looks for each in sleepers] == [1] * len(sleepers)


async def test_a_wake_up_on_the_same_loop_arrives_in_the_next_turn() -> None:
    wakeups = WakeUps()
    sleeper = Sleeper(wakeups, "a")
    await until_asleep(sleeper)
    wakeups.wake(("a",))
    await asyncio.sleep(0)
    assert sleeper.looks == 2
    assert await sleeper.task


async def test_a_wake_up_from_another_thread_arrives() -> None:
    wakeups = WakeUps()
    sleeper = Sleeper(wakeups, "a")
    await until_asleep(sleeper)
    threading.Thread(target=wakeups.wake, args=(("a",),)).start()
    async with asyncio.timeout(5):
        assert await sleeper.task


async def test_only_callers_that_wait_for_the_queue_are_woken() -> None:
    wakeups = WakeUps()
    ours, other, both = Sleeper(wakeups, "a"), Sleeper(wakeups, "b"), Sleeper(wakeups, "b", "a")
    await until_asleep(ours, other, both)
    wakeups.wake(("a", "unknown"))
    assert await ours.task and await both.task
    assert not other.task.done() and wakeups.awaited
    wakeups.wake()
    assert await other.task
    assert not wakeups.awaited


class Store:
    """A store on a server: what its looks find, and how many there were."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.wakeups = HintedWakeUps(self.clock)
        self.seen = Seen(takable=False)
        self.looks = 0

    async def look(self) -> Seen:
        self.looks += 1
        return self.seen

    async def wait(self, queues: Collection[str] = ("a",), timeout: float = 3600.0) -> "asyncio.Task[bool]":
        """A caller that has looked and sleeps."""
        task = asyncio.create_task(self.wakeups.wait_for_hints(queues, timeout, self.look))
        await turns()
        assert self.looks == 1 and not task.done()
        return task

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await turns()


async def turns() -> None:
    """Let everything happen that can happen without time going by."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def store() -> Store:
    return Store()


async def test_a_hint_of_a_ready_job_ends_the_wait_without_another_look(store: Store) -> None:
    waiting = await store.wait()
    store.wakeups.hear("a", ready=True)
    assert await waiting
    assert store.looks == 1


async def test_a_hint_of_a_change_makes_the_caller_look_again(store: Store) -> None:
    waiting = await store.wait()
    store.wakeups.hear("a", ready=False)
    await turns()
    assert store.looks == 2 and not waiting.done()
    store.seen = Seen(takable=True)
    store.wakeups.hear("a", ready=False)
    assert await waiting


async def test_a_hint_of_another_queue_is_none(store: Store) -> None:
    waiting = await store.wait()
    store.wakeups.hear("b", ready=True)
    await turns()
    assert store.looks == 1 and not waiting.done()
    waiting.cancel()


async def test_in_a_paused_queue_a_ready_job_makes_the_caller_look_again(store: Store) -> None:
    store.seen = Seen(takable=False, paused=True)
    waiting = await store.wait()
    store.wakeups.hear("a", ready=True)
    await turns()
    assert store.looks == 2 and not waiting.done()
    waiting.cancel()


async def test_a_start_time_ends_the_wait_without_another_look(store: Store) -> None:
    store.seen = Seen(takable=False, due_in=300, starts=True)
    waiting = await store.wait()
    await store.advance(0.299)
    assert not waiting.done()
    await store.advance(0.001)
    assert await waiting
    assert store.looks == 1


async def test_a_start_time_after_a_change_is_looked_at_again(store: Store) -> None:
    store.seen = Seen(takable=False, due_in=300, starts=True)
    waiting = await store.wait()
    store.seen = Seen(takable=False)
    store.wakeups.hear("a", ready=False)
    await turns()
    await store.advance(0.3)
    assert store.looks == 2 and not waiting.done()
    waiting.cancel()


async def test_the_end_of_a_lease_is_looked_at_again(store: Store) -> None:
    store.seen = Seen(takable=False, due_in=300)
    waiting = await store.wait()
    store.seen = Seen(takable=True)
    await store.advance(0.3)
    assert await waiting
    assert store.looks == 2


async def test_without_hints_the_caller_looks_every_five_seconds(store: Store) -> None:
    waiting = await store.wait()
    for looks in (2, 3):
        await store.advance(4.999)
        assert store.looks == looks - 1
        await store.advance(0.001)
        assert store.looks == looks
    waiting.cancel()


async def test_a_new_connection_makes_everyone_look_again(store: Store) -> None:
    waiting = await store.wait()
    store.seen = Seen(takable=True)
    store.wakeups.wake()
    assert await waiting


async def test_the_wait_ends_with_its_timeout(store: Store) -> None:
    waiting = await store.wait(timeout=2.0)
    await store.advance(2.0)
    assert not await waiting


async def test_by_the_real_clock_a_start_time_is_met_within_a_few_milliseconds() -> None:
    wakeups, loop = HintedWakeUps(None), asyncio.get_running_loop()
    asked: list[float] = []

    async def look() -> Seen:
        asked.append(loop.time())
        return Seen(takable=False, due_in=20.0, starts=True)

    assert await wakeups.wait_for_hints(("a",), 10.0, look)
    assert len(asked) == 1 and loop.time() - asked[0] >= 0.0199
