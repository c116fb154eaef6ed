"""Whose turn it is: round robin, sleeping queues, limits; and the waits for those that sleep."""

import asyncio
from collections.abc import Sequence

import pytest

from accoda import ManualClock, NewJob, StorageUnavailable
from accoda.runtime.rotation import Rotation
from accoda.runtime.sleeper import Sleeper
from accoda.storage.memory import MemoryStorage
from accoda.storage.observed import Call, Observed


def turns(rotation: Rotation, count: int, *, full: bool = True) -> list[str | None]:
    """What one processor is given, when every take is full (or every take finds nothing)."""
    found: list[str | None] = []
    last: str | None = None
    for _ in range(count):
        queue = rotation.pick(() if last is None else (last,))
        if queue is not None:
            rotation.enter(queue)
        if last is not None:
            rotation.leave(last)
        last = queue
        found.append(queue)
        if queue is not None:
            rotation.report(queue, more=full, found=full)
    if last is not None:
        rotation.leave(last)
    return found


async def rest(rotation: Rotation) -> None:
    async with asyncio.timeout(5):
        called = asyncio.get_running_loop().create_future()
        rotation.resting[called] = None
        await called


async def test_queues_take_turns() -> None:
    assert turns(Rotation("abc"), 7) == list("abcabca")


async def test_a_queue_that_had_less_than_was_asked_for_sleeps() -> None:
    rotation = Rotation("ab")
    rotation.report("a", more=False, found=True)
    assert turns(rotation, 3) == ["b", "b", "b"]
    assert rotation.asleep() == ["a"]
    rotation.wake(["a"])
    assert turns(rotation, 2) == ["a", "b"]


async def test_a_queue_that_is_left_to_others_has_its_turn_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accoda.runtime.rotation.LEFT_FOR", 0.01)
    rotation = Rotation("ab")
    rotation.leave_to_others(["a"])
    assert rotation.asleep() == ["a"] and turns(rotation, 2) == ["b", "b"]
    rotation.wake(["a"])
    assert rotation.asleep() == [] and turns(rotation, 2) == ["b", "b"], "it is not waited for either"
    rotation.leave_to_others(["a"])
    await rest(rotation)
    assert turns(rotation, 3) == ["a", "b", "a"], "nobody has taken its jobs: it has its turns again"
    rotation.report("a", more=False, found=True)
    rotation.wake(["a"])
    assert turns(rotation, 2) == ["b", "b"], "until it was empty"
    rotation.leave_to_others([])
    assert turns(rotation, 2) == ["a", "b"]
    rotation.close()


async def test_there_is_no_turn_while_all_queues_sleep() -> None:
    rotation = Rotation("ab")
    assert turns(rotation, 3, full=False) == ["a", "b", None]
    assert rotation.idle


async def test_a_queue_without_room_is_passed_over() -> None:
    rotation = Rotation("abc")
    assert [rotation.pick((), lambda queue: queue != "b") for _ in range(3)] == ["a", "c", None]
    assert rotation.pick() == "b"  # it was woken all the while


async def test_a_woken_queue_is_probed_by_one_processor_first() -> None:
    rotation = Rotation("a")
    assert rotation.pick() == "a"
    assert rotation.pick() is None
    rotation.report("a", more=True, found=True)  # there is more: all may come
    assert rotation.pick() == "a"
    assert rotation.pick() == "a"


async def test_every_resting_processor_is_called_for_a_woken_queue_and_one_probes_it() -> None:
    rotation = Rotation("abc")
    assert turns(rotation, 4, full=False)[-1] is None
    resting = [asyncio.create_task(rest(rotation)) for _ in range(3)]
    await asyncio.sleep(0)
    rotation.wake(["b"])
    await asyncio.gather(*resting)
    assert [rotation.pick() for _ in range(3)] == ["b", None, None]


async def test_a_limit_holds_and_is_never_less_than_one() -> None:
    rotation = Rotation("ab")
    for queue in "ab":
        rotation.report(queue, more=True, found=True)
    rotation.limit({"a": 2, "b": 0})
    picked = []
    for _ in range(5):
        queue = rotation.pick()
        picked.append(queue)
        if queue is not None:
            rotation.enter(queue)
    assert picked == ["a", "b", "a", None, None]
    assert rotation.pick(mine=("b",)) == "b"  # a processor that serves it already counts once
    rotation.limit({})
    assert rotation.pick() in ("a", "b")
    rotation.leave("b")
    assert rotation.busy("b") == 0


async def test_fifty_empty_queues_wait_in_one_call() -> None:
    calls: list[Call] = []
    names = [f"q{n}" for n in range(50)]
    store = Observed(MemoryStorage(), calls.append)
    rotation = Rotation(names)
    for name in names:
        rotation.report(name, more=False, found=False)
    sleeper = asyncio.create_task(Sleeper(rotation, store).run())
    await asyncio.sleep(0.05)
    assert calls == []  # one call is under way, and none has ended
    await store.enqueue([NewJob("q7")])
    await rest(rotation)
    assert rotation.pick() == "q7"  # only the one that has a job was woken
    assert rotation.pick() is None
    # The wait has ended; seven looks say in which eight it is, and eight in which queue.
    assert [call.verb for call in calls] == ["enqueue", "wait", *["wait"] * 15]
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)


async def test_a_job_for_one_of_a_thousand_queues_disturbs_only_those_that_sleep_beside_it() -> None:
    waited: list[list[str]] = []

    class Watched(MemoryStorage):
        async def wait(self, queues: Sequence[str], timeout: float) -> bool:
            waited.append(list(queues))
            return await super().wait(queues, timeout)

    names = [f"q{n}" for n in range(1000)]
    store, rotation = Watched(), Rotation(names)
    for name in names:
        rotation.report(name, more=False, found=False)
    sleeper = asyncio.create_task(Sleeper(rotation, store).run())
    await asyncio.sleep(0.05)
    assert sorted(waited, key=lambda each: names.index(each[0])) == [names[n : n + 64] for n in range(0, 1000, 64)]
    waited.clear()
    await store.enqueue([NewJob("q70")])
    await rest(rotation)
    assert rotation.pick() == "q70" and rotation.pick() is None
    await store.take("q70", 1)
    rotation.report("q70", more=False, found=False)
    await asyncio.sleep(0.05)
    assert {name for each in waited for name in each} == set(names[64:128])
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)


async def test_a_job_that_another_worker_took_wakes_no_queue_and_the_next_job_does() -> None:
    class Slow(MemoryStorage):
        """Another worker takes the job as soon as the wait has ended."""

        async def wait(self, queues: Sequence[str], timeout: float) -> bool:
            found = await super().wait(queues, timeout)
            if timeout:
                await self.take("a", 1)
            return found

    store, rotation = Slow(), Rotation("abc")
    for name in "abc":
        rotation.report(name, more=False, found=False)
    sleeper = asyncio.create_task(Sleeper(rotation, store).run())
    await asyncio.sleep(0.01)
    await store.enqueue([NewJob("a")])
    await asyncio.sleep(0.02)
    assert rotation.asleep() == ["a", "b", "c"]
    await store.enqueue([NewJob("b")])
    await rest(rotation)
    assert rotation.pick() == "b"
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)


async def test_a_queue_that_falls_asleep_joins_the_wait() -> None:
    store = MemoryStorage()
    rotation = Rotation("ab")
    rotation.report("a", more=False, found=False)
    sleeper = asyncio.create_task(Sleeper(rotation, store).run())
    await asyncio.sleep(0.01)
    rotation.report("b", more=False, found=False)
    await asyncio.sleep(0.01)
    await store.enqueue([NewJob("b")])
    async with asyncio.timeout(5):
        while "b" not in (rotation.pick(), rotation.pick()):
            await rest(rotation)
    sleeper.cancel()
    await asyncio.gather(sleeper, return_exceptions=True)


async def test_a_store_that_cannot_wait_is_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStorage):
        async def wait(self, queues: object, timeout: float) -> bool:
            raise StorageUnavailable("away")

    rotation = Rotation("a")
    rotation.report("a", more=False, found=False)
    await Sleeper(rotation, Broken()).run_once(rotation.groups[0])
    assert "trying again soon: away" in caplog.text
    assert rotation.pick() == "a"


async def test_a_blocked_queue_has_no_turn_until_its_moment_and_delays_no_other() -> None:
    clock, rotation = ManualClock(), Rotation("ab")
    rotation.block("a", clock.now() + 3000, clock)
    assert turns(rotation, 3) == ["b", "b", "b"]
    assert rotation.blocked() == ["a"]
    assert rotation.asleep() == []  # it has jobs: a wait for it would come back at once
    clock.advance(2.999)
    await asyncio.sleep(0)
    assert rotation.blocked() == ["a"]
    clock.advance(0.001)
    await rest(rotation)
    assert rotation.blocked() == []
    assert "a" in turns(rotation, 2)


async def test_a_held_queue_can_be_released_and_its_timer_then_means_nothing() -> None:
    clock, rotation = ManualClock(), Rotation("a")
    rotation.block("a", clock.now() + 3000, clock)
    rotation.unblock(["a", "stranger"])
    assert rotation.pick() == "a"
    rotation.block("a", clock.now() + 9000, clock)
    clock.advance(3)
    await asyncio.sleep(0)
    assert rotation.blocked() == ["a"]


async def test_a_queue_that_waits_for_tokens_is_idle_and_waking_it_needs_tokens() -> None:
    clock, rotation = ManualClock(), Rotation("ab")
    assert turns(rotation, 3, full=False)[2] is None
    rotation.block("a", clock.now() + 3000, clock)
    assert rotation.idle
    rotation.wake(["a"])  # an enqueue does not make it affordable
    assert rotation.pick() is None


async def test_a_moment_in_the_past_does_not_make_it_spin() -> None:
    clock, rotation = ManualClock(), Rotation("a")
    rotation.block("a", clock.now() - 1000, clock)
    await asyncio.sleep(0)
    assert rotation.blocked() == ["a"]
    clock.advance(0.005)
    await asyncio.sleep(0)
    assert rotation.blocked() == []


async def test_the_processors_of_the_only_queue_with_jobs_stay_with_it_until_another_wakes() -> None:
    rotation = Rotation(["a", "b"])
    for name in ("a", "b"):
        assert rotation.pick() == name
    rotation.report("b", more=False, found=False)
    rotation.report("a", more=True, found=True)
    assert rotation.only == "a"
    rotation.wake(["b"])
    assert rotation.only is None
    assert {rotation.pick(("a",)), rotation.pick(("b",))} == {"a", "b"}
    rotation.report("b", more=False, found=True)
    rotation.report("a", more=True, found=True)
    assert rotation.only == "a"
    rotation.report("a", more=False, found=True)
    assert rotation.only is None
